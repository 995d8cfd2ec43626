//! Holding through the driver: watchdog, loss, release in every path, re-entry, handles.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use tenure::blocking::block_on;
use tenure::{Error, Handle, Kind, Owner, Released, Tenure, WhyLost};

use super::fixture::{Fixture, KEPT, ms, pass};
use super::locks::until_waiting;

async fn is_free(tenure: &Tenure, lock: &str) -> bool {
    tenure.lock(lock).inspect().await.unwrap().is_free()
}

/// R5.
pub(crate) async fn the_watchdog_keeps_the_lock(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let guard = a.lock("x").lease(KEPT).acquire().await.unwrap();
    for _ in 0..8 {
        pass(KEPT / 4).await;
        assert!(b.lock("x").try_acquire().await.unwrap().is_none());
        assert!(!guard.is_lost() && guard.remaining() > Duration::ZERO);
    }
    assert_eq!(guard.release().await.unwrap(), Released::Now);
    assert!(is_free(&b, "x").await);
}

/// R5: a lock that was released is not renewed, least of all for its next holder.
pub(crate) async fn the_watchdog_ends_with_the_guard(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let guard = a.lock("x").lease(ms(150)).acquire().await.unwrap();
    drop(guard);
    let taken = b.lock("x").acquire_within(Duration::from_secs(5)).await.unwrap();
    pass(ms(200)).await;
    assert!(!taken.is_lost());
    assert_eq!(b.lock("x").inspect().await.unwrap().holders[0].owner, taken.owner());
}

/// R5: off when the caller fixed a lease.
pub(crate) async fn a_fixed_lease_is_not_renewed(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let guard = a.lock("x").fixed_lease(ms(150)).acquire().await.unwrap();
    guard.ensure_held().unwrap();
    guard.renew().await.unwrap();
    assert_eq!(guard.lost().await.why(), WhyLost::LeaseEnded);
    assert!(guard.ensure_held().is_err() && guard.remaining() == Duration::ZERO);
    let renewed = guard.renew().await;
    assert!(matches!(renewed, Err(Error::Lost(_))), "{renewed:?}");
    drop(b.lock("x").acquire_within(Duration::from_secs(5)).await.unwrap());
    assert_eq!(guard.release().await.unwrap(), Released::AlreadyLost);
}

/// R26, I9: the holder is notified while the store still excludes others.
pub(crate) async fn loss_is_reported_before_the_lease_ends(store: &impl Fixture) {
    let tenure = store.tenure();
    // A hundredth of it, and two milliseconds, must suffice for the signal, on a busy machine, too.
    let lease = Duration::from_secs(6);
    // The store's lease ends no earlier than this long after now.
    let started = now();
    let guard = tenure.lock("x").fixed_lease(lease).acquire().await.unwrap();
    guard.lost().await;
    let reported = started.elapsed();
    assert!(reported < lease, "reported too late: after {reported:?}");
    assert!(reported > lease / 10 * 9, "reported far too early: after {reported:?}");
}

/// I9: also when its own executor is blocked.
pub(crate) async fn loss_is_reported_while_the_executor_is_blocked(store: &impl Fixture) {
    let tenure = store.tenure();
    let kept = tenure.lock("kept").lease(KEPT).acquire().await.unwrap();
    let fixed = tenure.lock("fixed").fixed_lease(ms(120)).acquire().await.unwrap();
    let signal = fixed.lost_signal();
    let lost = std::thread::spawn(move || block_on(signal.lost()));
    // The only thread of this executor is blocked for many leases.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    std::thread::spawn(move || {
        runtime.block_on(async {
            block_thread(KEPT * 2);
            assert!(!kept.is_lost(), "renewed nevertheless");
            drop(kept);
        });
    })
    .join()
    .unwrap();
    assert_eq!(lost.join().unwrap().name().as_str(), "fixed");
}

#[expect(clippy::disallowed_methods, reason = "the point is to block the executor")]
fn block_thread(time: Duration) {
    std::thread::sleep(time);
}

/// R13, R26.
pub(crate) async fn a_forced_release_is_reported_at_once(store: &impl Fixture) {
    let (a, operator) = (store.tenure(), store.tenure());
    let guard = a.lock("x").lease(ms(300)).acquire().await.unwrap();
    operator.lock("x").force_release("stuck").await.unwrap();
    let lost = guard.lost().await;
    assert_eq!((lost.name().as_str(), lost.why()), ("x", WhyLost::NotHeld));
    assert_eq!(guard.release().await.unwrap(), Released::AlreadyLost);
    let record = operator.lock("x").inspect().await.unwrap().forced.unwrap();
    assert_eq!(&*record.reason, "stuck");
}

/// R26.
pub(crate) async fn protected_work_is_cancelled_on_loss(store: &impl Fixture) {
    let tenure = store.tenure();
    let guard = tenure.lock("x").fixed_lease(ms(100)).acquire().await.unwrap();
    let (going_on, cancelled) = tokio::sync::oneshot::channel::<()>();
    let protected = guard.protect(async move {
        let _until_dropped = going_on;
        std::future::pending::<()>().await;
    });
    assert_eq!(protected.await.unwrap_err().why(), WhyLost::LeaseEnded);
    cancelled.await.expect_err("the work was dropped");
    guard.protect(async { panic!("polled without the lock") }).await.unwrap_err();
}

pub(crate) async fn protected_work_gives_its_output(store: &impl Fixture) {
    let guard = store.tenure().lock("x").acquire().await.unwrap();
    assert_eq!(guard.protect(async { 42 }).await.unwrap(), 42);
}

/// R23.
pub(crate) async fn a_dropped_guard_releases(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    drop(a.lock("x").acquire().await.unwrap());
    drop(b.lock("x").acquire_within(Duration::from_secs(5)).await.unwrap());
    assert!(a.flush(Duration::from_secs(5)).await);
}

/// R23.
pub(crate) async fn a_panic_releases(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let guard = a.lock("x").acquire().await.unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _guard = guard;
        panic!("on purpose");
    }));
    panicked.unwrap_err();
    drop(b.lock("x").acquire_within(Duration::from_secs(5)).await.unwrap());
}

/// R23: from any thread, without an executor, also after the client itself is dropped.
pub(crate) async fn a_guard_dropped_elsewhere_releases(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let guard = a.lock("x").acquire().await.unwrap();
    drop(a);
    std::thread::spawn(move || drop(guard)).join().unwrap();
    drop(b.lock("x").acquire_within(Duration::from_secs(5)).await.unwrap());
}

/// R3, R24.
pub(crate) async fn release_says_whether_it_was_held(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let guard = a.lock("x").acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Now);

    let slow = a.lock("x").fixed_lease(ms(60)).acquire().await.unwrap();
    let overtaking = b.lock("x").acquire_within(Duration::from_secs(5)).await.unwrap();
    assert_eq!(slow.release().await.unwrap(), Released::AlreadyLost);
    assert_eq!(b.lock("x").inspect().await.unwrap().holders[0].owner, overtaking.owner());
}

/// R6.
pub(crate) async fn reentry_is_counted_in_the_store(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let lock = a.lock("x").reentrant();
    Owner::new()
        .scope(async {
            let outer = lock.acquire().await.unwrap();
            let inner = lock.try_acquire().await.unwrap().expect("the same owner");
            assert_eq!((outer.fence(), outer.owner()), (inner.fence(), inner.owner()));
            let shown =
                async |by: &Tenure| by.lock("x").inspect().await.unwrap().holders[0].entries;
            assert_eq!(shown(&a).await, 2);
            assert_eq!(shown(&b).await, if store.shows_entries_to_others() { 2 } else { 1 });
            assert_eq!(outer.release().await.unwrap(), Released::Now);
            assert!(b.lock("x").try_acquire().await.unwrap().is_none(), "one entry is left");
            inner.release().await.unwrap();
        })
        .await;
    assert!(is_free(&b, "x").await);
}

/// R6, the variant that saves the trip.
pub(crate) async fn reentry_can_be_counted_locally(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let lock = a.lock("x").owner(Owner::new()).count_locally();
    let guards: Vec<_> = [
        lock.acquire().await.unwrap(),
        lock.acquire().await.unwrap(),
        lock.acquire().await.unwrap(),
    ]
    .into_iter()
    .collect();
    assert_eq!(b.lock("x").inspect().await.unwrap().holders[0].entries, 1);
    for guard in guards {
        assert!(b.lock("x").try_acquire().await.unwrap().is_none());
        assert_eq!(guard.release().await.unwrap(), Released::Now);
    }
    assert!(is_free(&b, "x").await);
    drop(lock.acquire().await.unwrap());
    drop(b.lock("x").acquire_within(Duration::from_secs(5)).await.unwrap());
}

/// R6: identity is a value that can be printed and parsed elsewhere.
pub(crate) async fn an_owner_can_be_passed_on(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let owner = Owner::new();
    let first = a.lock("x").owner(owner).acquire().await.unwrap();
    let elsewhere: Owner = owner.to_string().parse().unwrap();
    let second = b.lock("x").owner(elsewhere).try_acquire().await.unwrap().unwrap();
    assert_eq!(first.fence(), second.fence());
    drop(first);
    assert!(!second.is_lost());
    assert!(a.lock("x").try_acquire().await.unwrap().is_none());
}

pub(crate) async fn a_least_holding_time_outlasts_the_release(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let acquired = now();
    let guard = a.lock("x").at_least(ms(150)).acquire().await.unwrap();
    guard.release().await.unwrap();
    assert!(b.lock("x").try_acquire().await.unwrap().is_none());
    drop(b.lock("x").acquire_within(Duration::from_secs(5)).await.unwrap());
    assert!(acquired.elapsed() >= ms(150), "{:?}", acquired.elapsed());
}

/// A waiter that knows of the whole lease is notified of the least holding time.
pub(crate) async fn a_least_holding_time_keeps_a_waiter_no_longer(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let guard = a.lock("x").at_least(ms(400)).acquire().await.unwrap();
    let lock = b.lock("x");
    let next = tokio::spawn(async move { lock.acquire().await.unwrap() });
    until_waiting(&a, "x", 1).await;
    guard.release().await.unwrap();
    // Without a wake-up it would ask after three seconds.
    let guard = tokio::time::timeout(Duration::from_secs(2), next).await;
    drop(guard.expect("notified").unwrap());
}

#[expect(clippy::disallowed_methods, reason = "a test may read the clock")]
fn now() -> Instant {
    Instant::now()
}

pub(crate) async fn a_detached_lock_lives_by_its_handle(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let guard = a.lock("weird name\n%").lease(KEPT).acquire().await.unwrap();
    let handle = guard.detach().await.unwrap();
    drop(a);
    let elsewhere: Handle = handle.to_string().parse().unwrap();
    for _ in 0..4 {
        pass(KEPT / 3).await;
        b.renew(&elsewhere).await.unwrap();
    }
    assert_eq!(b.release(&elsewhere).await.unwrap(), Released::Now);
    assert_eq!(b.release(&elsewhere).await.unwrap(), Released::AlreadyLost);
    let renewed = b.renew(&elsewhere).await;
    assert!(matches!(renewed, Err(Error::Lost(_))), "{renewed:?}");
}

pub(crate) async fn a_handle_can_be_adopted(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let guard = a.lock("x").lease(KEPT).acquire().await.unwrap();
    let fence = guard.fence();
    let handle = guard.detach().await.unwrap();
    let adopted = b.adopt(handle.clone()).await.unwrap();
    assert_eq!(adopted.fence(), fence);
    pass(KEPT * 2).await;
    assert!(!adopted.is_lost(), "the watchdog keeps it");
    adopted.release().await.unwrap();
    assert!(is_free(&b, "x").await);
    assert!(matches!(b.adopt(handle).await, Err(Error::Lost(_))));
}

pub(crate) async fn a_handover_is_confirmed_on_request(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let first = a.lock("x").acquire().await.unwrap();
    let lock = b.lock("x").lease(Duration::from_secs(7));
    let next = tokio::spawn(async move { lock.acquire().await.unwrap() });
    until_waiting(&a, "x", 1).await;
    first.release().await.unwrap();
    let guard = next.await.unwrap();
    guard.confirm().await.unwrap();
    assert!(guard.remaining() > Duration::from_secs(6), "{:?}", guard.remaining());
    guard.release().await.unwrap();
}

/// A lock that was handed over is held for a few seconds only, until it is confirmed; a handle has the whole
/// lease.
pub(crate) async fn a_detached_handover_has_its_lease(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let held = a.lock("x").acquire().await.unwrap();
    let lock = b.lock("x");
    let waiter = tokio::spawn(async move { lock.acquire().await });
    until_waiting(&a, "x", 1).await;
    held.release().await.unwrap();
    let handle = waiter.await.unwrap().unwrap().detach().await.unwrap();
    let left = a.lock("x").inspect().await.unwrap().holders[0].lease_left;
    assert!(left > handle.lease().duration() / 2, "{left:?}");
    assert_eq!(a.release(&handle).await.unwrap(), Released::Now);
}

/// An entry counted in the process gets the answer that the store would give: a reader's hold is no mutex.
pub(crate) async fn a_counted_hold_is_no_more_than_it_is(store: &impl Fixture) {
    let tenure = store.tenure();
    let reader = tenure.rwlock("x").read().await.unwrap();
    let lock = tenure.lock("x").owner(reader.owner()).count_locally();
    let error = lock.try_acquire().await.expect_err("a reader's hold");
    assert!(matches!(error, Error::Mismatch { kind: Kind::ReadWrite, .. }), "{error:?}");
    drop(reader);
}
