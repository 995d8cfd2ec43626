//! The fixture of a case: a store, its clients, and helpers.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::time::Duration;

#[cfg(feature = "redis")]
use tenure::engine::QuorumEngine;
use tenure::engine::{
    AcquireRequest, Acquired, CancelRequest, Engine, Features, Grant, ListRequest, Listener,
    MemoryEngine, Queueing, ReleaseOutcome, ReleaseRequest, Renewal, Renewed, Standing, Wakeup,
};
use tenure::{About, Entry, Fence, Kind, Lease, LockInfo, LockName, Owner, Shape, Tenure};

/// A store of its own for one case.
pub(crate) trait Fixture: Send + Sync {
    fn start() -> Self;

    /// Whether the developer runs the tests without it.
    fn is_left_out() -> bool {
        false
    }

    /// A new client of the store, as another process would be.
    fn engine(&self) -> Box<dyn Engine>;

    /// A new client with the driver.
    fn tenure(&self) -> Tenure;

    /// What its locks can do.
    fn features(&self) -> Features {
        Features::ALL
    }

    /// Waits until the store has this many clients left.
    async fn until_clients(&self, _count: usize) {}

    /// Waits until so many requests wait at every server: a majority, which an inspection asks, may be ahead of the others.
    async fn until_waiting_everywhere(&self, _name: &str, _count: usize) {}

    /// Whether other clients see how many entries an owner has: on a quorum its own client counts them.
    fn shows_entries_to_others(&self) -> bool {
        true
    }

    /// A client for single operations, without the driver.
    fn client(&self) -> Client {
        Client::new(self.engine())
    }
}

pub(crate) struct Memory(MemoryEngine);

impl Fixture for Memory {
    fn start() -> Self {
        Self(MemoryEngine::new())
    }

    fn engine(&self) -> Box<dyn Engine> {
        Box::new(self.0.another())
    }

    fn tenure(&self) -> Tenure {
        Tenure::builder().engine(self.0.another()).unwrap()
    }
}

/// A quorum of stores in this process.
#[cfg(feature = "redis")]
pub(crate) struct MemoryQuorum(Vec<MemoryEngine>);

#[cfg(feature = "redis")]
impl MemoryQuorum {
    fn connect(&self) -> QuorumEngine {
        let nodes = self.0.iter().map(|it| Box::new(it.another()) as Box<dyn Engine>).collect();
        QuorumEngine::over(nodes, Duration::from_secs(24 * 3600)).unwrap()
    }
}

#[cfg(feature = "redis")]
impl Fixture for MemoryQuorum {
    fn start() -> Self {
        Self((0..5).map(|_| MemoryEngine::new()).collect())
    }

    fn shows_entries_to_others(&self) -> bool {
        false
    }

    fn engine(&self) -> Box<dyn Engine> {
        Box::new(self.connect())
    }

    fn tenure(&self) -> Tenure {
        Tenure::builder().engine(self.connect()).unwrap()
    }
}

tokio::task_local! {
    static FEATURES: Features;
}

/// What the locks of the store of this case can do.
pub(crate) fn features() -> Features {
    FEATURES.with(|features| *features)
}

/// Runs a case on a store with these features.
pub(crate) async fn with_features(features: Features, case: impl Future<Output = ()>) {
    FEATURES.scope(features, case).await;
}

/// Whether a fence is that of a later grant of a lock of this kind (I4), or there are none.
pub(crate) fn is_later(kind: Kind, fence: Fence, than: Fence) -> bool {
    match features().has_fences_of(kind) {
        true => fence > than,
        false => (fence, than) == (Fence::NONE, Fence::NONE),
    }
}

/// Runs a case, which must end well within the time of a whole test run.
pub(crate) fn run(case: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let limit = Duration::from_secs(60);
        tokio::time::timeout(limit, case).await.expect("the case hangs");
    });
}

/// A pause of a case that waits for time alone to pass.
#[expect(clippy::disallowed_methods, reason = "tests wait for leases to end")]
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Polls a future once, with a waker that does nothing.
pub(crate) async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// How long a case waits for an event that does not happen. It is enough for the store's answer on a busy
/// machine, too: without an answer the outcome is unknown, not a timeout.
pub(crate) const IN_VAIN: Duration = Duration::from_secs(1);

/// A lease that the watchdog must renew. A third of it is enough for one renewal on a busy machine, too.
pub(crate) const KEPT: Duration = Duration::from_millis(1_500);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn lease(millis: u64) -> Lease {
    Lease::new(ms(millis)).unwrap()
}

pub(crate) fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

/// The single entry of a new owner.
pub(crate) fn someone() -> Entry {
    Entry { owner: Owner::new(), number: 0 }
}

/// A lease long enough not to matter.
pub(crate) fn long() -> Lease {
    lease(60_000)
}

/// A request for a mutex with a long lease, without waiting.
pub(crate) fn request(lock: &str, entry: Entry) -> AcquireRequest {
    AcquireRequest {
        name: name(lock),
        entry,
        shape: Shape::mutex(),
        lease: long(),
        about: Arc::new(About::this_process()),
        queue: None,
        proposal: None,
    }
}

pub(crate) const QUEUEING: Queueing =
    Queueing { heartbeat: Duration::from_secs(60), claim: Duration::from_secs(60), fences: 1 };

pub(crate) fn waiting(lock: &str, entry: Entry) -> AcquireRequest {
    AcquireRequest { queue: Some(QUEUEING), ..request(lock, entry) }
}

pub(crate) fn semaphore(limit: u32, permits: u32) -> Shape {
    Shape::new(Kind::Semaphore, limit, permits).unwrap()
}

/// A client without the driver: it sends single operations and receives wake-ups.
pub(crate) struct Client {
    engine: Box<dyn Engine>,
    inbox: Arc<Inbox>,
}

#[derive(Default)]
struct Inbox {
    wakeups: Mutex<Vec<Wakeup>>,
    changed: tokio::sync::Notify,
}

impl Listener for Inbox {
    fn wake(&self, wakeup: Wakeup) {
        self.wakeups.lock().unwrap().push(wakeup);
        self.changed.notify_one();
    }
}

impl Client {
    fn new(engine: Box<dyn Engine>) -> Self {
        let inbox = Arc::<Inbox>::default();
        let listener = Arc::downgrade(&inbox);
        engine.listen(listener as Weak<dyn Listener>);
        Self { engine, inbox }
    }

    pub(crate) async fn acquire(&self, request: AcquireRequest) -> Acquired {
        self.engine.acquire(request).await.unwrap()
    }

    /// Acquires a lock that must be free.
    pub(crate) async fn take(&self, lock: &str, entry: Entry) -> Grant {
        granted(self.acquire(request(lock, entry)).await)
    }

    /// Joins the queue of a lock that must not be free.
    pub(crate) async fn queue(&self, lock: &str, entry: Entry) -> Standing {
        queued(self.acquire(waiting(lock, entry)).await)
    }

    pub(crate) async fn renew(&self, lock: &str, entry: Entry, lease: Lease) -> Renewed {
        let renewals = vec![Renewal { name: name(lock), entry, lease, commit: None }];
        self.renew_all(renewals).await[0]
    }

    pub(crate) async fn renew_all(&self, renewals: Vec<Renewal>) -> Vec<Renewed> {
        let renewed = self.engine.renew(renewals).await.unwrap();
        renewed.into_iter().map(Result::unwrap).collect()
    }

    pub(crate) async fn release(&self, lock: &str, entry: Entry) -> ReleaseOutcome {
        self.release_after(lock, entry, Duration::ZERO).await
    }

    pub(crate) async fn release_after(
        &self,
        lock: &str,
        entry: Entry,
        linger: Duration,
    ) -> ReleaseOutcome {
        let request = ReleaseRequest { linger, ..ReleaseRequest::new(name(lock), entry) };
        self.engine.release(request).await.unwrap()
    }

    pub(crate) async fn cancel(&self, lock: &str, entry: Entry) {
        self.engine.cancel(CancelRequest { name: name(lock), entry }).await.unwrap();
    }

    pub(crate) async fn inspect(&self, lock: &str) -> LockInfo {
        self.engine.inspect(name(lock)).await.unwrap()
    }

    pub(crate) async fn list(&self, prefix: &str, limit: usize) -> Vec<LockInfo> {
        let request = ListRequest { prefix: prefix.to_owned(), limit };
        self.engine.list(request).await.unwrap()
    }

    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// The next wake-up.
    pub(crate) async fn next_wakeup(&self) -> Wakeup {
        loop {
            if let Some(wakeup) = self.try_next_wakeup() {
                return wakeup;
            }
            self.inbox.changed.notified().await;
        }
    }

    /// A wake-up that has arrived already.
    pub(crate) fn try_next_wakeup(&self) -> Option<Wakeup> {
        let mut wakeups = self.inbox.wakeups.lock().unwrap();
        (!wakeups.is_empty()).then(|| wakeups.remove(0))
    }

    /// The next wake-up, which must be a grant. "Missed" may come at any time, and is skipped.
    pub(crate) async fn next_grant(&self) -> (Entry, Grant) {
        loop {
            match self.next_wakeup().await {
                Wakeup::Granted { entry, grant, .. } => return (entry, grant),
                Wakeup::Missed | Wakeup::MissedIn(_) => {}
                other => panic!("a grant was expected, not {other:?}"),
            }
        }
    }
}

pub(crate) fn granted(acquired: Acquired) -> Grant {
    match acquired {
        Acquired::Granted(grant) => grant,
        other => panic!("a grant was expected, not {other:?}"),
    }
}

pub(crate) fn queued(acquired: Acquired) -> Standing {
    match acquired {
        Acquired::Queued(standing) => standing,
        other => panic!("an entry in the queue was expected, not {other:?}"),
    }
}

pub(crate) const RELEASED: ReleaseOutcome = ReleaseOutcome::Released { remaining: 0 };
