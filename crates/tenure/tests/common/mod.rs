//! A store with faults: the memory engine, with replies, requests and messages going astray as
//! told. What it does, it does for real; only the way to it and back is broken.

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

/// What happens to an operation on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It arrives, and the answer comes back.
    None,
    /// It never arrives, and that is known.
    Refused,
    /// It is done, and the answer is lost.
    ReplyLost,
    /// It is lost, and that is not known.
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

/// Where an operation is held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// On its way to the store.
    Request,
    /// On its way back.
    Reply,
}

/// What goes wrong, changed by the test as it runs.
#[derive(Default)]
pub(crate) struct Weather {
    held_up: watch::Sender<Vec<(Kind, Stage)>>,
    /// The last operation on each name, until it has arrived: the next comes after it.
    on_the_way: Mutex<HashMap<LockName, oneshot::Receiver<()>>>,
    /// How many operations are held up now.
    pub(crate) waiting: AtomicUsize,
    next: Mutex<VecDeque<(Kind, Fault)>>,
    always: Mutex<Vec<(Kind, Fault)>>,
    /// Wake-ups do not arrive.
    pub(crate) is_deaf: AtomicBool,
    /// How often an answer must be polled before it is there.
    pub(crate) polls: AtomicUsize,
    /// How far the store's clock seems to have jumped in the grants it sends, in seconds.
    pub(crate) jump: AtomicUsize,
    pub(crate) acquires: AtomicUsize,
    pub(crate) renewals: AtomicUsize,
    listener: Mutex<Option<Weak<dyn Listener>>>,
}

impl Weather {
    /// The next operation of this kind meets this fault.
    pub(crate) fn once(&self, kind: Kind, fault: Fault) {
        self.next.lock().unwrap().push_back((kind, fault));
    }

    /// Every operation of this kind meets this fault, until it is cleared.
    pub(crate) fn always(&self, kind: Kind, fault: Fault) {
        self.always.lock().unwrap().push((kind, fault));
    }

    /// Nothing can be reached.
    pub(crate) fn cut(&self, fault: Fault) {
        for kind in [Kind::Acquire, Kind::Renew, Kind::Release, Kind::Cancel] {
            self.always(kind, fault);
        }
    }

    /// Operations of this kind are held up, until the way is clear.
    pub(crate) fn hold_up(&self, kind: Kind, stage: Stage) {
        self.held_up.send_modify(|held_up| held_up.push((kind, stage)));
    }

    async fn travel(&self, kind: Kind, stage: Stage) {
        let mut held_up = self.held_up.subscribe();
        let is_clear = |held_up: &Vec<(Kind, Stage)>| !held_up.contains(&(kind, stage));
        // One that only passes is not counted: a test would take it for one that is held up.
        if is_clear(&held_up.borrow()) {
            return;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _ = held_up.wait_for(is_clear).await;
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// All is well again.
    pub(crate) fn clear(&self) {
        self.held_up.send_replace(Vec::new());
        self.next.lock().unwrap().clear();
        self.always.lock().unwrap().clear();
        self.is_deaf.store(false, Ordering::SeqCst);
    }

    /// Tells the driver that wake-ups may have been missed.
    pub(crate) fn tell_missed(&self) {
        let listener = self.listener.lock().unwrap().clone();
        listener.and_then(|it| it.upgrade()).unwrap().wake(Wakeup::Missed);
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

/// A client of a store behind bad weather.
pub(crate) struct Faulty {
    engine: Arc<MemoryEngine>,
    weather: Arc<Weather>,
    ear: Arc<Ear>,
}

struct Ear(Arc<Weather>);

impl Listener for Ear {
    fn wake(&self, wakeup: Wakeup) {
        if self.0.is_deaf.load(Ordering::SeqCst) {
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
        let weather = Arc::<Weather>::default();
        let ear = Arc::new(Ear(weather.clone()));
        Self { engine: Arc::new(engine), weather, ear }
    }

    pub(crate) fn weather(&self) -> Arc<Weather> {
        self.weather.clone()
    }

    /// In order (rule 13): an operation arrives after the one before it, unless that never will.
    fn answer_in_order<T: Send + Unpin + 'static>(
        &self,
        kind: Kind,
        name: LockName,
        operation: impl FnOnce(&MemoryEngine) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let (arrived, arrival) = oneshot::channel::<()>();
        let before = self.weather.on_the_way.lock().unwrap().insert(name, arrival);
        let answer = self.answer(kind, move |engine| {
            let answer = operation(engine);
            drop(arrived);
            answer
        });
        let weather = self.weather.clone();
        Answer::later(async move {
            if let Some(before) = before {
                weather.waiting.fetch_add(1, Ordering::SeqCst);
                let _ = before.await;
                weather.waiting.fetch_sub(1, Ordering::SeqCst);
            }
            answer.await
        })
    }

    fn answer<T: Send + Unpin + 'static>(
        &self,
        kind: Kind,
        operation: impl FnOnce(&MemoryEngine) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let (engine, weather) = (self.engine.clone(), self.weather.clone());
        Answer::later(async move {
            // Half of the polls before it is done, half after, as on a network.
            let polls = weather.polls.load(Ordering::SeqCst);
            Yield(polls / 2).await;
            weather.travel(kind, Stage::Request).await;
            let result = match weather.fault(kind) {
                Fault::None => operation(&engine).await,
                Fault::Refused => Err(StoreError::refused("connection refused")),
                Fault::RequestLost => Err(StoreError::unknown("no reply")),
                Fault::ReplyLost => {
                    let _ = operation(&engine).await;
                    Err(StoreError::unknown("no reply"))
                }
            };
            weather.travel(kind, Stage::Reply).await;
            Yield(polls - polls / 2).await;
            result
        })
    }
}

/// Is pending so many times.
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
        self.weather.acquires.fetch_add(1, Ordering::SeqCst);
        let name = request.name.clone();
        self.answer_in_order(Kind::Acquire, name, move |engine| engine.acquire(request))
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Answer<Vec<Result<Renewed, StoreError>>> {
        self.weather.renewals.fetch_add(renewals.len(), Ordering::SeqCst);
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
        *self.weather.listener.lock().unwrap() = Some(listener);
        let ear: Weak<Ear> = Arc::downgrade(&self.ear);
        self.engine.listen(ear);
    }
}

/// A client in bad weather, and one in good weather, of the same store.
pub(crate) fn pair() -> (Tenure, Arc<Weather>, Tenure) {
    let store = MemoryEngine::new();
    let faulty = Faulty::new(store.another());
    let weather = faulty.weather();
    let patience = Duration::from_millis(200);
    let troubled = Tenure::builder().patience(patience).engine(faulty).unwrap();
    let calm = Tenure::builder().engine(store.another()).unwrap();
    (troubled, weather, calm)
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[expect(clippy::disallowed_methods, reason = "tests wait for leases to end")]
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
