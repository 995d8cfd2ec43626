//! A quorum engine whose threads can be stopped while they send requests.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;

use tenure::engine::{
    AcquireRequest, Acquired, Answer, CancelRequest, Capabilities, Engine, ForceOutcome,
    ForceRequest, ListRequest, Listener, QuorumEngine, RedisEngine, ReleaseOutcome, ReleaseRequest,
    Renewal, Renewed,
};
use tenure::{LockInfo, LockName, StoreError};
use tenure_testkit::Server;

use super::fixture::server;

/// Three servers, and an engine with a gate.
pub(crate) async fn gated() -> (Vec<Server>, Arc<Gate>, Arc<QuorumEngine>) {
    let servers: Vec<_> = (0..3).map(|_| server()).collect();
    let gate = Arc::new(Gate::default());
    let mut engines: Vec<Box<dyn Engine>> = Vec::new();
    for server in &servers {
        let inner = RedisEngine::connect(&server.url()).await.unwrap();
        engines.push(Box::new(Gated { inner, gate: gate.clone() }));
    }
    let engine = Arc::new(QuorumEngine::over(engines, Duration::from_secs(10)).unwrap());
    (servers, gate, engine)
}

/// Threads that send requests wait while it is shut.
#[derive(Default)]
pub(crate) struct Gate {
    is_shut: Mutex<bool>,
    is_awaited: AtomicBool,
    opened: Condvar,
}

impl Gate {
    pub(crate) fn shut(&self, is_shut: bool) {
        *self.is_shut.lock().unwrap() = is_shut;
        self.opened.notify_all();
    }

    /// Whether a thread waits.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::SeqCst)
    }

    fn pass(&self) {
        let mut is_shut = self.is_shut.lock().unwrap();
        while *is_shut {
            self.is_awaited.store(true, Ordering::SeqCst);
            is_shut = self.opened.wait(is_shut).unwrap();
        }
    }
}

struct Gated {
    inner: RedisEngine,
    gate: Arc<Gate>,
}

impl Engine for Gated {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn place(&self) -> String {
        self.inner.place()
    }

    fn acquire(&self, request: AcquireRequest) -> Answer<Acquired> {
        self.inner.acquire(request)
    }

    fn acquire_all(&self, requests: Vec<AcquireRequest>) -> Vec<Answer<Acquired>> {
        self.gate.pass();
        self.inner.acquire_all(requests)
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Answer<Vec<Result<Renewed, StoreError>>> {
        self.inner.renew(renewals)
    }

    fn release(&self, request: ReleaseRequest) -> Answer<ReleaseOutcome> {
        self.inner.release(request)
    }

    fn cancel(&self, request: CancelRequest) -> Answer<()> {
        self.inner.cancel(request)
    }

    fn inspect(&self, name: LockName) -> Answer<LockInfo> {
        self.inner.inspect(name)
    }

    fn list(&self, request: ListRequest) -> Answer<Vec<LockInfo>> {
        self.inner.list(request)
    }

    fn force_release(&self, request: ForceRequest) -> Answer<ForceOutcome> {
        self.inner.force_release(request)
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        self.inner.listen(listener);
    }
}
