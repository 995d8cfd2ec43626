//! Panics: in foreign code they have no other effect, and a panic that ends the driver is reported to all.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tenure::engine::{
    AcquireRequest, Acquired, Answer, CancelRequest, Capabilities, Engine, ForceOutcome,
    ForceRequest, ListRequest, Listener, MemoryEngine, ReleaseOutcome, ReleaseRequest, Renewal,
    Renewed,
};
use tenure::{Error, LockInfo, LockName, Tenure, WhyLost};

use super::fixture::{LONG, until_waiting};
use crate::common::{ms, pass};

/// Panics when it is woken, and when it is dropped after that.
#[derive(Default)]
struct Bad {
    was_woken: AtomicBool,
}

impl Wake for Bad {
    fn wake(self: Arc<Self>) {
        self.was_woken.store(true, Ordering::SeqCst);
        panic!("a waker panics, as this test wants it to");
    }
}

impl Drop for Bad {
    fn drop(&mut self) {
        if self.was_woken.load(Ordering::SeqCst) && !std::thread::panicking() {
            panic!("a waker panics when it is dropped, as this test wants it to");
        }
    }
}

async fn until_woken(bad: &Bad) {
    while !bad.was_woken.load(Ordering::SeqCst) {
        pass(ms(1)).await;
    }
}

/// I7, I9: the waker of one future panics on the driver's thread, where a timer wakes it. All other tasks are
/// served as before.
#[tokio::test]
async fn a_waker_that_panics_at_its_time_harms_no_other_task() {
    let tenure = Tenure::memory().unwrap();
    let held = tenure.lock("x").fixed_lease(ms(600)).acquire().await.unwrap();
    let bad = Arc::new(Bad::default());
    let lock = tenure.lock("x");
    let mut waiting = Box::pin(lock.acquire_within(ms(30)));
    let waker = Waker::from(bad.clone());
    assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    std::mem::forget(waker);
    until_woken(&bad).await;
    std::mem::forget(bad);
    // Timers still fire, leases still end, and waiters are still served.
    let next = tokio::time::timeout(LONG, tenure.lock("x").acquire_within(ms(10))).await;
    assert!(matches!(next, Ok(Err(Error::TimedOut { .. }))), "{next:?}");
    let lost = tokio::time::timeout(LONG, held.lost()).await.expect("the loss is reported");
    assert_eq!(lost.why(), WhyLost::LeaseEnded);
    assert!(tenure.health().is_well());
    std::mem::forget(waiting);
}

/// I7: the waker of a waiter panics during its hand-over, which is in another task's release. The release
/// succeeds, and the waiter has the lock.
#[tokio::test]
async fn a_waker_that_panics_at_its_turn_harms_no_other_task() {
    let store = MemoryEngine::new();
    let [one, other] =
        [store.another(), store.another()].map(|engine| Tenure::builder().engine(engine).unwrap());
    let held = one.lock("x").acquire().await.unwrap();
    let bad = Arc::new(Bad::default());
    let lock = other.lock("x");
    let mut waiting = pin!(lock.acquire());
    let waker = Waker::from(bad.clone());
    assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    std::mem::forget(waker);
    until_waiting(&one, "x", 1).await;
    assert_eq!(held.release().await.unwrap(), tenure::Released::Now);
    assert!(bad.was_woken.load(Ordering::SeqCst));
    let idle = Waker::noop();
    let Poll::Ready(guard) = waiting.as_mut().poll(&mut Context::from_waker(idle)) else {
        panic!("it has the lock");
    };
    drop(guard.unwrap());
    drop(other.lock("x").acquire_within(LONG).await.unwrap());
    std::mem::forget(bad);
}

/// I9: one of the tasks that wait for the loss of a lock has a waker that panics; the others are notified.
#[tokio::test]
async fn a_loss_is_reported_to_the_others() {
    let tenure = Tenure::memory().unwrap();
    let guard = tenure.lock("x").fixed_lease(ms(300)).acquire().await.unwrap();
    let signals = [guard.lost_signal(), guard.lost_signal(), guard.lost_signal()];
    let bad = Arc::new(Bad::default());
    let waker = Waker::from(bad.clone());
    let mut watching = Box::pin(signals[1].lost());
    let before = tokio::spawn({
        let signal = signals[0].clone();
        async move { signal.lost().await }
    });
    pass(ms(20)).await;
    assert!(watching.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    std::mem::forget(waker);
    // Only the signal wakes this one: it sets no timer.
    let after = tokio::spawn({
        let signal = signals[2].clone();
        async move { signal.lost().await }
    });
    for notified in [before, after] {
        let notified = tokio::time::timeout(LONG, notified).await.expect("it is notified").unwrap();
        assert_eq!(notified.why(), WhyLost::LeaseEnded);
    }
    until_woken(&bad).await;
    std::mem::forget((bad, watching));
}

/// An engine with a fault of its own: renewals panic.
struct Broken(MemoryEngine);

impl Engine for Broken {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn acquire(&self, request: AcquireRequest) -> Answer<Acquired> {
        self.0.acquire(request)
    }

    fn renew(&self, _: Vec<Renewal>) -> Answer<Vec<Result<Renewed, tenure::StoreError>>> {
        panic!("an engine panics, as this test wants it to");
    }

    fn release(&self, request: ReleaseRequest) -> Answer<ReleaseOutcome> {
        self.0.release(request)
    }

    fn cancel(&self, request: CancelRequest) -> Answer<()> {
        self.0.cancel(request)
    }

    fn inspect(&self, name: LockName) -> Answer<LockInfo> {
        self.0.inspect(name)
    }

    fn list(&self, request: ListRequest) -> Answer<Vec<LockInfo>> {
        self.0.list(request)
    }

    fn force_release(&self, request: ForceRequest) -> Answer<ForceOutcome> {
        self.0.force_release(request)
    }

    fn listen(&self, listener: std::sync::Weak<dyn Listener>) {
        self.0.listen(listener);
    }
}

/// I6, I9: a panic ends the driver's thread. Its holds are lost, its waiters get an error, and so does every
/// later call: nothing hangs, and nothing succeeds.
#[tokio::test]
async fn a_thread_that_ends_is_reported_to_all() {
    let store = MemoryEngine::new();
    let healthy = Tenure::builder().engine(store.another()).unwrap();
    let tenure = Tenure::builder().engine(Broken(store.another())).unwrap();
    let _kept = healthy.lock("kept").acquire().await.unwrap();
    let fixed = tenure.lock("fixed").fixed_lease(Duration::from_secs(60)).acquire().await.unwrap();
    let waiters = [Duration::from_secs(3600), LONG].map(|time| {
        let lock = tenure.lock("kept").fair();
        tokio::spawn(async move { lock.acquire_within(time).await })
    });
    until_waiting(&healthy, "kept", 2).await;
    assert!(tenure.health().is_well());
    let watched = tenure.lock("x").lease(ms(300)).acquire().await.unwrap();
    for guard in [&watched, &fixed] {
        let lost = tokio::time::timeout(LONG, guard.lost()).await.expect("the loss is reported");
        assert_eq!(lost.why(), WhyLost::Ended);
        assert!(guard.is_lost());
    }
    for waiter in waiters {
        let ended = tokio::time::timeout(LONG, waiter).await.expect("it is notified").unwrap();
        assert!(matches!(ended, Err(Error::Ended)), "{ended:?}");
    }
    let later = tokio::time::timeout(LONG, tenure.lock("y").acquire()).await.unwrap();
    assert!(matches!(later, Err(Error::Ended)), "{later:?}");
    assert!(matches!(tenure.lock("y").inspect().await, Err(Error::Ended)));
    let health = tenure.health();
    assert!(!health.is_well());
    assert!(health.links[0].error.as_ref().unwrap().contains("panic"), "{health:?}");
    // Its holds are released nevertheless.
    drop((watched, fixed));
    drop(healthy.lock("x").acquire_within(LONG).await.unwrap());
}
