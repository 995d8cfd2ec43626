//! Calls that block the caller's thread, as in a store that is a file: the first call may be performed last.

use std::sync::{Arc, Condvar, Mutex, Weak};

use tenure::engine::{
    AcquireRequest, Acquired, Answer, CancelRequest, Capabilities, Engine, ForceOutcome,
    ForceRequest, ListRequest, Listener, MemoryEngine, ReleaseOutcome, ReleaseRequest, Renewal,
    Renewed, Wakeup,
};
use tenure::{LockInfo, LockName, Released, Tenure};

use super::fixture::{LONG, until_free, until_waiting};
use crate::common::{Kind, ms, pass};

/// Blocks calls of some kinds.
#[derive(Default)]
struct Barrier {
    closed: Mutex<Vec<Kind>>,
    opened: Condvar,
    /// The kinds of the calls under way.
    under_way: Mutex<Vec<Kind>>,
}

impl Barrier {
    fn close(&self, kind: Kind) {
        self.closed.lock().unwrap().push(kind);
    }

    fn open(&self, kind: Kind) {
        self.closed.lock().unwrap().retain(|closed| *closed != kind);
        self.opened.notify_all();
    }

    fn pass(&self, kind: Kind) {
        self.under_way.lock().unwrap().push(kind);
        let mut closed = self.closed.lock().unwrap();
        while closed.contains(&kind) {
            closed = self.opened.wait(closed).unwrap();
        }
        drop(closed);
        let mut under_way = self.under_way.lock().unwrap();
        let at = under_way.iter().position(|it| *it == kind).unwrap();
        under_way.swap_remove(at);
    }

    /// The driver may have asked as well: after a pause of the machine it does.
    async fn until_one_waits(&self, kind: Kind) {
        while !self.under_way.lock().unwrap().contains(&kind) {
            pass(ms(1)).await;
        }
    }

    async fn until_all_have_passed(&self, kind: Kind) {
        while self.under_way.lock().unwrap().contains(&kind) {
            pass(ms(1)).await;
        }
    }
}

/// A client whose calls block.
struct Blocking {
    engine: MemoryEngine,
    barrier: Arc<Barrier>,
    listener: Arc<Mutex<Option<Weak<dyn Listener>>>>,
}

impl Engine for Blocking {
    fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    fn acquire(&self, request: AcquireRequest) -> Answer<Acquired> {
        self.barrier.pass(Kind::Acquire);
        self.engine.acquire(request)
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Answer<Vec<Result<Renewed, tenure::StoreError>>> {
        self.engine.renew(renewals)
    }

    fn release(&self, request: ReleaseRequest) -> Answer<ReleaseOutcome> {
        self.barrier.pass(Kind::Release);
        self.engine.release(request)
    }

    fn cancel(&self, request: CancelRequest) -> Answer<()> {
        self.engine.cancel(request)
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

    fn listen(&self, listener: Weak<dyn Listener>) {
        *self.listener.lock().unwrap() = Some(listener.clone());
        self.engine.listen(listener);
    }
}

/// A waiter of a client whose calls block, with a question of its wait group that blocks now, and the lock
/// that the waiter got meanwhile.
async fn held_with_a_question_under_way() -> (Arc<Barrier>, Tenure, Tenure, tenure::Guard) {
    let store = MemoryEngine::new();
    let (barrier, listener) = (Arc::<Barrier>::default(), Arc::default());
    let engine = store.another();
    let engine = Blocking { engine, barrier: barrier.clone(), listener: Arc::clone(&listener) };
    let blocking = Tenure::builder().engine(engine).unwrap();
    let healthy = Tenure::builder().engine(store.another()).unwrap();
    let held = healthy.lock("x").acquire().await.unwrap();
    let lock = blocking.lock("x");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    until_waiting(&healthy, "x", 1).await;
    barrier.close(Kind::Acquire);
    let listener = listener.lock().unwrap().clone().unwrap().upgrade().unwrap();
    std::thread::spawn(move || listener.wake(Wakeup::Missed));
    barrier.until_one_waits(Kind::Acquire).await;
    drop(held);
    let guard = tokio::time::timeout(LONG, waiter).await.unwrap().unwrap().unwrap();
    (barrier, blocking, healthy, guard)
}

/// I6, I8: a question of the wait group is in flight when the lock is released. Its answer arrives while the
/// release is in flight, too: the cancel does not overtake the release, which reports that the lock was held
/// until now.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_release_is_not_overtaken_by_what_undoes_a_question() {
    let (barrier, blocking, healthy, guard) = held_with_a_question_under_way().await;
    barrier.close(Kind::Release);
    let release = tokio::spawn(guard.release());
    barrier.until_one_waits(Kind::Release).await;
    barrier.open(Kind::Acquire);
    barrier.until_all_have_passed(Kind::Acquire).await;
    // Long enough for a cancel that does not wait.
    pass(ms(50)).await;
    barrier.open(Kind::Release);
    assert_eq!(release.await.unwrap().unwrap(), Released::Now);
    assert!(blocking.flush(LONG).await);
    until_free(&healthy, "x").await;
}

/// I5, I8: the question is performed after the release, and takes the lock without a task. That is undone.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_question_overtaken_by_a_release_is_undone() {
    let (barrier, blocking, healthy, guard) = held_with_a_question_under_way().await;
    assert_eq!(guard.release().await.unwrap(), Released::Now);
    barrier.open(Kind::Acquire);
    barrier.until_all_have_passed(Kind::Acquire).await;
    assert!(blocking.flush(LONG).await);
    until_free(&healthy, "x").await;
}
