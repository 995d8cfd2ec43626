//! The memory engine: the table itself, shared by the clients of one process.
//!
//! For tests, for locks within one process, and as the local fallback. Every answer is immediate, so
//! this engine neither waits nor spawns.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use super::{
    AcquireRequest, Acquired, Answer, CancelRequest, Capabilities, Engine, Features, ForceOutcome,
    ForceRequest, ListRequest, Listener, Reach, ReleaseOutcome, ReleaseRequest, Renewal, Renewed,
    Wakeup,
};
use crate::clock;
use crate::core::moment::Now;
use crate::core::name::LockName;
use crate::core::table::{ClientId, Effects, Table};
use crate::error::StoreError;
use crate::info::LockInfo;
use crate::sync::lock;

/// A client of a store in this process.
pub struct MemoryEngine {
    store: Arc<Mutex<Store>>,
    client_id: ClientId,
}

#[derive(Default)]
struct Store {
    table: Table,
    clients: HashMap<ClientId, Weak<dyn Listener>>,
    last_client_id: ClientId,
}

impl MemoryEngine {
    /// Creates a client of a new, empty store.
    pub fn new() -> Self {
        Self::client_of(Arc::default())
    }

    /// Creates another client of the same store, as another process would be.
    pub fn another(&self) -> Self {
        Self::client_of(self.store.clone())
    }

    fn client_of(store: Arc<Mutex<Store>>) -> Self {
        let mut inner = lock(&store);
        inner.last_client_id += 1;
        let client_id = inner.last_client_id;
        drop(inner);
        Self { store, client_id }
    }

    /// Performs one operation, and delivers its wake-ups after the store is unlocked.
    fn perform<T>(&self, operation: impl FnOnce(&mut Table, Now, &mut Effects) -> T) -> Answer<T> {
        let mut effects = Effects::new();
        let mut store = lock(&self.store);
        let now = clock::both();
        let outcome = operation(&mut store.table, now, &mut effects);
        if effects.is_empty() {
            return Answer::now(Ok(outcome));
        }
        let deliveries = store.deliveries(effects, now);
        drop(store);
        for (listener, wakeup) in deliveries {
            listener.wake(wakeup);
        }
        Answer::now(Ok(outcome))
    }
}

impl Store {
    /// Maps wake-ups to listeners. A grant to a client that was dropped passes to the next waiter.
    fn deliveries(&mut self, effects: Effects, now: Now) -> Vec<(Arc<dyn Listener>, Wakeup)> {
        let mut pending = std::collections::VecDeque::from(effects);
        let mut deliveries = Vec::new();
        while let Some((client_id, wakeup)) = pending.pop_front() {
            match (self.clients.get(&client_id).and_then(Weak::upgrade), wakeup) {
                (Some(listener), wakeup) => deliveries.push((listener, wakeup)),
                (None, Wakeup::Granted { name, entry, .. }) => {
                    let mut further = Effects::new();
                    self.table.cancel(&CancelRequest { name, entry }, now, &mut further);
                    pending.extend(further);
                }
                (None, _) => {}
            }
        }
        deliveries
    }
}

impl Engine for MemoryEngine {
    fn capabilities(&self) -> Capabilities {
        let (reach, features) = (Reach::Process, Features::ALL);
        Capabilities { engine: "memory", reach, claim: None, has_replicas: false, features }
    }

    fn place(&self) -> String {
        format!("memory at {:p}", Arc::as_ptr(&self.store))
    }

    fn acquire(&self, request: AcquireRequest) -> Answer<Acquired> {
        self.perform(|table, now, effects| table.acquire(&request, self.client_id, now, effects))
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Answer<Vec<Result<Renewed, StoreError>>> {
        self.perform(|table, now, effects| {
            renewals.iter().map(|renewal| Ok(table.renew(renewal, now, effects))).collect()
        })
    }

    fn release(&self, request: ReleaseRequest) -> Answer<ReleaseOutcome> {
        self.perform(|table, now, effects| table.release(&request, now, effects))
    }

    fn cancel(&self, request: CancelRequest) -> Answer<()> {
        self.perform(|table, now, effects| table.cancel(&request, now, effects))
    }

    fn inspect(&self, name: LockName) -> Answer<LockInfo> {
        self.perform(|table, now, effects| table.inspect(&name, now, effects))
    }

    fn list(&self, request: ListRequest) -> Answer<Vec<LockInfo>> {
        self.perform(|table, now, effects| table.list(&request, now, effects))
    }

    fn force_release(&self, request: ForceRequest) -> Answer<ForceOutcome> {
        self.perform(|table, now, effects| table.force_release(&request, now, effects))
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        lock(&self.store).clients.insert(self.client_id, listener);
    }
}

impl Default for MemoryEngine {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for MemoryEngine {
    fn drop(&mut self) {
        lock(&self.store).clients.remove(&self.client_id);
    }
}

impl fmt::Debug for MemoryEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryEngine").field("client", &self.client_id).finish_non_exhaustive()
    }
}
