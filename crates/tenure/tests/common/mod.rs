//! A store with faults: the memory engine, with injected losses of requests, replies and messages. The
//! operations are real; only the transport is broken.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use tenure::engine::{
    AcquireRequest, Acquired, Answer, CancelRequest, Capabilities, Engine, ForceOutcome,
    ForceRequest, ListRequest, Listener, MemoryEngine, ReleaseOutcome, ReleaseRequest, Renewal,
    Renewed, Wakeup,
};
use tenure::{LockInfo, LockName, StoreError, Tenure};
use tokio::sync::{oneshot, watch};

/// What happens to an operation in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It arrives, and the answer is received.
    None,
    /// It never arrives, and the client knows.
    Refused,
    /// It is performed, and the answer is lost.
    ReplyLost,
    /// It is lost, and the client does not know.
    RequestLost,
}

/// Which operations a fault is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Acquire,
    Renew,
    Release,
    Cancel,
}

/// Where an operation is delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Before the store.
    Request,
    /// After the store.
    Reply,
}

/// The injected faults, which a test changes as it runs.
#[derive(Default)]
pub(crate) struct Faults {
    delayed: watch::Sender<Vec<(Kind, Stage)>>,
    /// The last operation on each name, until it has arrived: the next one follows it.
    in_flight: Mutex<HashMap<LockName, oneshot::Receiver<()>>>,
    /// How many operations are delayed now.
    pub(crate) waiting: AtomicUsize,
    next: Mutex<VecDeque<(Kind, Fault)>>,
    always: Mutex<Vec<(Kind, Fault)>>,
    /// Wake-ups do not arrive.
    pub(crate) loses_wakeups: AtomicBool,
    /// How often an answer must be polled before it is ready.
    pub(crate) polls: AtomicUsize,
    /// How far the store's clock seems to have jumped in the grants it sends, in seconds.
    pub(crate) jump: AtomicUsize,
    pub(crate) acquires: AtomicUsize,
    pub(crate) renewals: AtomicUsize,
    listener: Mutex<Option<Weak<dyn Listener>>>,
}

impl Faults {
    /// Injects this fault into the next operation of this kind.
    pub(crate) fn once(&self, kind: Kind, fault: Fault) {
        self.next.lock().unwrap().push_back((kind, fault));
    }

    /// Injects this fault into every operation of this kind, until it is cleared.
    pub(crate) fn always(&self, kind: Kind, fault: Fault) {
        self.always.lock().unwrap().push((kind, fault));
    }

    /// Makes the store unreachable.
    pub(crate) fn cut(&self, fault: Fault) {
        for kind in [Kind::Acquire, Kind::Renew, Kind::Release, Kind::Cancel] {
            self.always(kind, fault);
        }
    }

    /// Delays operations of this kind, until the faults are cleared.
    pub(crate) fn delay(&self, kind: Kind, stage: Stage) {
        self.delayed.send_modify(|delayed| delayed.push((kind, stage)));
    }

    async fn travel(&self, kind: Kind, stage: Stage) {
        let mut delayed = self.delayed.subscribe();
        let is_clear = |delayed: &Vec<(Kind, Stage)>| !delayed.contains(&(kind, stage));
        // An operation that is not delayed is not counted: a test would mistake it for one that is.
        if is_clear(&delayed.borrow()) {
            return;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _ = delayed.wait_for(is_clear).await;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Clears all faults.
    pub(crate) fn clear(&self) {
        self.delayed.send_replace(Vec::new());
        self.next.lock().unwrap().clear();
        self.always.lock().unwrap().clear();
        self.loses_wakeups.store(false, Ordering::SeqCst);
    }

    /// Sends the driver a wake-up, as an engine does.
    pub(crate) fn wake(&self, wakeup: Wakeup) {
        let listener = self.listener.lock().unwrap().clone();
        listener.and_then(|it| it.upgrade()).unwrap().wake(wakeup);
    }

    /// Notifies the driver that wake-ups may have been missed.
    pub(crate) fn notify_missed(&self) {
        self.wake(Wakeup::Missed);
    }

    fn fault(&self, kind: Kind) -> Fault {
        let mut next = self.next.lock().unwrap();
        let place = next.iter().position(|(of, _)| *of == kind);
        if let Some((_, fault)) = place.and_then(|place| next.remove(place)) {
            return fault;
        }
        let always = self.always.lock().unwrap();
        always.iter().find(|(of, _)| *of == kind).map_or(Fault::None, |(_, fault)| *fault)
    }
}

/// A client of a store with faults.
pub(crate) struct Faulty {
    engine: Arc<MemoryEngine>,
    faults: Arc<Faults>,
    relay: Arc<Relay>,
}

struct Relay(Arc<Faults>);

impl Listener for Relay {
    fn wake(&self, wakeup: Wakeup) {
        if self.0.loses_wakeups.load(Ordering::SeqCst) {
            return;
        }
        let wakeup = match wakeup {
            Wakeup::Granted { name, entry, mut grant } => {
                let jump = self.0.jump.load(Ordering::SeqCst) as u64;
                grant.at = grant.at + Duration::from_secs(jump);
                Wakeup::Granted { name, entry, grant }
            }
            other => other,
        };
        let listener = self.0.listener.lock().unwrap().clone();
        if let Some(listener) = listener.and_then(|listener| listener.upgrade()) {
            listener.wake(wakeup);
        }
    }
}

impl Faulty {
    pub(crate) fn new(engine: MemoryEngine) -> Self {
        let faults = Arc::<Faults>::default();
        let relay = Arc::new(Relay(faults.clone()));
        Self { engine: Arc::new(engine), faults, relay }
    }

    pub(crate) fn faults(&self) -> Arc<Faults> {
        self.faults.clone()
    }

    /// In order (rule 13): an operation arrives after the previous one, unless that is lost.
    fn answer_in_order<T: Send + Unpin + 'static>(
        &self,
        kind: Kind,
        name: LockName,
        operation: impl FnOnce(&MemoryEngine) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let (arrived, arrival) = oneshot::channel::<()>();
        let before = self.faults.in_flight.lock().unwrap().insert(name, arrival);
        let answer = self.answer(kind, move |engine| {
            let answer = operation(engine);
            drop(arrived);
            answer
        });
        let faults = self.faults.clone();
        Answer::later(async move {
            if let Some(before) = before {
                faults.waiting.fetch_add(1, Ordering::SeqCst);
                let _ = before.await;
                faults.waiting.fetch_sub(1, Ordering::SeqCst);
            }
            answer.await
        })
    }

    fn answer<T: Send + Unpin + 'static>(
        &self,
        kind: Kind,
        operation: impl FnOnce(&MemoryEngine) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let (engine, faults) = (self.engine.clone(), self.faults.clone());
        Answer::later(async move {
            // Half of the polls before it is performed, half after, as on a network.
            let polls = faults.polls.load(Ordering::SeqCst);
            Yield(polls / 2).await;
            faults.travel(kind, Stage::Request).await;
            let result = match faults.fault(kind) {
                Fault::None => operation(&engine).await,
                Fault::Refused => Err(StoreError::refused("connection refused")),
                Fault::RequestLost => Err(StoreError::unknown("no reply")),
                Fault::ReplyLost => {
                    let _ = operation(&engine).await;
                    Err(StoreError::unknown("no reply"))
                }
            };
            faults.travel(kind, Stage::Reply).await;
            Yield(polls - polls / 2).await;
            result
        })
    }
}

/// Is pending for a number of polls.
struct Yield(usize);

impl Future for Yield {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0 == 0 {
            return Poll::Ready(());
        }
        self.0 -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Engine for Faulty {
    fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    fn acquire(&self, request: AcquireRequest) -> Answer<Acquired> {
        self.faults.acquires.fetch_add(1, Ordering::SeqCst);
        let name = request.name.clone();
        self.answer_in_order(Kind::Acquire, name, move |engine| engine.acquire(request))
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Answer<Vec<Result<Renewed, StoreError>>> {
        self.faults.renewals.fetch_add(renewals.len(), Ordering::SeqCst);
        self.answer(Kind::Renew, move |engine| engine.renew(renewals))
    }

    fn release(&self, request: ReleaseRequest) -> Answer<ReleaseOutcome> {
        let name = request.name.clone();
        self.answer_in_order(Kind::Release, name, move |engine| engine.release(request))
    }

    fn cancel(&self, request: CancelRequest) -> Answer<()> {
        let name = request.name.clone();
        self.answer_in_order(Kind::Cancel, name, move |engine| engine.cancel(request))
    }

    fn inspect(&self, name: LockName) -> Answer<LockInfo> {
        self.engine.inspect(name)
    }

    fn list(&self, request: ListRequest) -> Answer<Vec<LockInfo>> {
        self.engine.list(request)
    }

    fn force_release(&self, request: ForceRequest) -> Answer<ForceOutcome> {
        self.engine.force_release(request)
    }

    fn place(&self) -> String {
        self.engine.place()
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        *self.faults.listener.lock().unwrap() = Some(listener);
        let relay: Weak<Relay> = Arc::downgrade(&self.relay);
        self.engine.listen(relay);
    }
}

/// A client with faults and one without, of the same store.
pub(crate) fn pair() -> (Tenure, Arc<Faults>, Tenure) {
    let store = MemoryEngine::new();
    let engine = Faulty::new(store.another());
    let faults = engine.faults();
    let patience = Duration::from_millis(200);
    let faulty = Tenure::builder().patience(patience).engine(engine).unwrap();
    let healthy = Tenure::builder().engine(store.another()).unwrap();
    (faulty, faults, healthy)
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[expect(clippy::disallowed_methods, reason = "tests wait for leases to end")]
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
