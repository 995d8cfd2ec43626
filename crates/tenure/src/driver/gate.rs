//! The engine of a driver, which a forked child cannot reach: there it would write into its parent's
//! sockets, and wait for mutexes whose holders are threads that it does not have.

use std::sync::Weak;
use std::time::Duration;

use crate::core::name::LockName;
use crate::engine::{
    AcquireRequest, Acquired, Answer, CancelRequest, Capabilities, Engine, Finding, ForceOutcome,
    ForceRequest, Health, ListRequest, Listener, ReleaseOutcome, ReleaseRequest, Renewal, Renewed,
    Replicas, Topology,
};
use crate::error::StoreError;
use crate::fork::Process;
use crate::info::LockInfo;
use crate::owner::Entry;

/// The engine, in the process that made it.
pub(crate) struct Gate {
    // None only while it is dropped in a forked child.
    engine: Option<Box<dyn Engine>>,
    process: Process,
}

impl Gate {
    pub(super) fn new(engine: Box<dyn Engine>, process: Process) -> Self {
        Self { engine: Some(engine), process }
    }

    fn engine(&self) -> &dyn Engine {
        self.engine.as_deref().expect("the engine is there until the gate is dropped")
    }

    fn ask<T>(&self, operation: impl FnOnce(&dyn Engine) -> Answer<T>) -> Answer<T> {
        match self.check() {
            Ok(()) => operation(self.engine()),
            Err(error) => Answer::now(Err(error)),
        }
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.process.is_left() { Err(StoreError::forked()) } else { Ok(()) }
    }
}

impl Engine for Gate {
    fn capabilities(&self) -> Capabilities {
        self.engine().capabilities()
    }

    fn acquire(&self, request: AcquireRequest) -> Answer<Acquired> {
        self.ask(|engine| engine.acquire(request))
    }

    fn acquire_all(&self, requests: Vec<AcquireRequest>) -> Vec<Answer<Acquired>> {
        match self.check() {
            Ok(()) => self.engine().acquire_all(requests),
            Err(error) => requests.iter().map(|_| Answer::now(Err(error.clone()))).collect(),
        }
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Answer<Vec<Result<Renewed, StoreError>>> {
        self.ask(|engine| engine.renew(renewals))
    }

    fn renew_replicated(
        &self,
        renewals: Vec<Renewal>,
        replicas: Replicas,
    ) -> Answer<Vec<Result<Renewed, StoreError>>> {
        self.ask(|engine| engine.renew_replicated(renewals, replicas))
    }

    fn server_of(&self, name: &LockName, entry: Entry) -> u64 {
        self.check().map_or(0, |()| self.engine().server_of(name, entry))
    }

    fn release(&self, request: ReleaseRequest) -> Answer<ReleaseOutcome> {
        self.ask(|engine| engine.release(request))
    }

    fn cancel(&self, request: CancelRequest) -> Answer<()> {
        self.ask(|engine| engine.cancel(request))
    }

    fn entry_to_detach(&self, name: &LockName, entry: Entry) -> Answer<Entry> {
        self.ask(|engine| engine.entry_to_detach(name, entry))
    }

    fn detach(&self, name: &LockName, entry: Entry) -> Result<(), StoreError> {
        self.check()?;
        self.engine().detach(name, entry)
    }

    fn share_with_children(&self) -> Result<bool, StoreError> {
        self.check()?;
        self.engine().share_with_children()
    }

    fn inspect(&self, name: LockName) -> Answer<LockInfo> {
        self.ask(|engine| engine.inspect(name))
    }

    fn list(&self, request: ListRequest) -> Answer<Vec<LockInfo>> {
        self.ask(|engine| engine.list(request))
    }

    fn force_release(&self, request: ForceRequest) -> Answer<ForceOutcome> {
        self.ask(|engine| engine.force_release(request))
    }

    fn place(&self) -> String {
        self.engine().place()
    }

    fn health(&self) -> Health {
        match self.check() {
            Ok(()) => self.engine().health(),
            Err(error) => Health::down("process", &error),
        }
    }

    fn checkup(&self) -> Answer<Vec<Finding>> {
        self.ask(|engine| engine.checkup())
    }

    fn topology(&self) -> Answer<Topology> {
        self.ask(|engine| engine.topology())
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        self.engine().listen(listener);
    }

    fn round_trip(&self) -> Duration {
        self.check().map_or(Duration::ZERO, |()| self.engine().round_trip())
    }

    fn await_wakeup(&self) {
        if self.check().is_ok() {
            self.engine().await_wakeup();
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // A child leaves its copy as it is: closing it would unregister its parent from the store.
        if self.process.is_left() {
            std::mem::forget(self.engine.take());
        }
    }
}
