//! Acquiring through the driver: failing fast, waiting, attempts, strategies, fairness.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tenure::fenced::Gate;
use tenure::{Backoff, Error, Kind, Tenure, Wait};
use tokio::sync::mpsc;

use super::fixture::{
    Fixture, IN_VAIN, features, granted, is_later, lease, ms, pass, poll_once, request, someone,
};

/// R7.
pub(crate) async fn try_acquire_does_not_wait(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let guard = a.lock("x").try_acquire().await.unwrap().expect("it is free");
    assert!(b.lock("x").try_acquire().await.unwrap().is_none());
    assert!(a.lock("x").try_acquire().await.unwrap().is_none(), "nor in the same process");
    guard.release().await.unwrap();
    assert!(b.lock("x").try_acquire().await.unwrap().is_some());
}

/// R8, R11: woken when the lock is freed.
pub(crate) async fn acquire_waits_for_its_turn(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let held = a.lock("x").acquire().await.unwrap();
    let waiter = tokio::spawn({
        let lock = b.lock("x");
        async move { lock.acquire().await.unwrap() }
    });
    until_waiting(&a, "x", 1).await;
    let fence = held.fence();
    drop(held);
    assert!(is_later(Kind::Mutex, waiter.await.unwrap().fence(), fence));
}

/// R8.
pub(crate) async fn acquire_within_times_out(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let _held = a.lock("x").acquire().await.unwrap();
    let error = b.lock("x").acquire_within(IN_VAIN).await.unwrap_err();
    let Error::TimedOut { name, waited } = error else { panic!("{error:?}") };
    assert_eq!(name.as_str(), "x");
    assert!(waited >= IN_VAIN && waited < IN_VAIN + Duration::from_secs(5), "{waited:?}");
    until_waiting(&a, "x", 0).await;
}

/// R9.
pub(crate) async fn attempts_are_counted(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let held = a.lock("x").acquire().await.unwrap();
    let wait = Wait::attempts(3).retry(Backoff::fixed(ms(5)));
    let error = b.lock("x").acquire_with(wait.clone()).await.unwrap_err();
    assert!(matches!(error, Error::Busy { attempts: 3, .. }), "{error:?}");
    drop(held);
    drop(b.lock("x").acquire_with(wait).await.unwrap());
}

/// R10: attempts follow the delays of the strategy, and a time limit ends them.
pub(crate) async fn attempts_follow_the_strategy(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let _held = a.lock("x").acquire().await.unwrap();
    for backoff in [
        Backoff::fixed(ms(10)),
        Backoff::exponential(ms(1), ms(40)),
        Backoff::jitter(ms(1), ms(40)),
    ] {
        let wait = Wait::within(IN_VAIN).retry(backoff);
        let error = b.lock("x").acquire_with(wait).await.unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    }
    assert_eq!(b.lock("x").inspect().await.unwrap().waiting, 0, "it stands in no queue");
}

/// R10.
pub(crate) async fn custom_backoff_decides_the_delays(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let _held = a.lock("x").acquire().await.unwrap();
    let asked = Arc::new(AtomicU32::new(0));
    let backoff = Backoff::custom({
        let asked = asked.clone();
        move |attempt| {
            asked.store(attempt, Ordering::SeqCst);
            ms(1)
        }
    });
    let wait = Wait::attempts(4).retry(backoff);
    b.lock("x").acquire_with(wait).await.unwrap_err();
    assert_eq!(asked.load(Ordering::SeqCst), 4);
}

/// R12, I10: tasks of several clients are served in the order of their arrival.
pub(crate) async fn a_fair_lock_is_first_come_first_served(store: &impl Fixture) {
    let clients = [store.tenure(), store.tenure(), store.tenure()];
    let held = clients[0].lock("x").fair().acquire().await.unwrap();
    let (served, mut order) = mpsc::unbounded_channel();
    for place in 0..12 {
        let lock = clients[place % 3].lock("x").fair();
        let served = served.clone();
        tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            served.send((place, guard.fence())).unwrap();
        });
        until_waiting(&clients[0], "x", place + 1).await;
    }
    let mut last = held.fence();
    drop(held);
    for expected in 0..12 {
        let (place, fence) = order.recv().await.unwrap();
        assert_eq!(place, expected);
        assert!(fence > last, "I4");
        last = fence;
    }
}

/// I10: tasks of one process may pass a lock among themselves, but not forever.
pub(crate) async fn local_handover_stays_within_its_bound(store: &impl Fixture) {
    let (busy, patient) = (store.tenure(), store.tenure());
    let held = patient.lock("x").acquire().await.unwrap();
    let sections = Arc::new(AtomicUsize::new(0));
    let crowd: Vec<_> = (0..8)
        .map(|_| {
            let (lock, sections) = (busy.lock("x"), sections.clone());
            tokio::spawn(async move {
                loop {
                    let _guard = lock.acquire().await.unwrap();
                    sections.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    until_waiting(&patient, "x", 1).await;
    drop(held);
    let mut measured = 0;
    while measured < 5 {
        let acquiring = tokio::spawn({
            let lock = patient.lock("x").note("patient");
            async move { lock.acquire().await.unwrap() }
        });
        // What passed before it was in the queue does not count: the machine may pause just then. A wait that was over
        // before it was seen shows nothing.
        let mut seen = None;
        while !acquiring.is_finished() {
            let info = busy.lock("x").inspect().await.unwrap();
            let is_waiting =
                info.waiters.iter().any(|it| it.about.note.as_deref() == Some("patient"));
            if seen.is_none() && is_waiting {
                seen = Some(sections.load(Ordering::SeqCst));
            }
        }
        let guard = acquiring.await.unwrap();
        let Some(seen) = seen else { continue };
        measured += 1;
        let passed = sections.load(Ordering::SeqCst) - seen;
        // One run of local hand-overs may be in progress, and one more may be ahead in the queue, with
        // 65 holders each.
        assert!(passed <= 3 * 65, "{passed} sections of others");
        drop(guard);
    }
    crowd.iter().for_each(|task| task.abort());
}

/// R14.
pub(crate) async fn the_note_is_seen_by_others(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let guard = a.lock("x").note("import of May").acquire().await.unwrap();
    let info = b.lock("x").inspect().await.unwrap();
    let holder = &info.holders[0];
    assert_eq!(holder.about.note.as_deref(), Some("import of May"));
    assert_eq!((holder.owner, holder.fence), (guard.owner(), guard.fence()));
}

pub(crate) async fn bad_input_is_refused_and_changes_nothing(store: &impl Fixture) {
    let tenure = store.tenure();
    let day = Duration::from_secs(86_400);
    let bad = [
        (tenure.lock(""), "must not be empty"),
        (tenure.lock("x".repeat(513)), "at most 512 bytes"),
        (tenure.lock("a\0b"), "NUL"),
        (tenure.lock("x").lease(Duration::ZERO), "10 ms to 24 h"),
        (tenure.lock("x").lease(100 * day), "10 ms to 24 h"),
        (tenure.lock("x").fixed_lease(ms(9)), "10 ms to 24 h"),
        (tenure.lock("x").at_least(2 * day), "up to 24 h"),
        (tenure.lock("x").note("n".repeat(2000)), "at most 1024 bytes"),
        (tenure.lock("x").reentrant(), "Owner::scope"),
    ];
    for (lock, sentence) in bad {
        for error in [lock.acquire().await.unwrap_err(), lock.try_acquire().await.unwrap_err()] {
            assert!(matches!(error, Error::Invalid(_)), "{error:?}");
            assert!(error.to_string().contains(sentence), "{error}");
        }
    }
    assert_eq!(tenure.list("", 10).await.unwrap(), []);
}

/// R1, I1: a counter that is read and later written back loses no increment.
pub(crate) async fn a_mutex_excludes_many_tasks(store: &impl Fixture) {
    let clients = [store.tenure(), store.tenure()];
    let counter = Arc::new(AtomicUsize::new(0));
    let fences = Arc::new(std::sync::Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let lock = clients[task % 2].lock("x");
            let (counter, fences) = (counter.clone(), fences.clone());
            tokio::spawn(async move {
                for _ in 0..50 {
                    let guard = lock.acquire().await.unwrap();
                    let seen = counter.load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    counter.store(seen + 1, Ordering::SeqCst);
                    fences.lock().unwrap().push(guard.fence());
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(counter.load(Ordering::SeqCst), 16 * 50);
    let fences = fences.lock().unwrap();
    let is_sorted = fences.is_sorted_by(|a, b| is_later(Kind::Mutex, *b, *a));
    assert!(is_sorted, "I4: also through local hand-overs");
}

/// I8, R23: polled k times and dropped, for every k.
pub(crate) async fn a_cancelled_acquire_leaves_nothing(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    for polls in 0..20 {
        for is_held in [false, true] {
            let held = if is_held { Some(a.lock("x").acquire().await.unwrap()) } else { None };
            let lock = b.lock("x");
            let finished = poll_times(lock.acquire(), polls).await;
            drop(held);
            drop(finished);
            let proof = a.lock("x").acquire_within(Duration::from_secs(10)).await.unwrap();
            drop(proof);
            a.flush(Duration::from_secs(5)).await;
            b.flush(Duration::from_secs(5)).await;
            let info = a.lock("x").inspect().await.unwrap();
            assert!(info.is_free() && info.waiting == 0, "{polls} polls: {info:?}");
        }
    }
}

/// R4.
pub(crate) async fn a_crashed_holder_frees_the_lock(store: &impl Fixture) {
    let crashed = store.client();
    let mut held = request("x", someone());
    held.lease = lease(80);
    granted(crashed.acquire(held).await);
    // The waiter asks again by itself when the lease has ended: there is no message.
    drop(store.tenure().lock("x").acquire_within(Duration::from_secs(10)).await.unwrap());
}

/// R15, the oversell case: a holder that was stopped past its lease sells an item that is sold already.
pub(crate) async fn stale_writers_are_refused_by_their_fence(store: &impl Fixture) {
    let (slow, quick) = (store.tenure(), store.tenure());
    let stock = Gate::new();
    let stopped = slow.lock("stock").fixed_lease(ms(40)).acquire().await.unwrap();
    let seen_in_stock = 1;
    pass(ms(60)).await;

    let overtaking = quick.lock("stock").acquire().await.unwrap();
    assert!(stock.admits(overtaking.fence()), "the new holder sells the last one");
    assert_eq!(seen_in_stock, 1, "the old holder still believes that it can sell it");
    assert!(!stock.admits(stopped.fence()), "but its write is refused");
    assert!(stopped.is_lost());
}

/// Waits until the store has this many waiters in the queue of a lock.
pub(crate) async fn until_waiting(tenure: &Tenure, name: &str, count: usize) {
    if !features().has_queue {
        // Waiters are not stored: they have some time to begin or to end.
        return pass(ms(300)).await;
    }
    while tenure.lock(name).inspect().await.unwrap().waiting != count {
        pass(ms(1)).await;
    }
}

/// Polls a future a number of times, each after it was woken or a short time has passed.
async fn poll_times<F: Future>(future: F, polls: u32) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        let polled = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

/// Rule 13: a client's operations take effect in order. The release of a dropped guard is not overtaken by
/// the next acquire of the same client, whatever else is in flight.
pub(crate) async fn a_client_finds_free_what_it_released(store: &impl Fixture) {
    let tenure = store.tenure();
    let tasks: Vec<_> = (0..32)
        .map(|task| {
            let lock = tenure.lock(format!("x{task}"));
            tokio::spawn(async move {
                for _ in 0..40 {
                    drop(lock.try_acquire().await.unwrap().expect("its own lock is free"));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Rule 13: the same for an acquire that was dropped in flight.
pub(crate) async fn a_client_finds_free_what_it_cancelled(store: &impl Fixture) {
    let tenure = store.tenure();
    let tasks: Vec<_> = (0..32)
        .map(|task| {
            let lock = tenure.lock(format!("x{task}"));
            tokio::spawn(async move {
                for _ in 0..20 {
                    let mut acquire = Box::pin(lock.acquire());
                    let _ = poll_once(acquire.as_mut()).await;
                    drop(acquire);
                    drop(lock.try_acquire().await.unwrap().expect("its own lock is free"));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// I1, I8: threads that never pause make answers arrive in any order, and many at once.
pub(crate) async fn many_tasks_contend_beside_busy_threads(store: &impl Fixture) {
    let tenure = store.tenure();
    let is_over = Arc::new(AtomicUsize::new(0));
    for _ in 0..2 {
        let is_over = is_over.clone();
        std::thread::spawn(move || while is_over.load(Ordering::Relaxed) == 0 {});
    }
    let inside = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (lock, inside) = (tenure.lock("x"), inside.clone());
            tokio::spawn(async move {
                for _ in 0..25 {
                    let guard = lock.acquire().await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(guard);
                }
            })
        })
        .collect();
    let mut failed = 0;
    for task in tasks {
        failed += usize::from(task.await.is_err());
    }
    is_over.store(1, Ordering::Relaxed);
    assert_eq!(failed, 0);
}
