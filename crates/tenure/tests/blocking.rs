//! Every kind for code that is not async: plain threads, and no runtime (R6, R8, R27).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tenure::blocking::{acquire_all, block_on};
use tenure::{Error, Kind, Owner, Released, Tenure, Wait};
use tokio::time::Instant;

const LONG: Duration = Duration::from_secs(20);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits until the queue of "x" has this many waiters; panics after a long time.
fn until_waiting(tenure: &Tenure, count: usize) {
    let started = Instant::now();
    while block_on(tenure.lock("x").inspect()).unwrap().waiting != count {
        assert!(started.elapsed() < LONG, "there are never {count} of them");
        thread::yield_now();
    }
}

fn join<T>(threads: Vec<JoinHandle<T>>) -> Vec<T> {
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// I1, R27: many threads read and write; a writer excludes all others.
#[test]
fn threads_read_together_and_write_alone() {
    let tenure = Tenure::memory().unwrap();
    let value = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let threads = (0..6).map(|number| {
        let (lock, value) = (tenure.rwlock("x").blocking(), value.clone());
        thread::spawn(move || {
            for round in 0..40 {
                if (number + round) % 3 == 0 {
                    let written = lock.write().unwrap();
                    value.0.fetch_add(1, Ordering::SeqCst);
                    thread::yield_now();
                    value.1.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(written.release().unwrap(), Released::Now);
                } else {
                    let _read = lock.read().unwrap();
                    let seen = value.0.load(Ordering::SeqCst);
                    assert_eq!(value.1.load(Ordering::SeqCst), seen, "there is a writer");
                }
            }
        })
    });
    join(threads.collect());
    assert_eq!(value.0.load(Ordering::SeqCst), 80);
}

/// R27: the thread is the owner, so it would wait for itself.
#[test]
fn a_thread_that_reads_and_asks_to_write_is_refused() {
    let tenure = Tenure::memory().unwrap();
    let lock = tenure.rwlock("x").blocking();
    let reading = lock.read().unwrap();
    assert_eq!(reading.owner(), Owner::of_thread());
    let error = lock.write().unwrap_err();
    assert!(matches!(error, Error::Upgrade { held: 1, .. }), "{error:?}");
    let error = lock.writer().try_acquire().unwrap_err();
    assert!(matches!(error, Error::Upgrade { held: 1, .. }), "{error:?}");
    reading.ensure_held().unwrap();
    let other = lock.clone();
    let beside = thread::spawn(move || other.reader().try_acquire().unwrap().is_some());
    assert!(beside.join().unwrap(), "nothing of the refusal is left in the queue");
    assert_eq!(reading.release().unwrap(), Released::Now);
    assert_eq!(lock.write().unwrap().release().unwrap(), Released::Now);
}

/// R27: a writer may read, and become a reader, on its thread.
#[test]
fn a_thread_that_writes_becomes_a_reader() {
    let tenure = Tenure::memory().unwrap();
    let lock = tenure.rwlock("x").blocking();
    let writing = lock.write().unwrap();
    drop(lock.read().unwrap());
    let waiting = thread::spawn({
        let lock = lock.clone();
        move || lock.reader().acquire_within(LONG).unwrap().fence()
    });
    until_waiting(&tenure, 1);
    let fence = writing.fence();
    let reading = writing.downgrade();
    assert_eq!(reading.fence(), fence);
    assert!(waiting.join().unwrap() > fence, "I4");
    reading.ensure_held().unwrap();
}

/// I1, R27: never more threads inside than there are permits.
#[test]
fn threads_share_the_permits_of_a_semaphore() {
    let tenure = Tenure::memory().unwrap();
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let threads = (0..8).map(|number| {
        let semaphore = tenure.semaphore("x", 3).blocking();
        let (inside, most) = (inside.clone(), most.clone());
        thread::spawn(move || {
            for _ in 0..30 {
                let wanted = 1 + number % 2;
                let _permits = semaphore.permits(wanted).acquire_within(LONG).unwrap();
                let now = inside.fetch_add(wanted as usize, Ordering::SeqCst) + wanted as usize;
                most.fetch_max(now, Ordering::SeqCst);
                thread::yield_now();
                inside.fetch_sub(wanted as usize, Ordering::SeqCst);
            }
        })
    });
    join(threads.collect());
    assert!(most.load(Ordering::SeqCst) <= 3, "{most:?}");
    let semaphore = tenure.semaphore("x", 3).blocking();
    let one = semaphore.acquire().unwrap();
    assert_eq!(semaphore.available().unwrap(), 2);
    assert_eq!(one.release().unwrap(), Released::Now);
}

/// R27.
#[test]
fn threads_wait_for_a_latch() {
    let tenure = Tenure::memory().unwrap();
    let latch = tenure.latch("x", 2).blocking();
    let waiters = (0..4).map(|_| {
        let latch = latch.clone();
        thread::spawn(move || latch.wait())
    });
    let waiters: Vec<_> = waiters.collect();
    until_waiting(&tenure, 4);
    latch.count_down().unwrap();
    assert_eq!(latch.count().unwrap(), 1);
    let error = latch.wait_within(ms(30)).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
    latch.count_down().unwrap();
    join(waiters).into_iter().for_each(|outcome| outcome.unwrap());
    latch.wait().unwrap();
    assert_eq!(latch.inspect().unwrap().kind, Some(Kind::Latch));
}

/// R27: the same threads meet repeatedly, and none is a round ahead.
#[test]
fn threads_meet_at_a_barrier_again_and_again() {
    let tenure = Tenure::memory().unwrap();
    let arrived = Arc::new(AtomicUsize::new(0));
    let threads = (0..3).map(|_| {
        let (barrier, arrived) = (tenure.barrier("x", 3).blocking(), arrived.clone());
        thread::spawn(move || {
            for round in 1..=20 {
                arrived.fetch_add(1, Ordering::SeqCst);
                barrier.wait_within(LONG).unwrap();
                assert!(arrived.load(Ordering::SeqCst) >= 3 * round, "not all were there");
            }
        })
    });
    join(threads.collect());
    let error = tenure.barrier("x", 3).blocking().wait_within(ms(30)).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
}

/// I4, R27: one thread leads after another.
#[test]
fn threads_stand_for_election() {
    let tenure = Tenure::memory().unwrap();
    let election = tenure.election("x").candidate("first").blocking();
    let leading = election.campaign().unwrap();
    assert!(election.try_campaign().unwrap().is_none(), "a thread does not lead twice");
    let next = thread::spawn({
        let election = tenure.election("x").candidate("second").blocking();
        move || election.campaign_within(LONG).unwrap()
    });
    until_waiting(&tenure, 1);
    let error = election.campaign_within(ms(30)).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    assert_eq!(&*election.leader().unwrap().unwrap().candidate, "first");
    let term = leading.fence();
    block_on(leading.resign()).unwrap();
    let leading = next.join().unwrap();
    assert!(leading.is_leader() && leading.fence() > term);
    assert_eq!(&*election.leader().unwrap().unwrap().candidate, "second");
    drop(leading);
    assert_eq!(election.leader().unwrap(), None);
}

/// I1, R27: threads that want the same locks in any order have them together, one after another.
#[test]
fn threads_take_several_locks_at_once() {
    let tenure = Tenure::memory().unwrap();
    let inside = Arc::new(AtomicUsize::new(0));
    let orders = [["x", "y", "z"], ["z", "y", "x"], ["y", "x", "z"]];
    let threads = orders.map(|names| {
        let (tenure, inside) = (tenure.clone(), inside.clone());
        thread::spawn(move || {
            for _ in 0..30 {
                let locks = names.map(|name| tenure.lock(name).blocking());
                let guards = acquire_all(locks, Wait::within(LONG)).unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                assert_eq!(guards.iter().count(), 3);
                guards.ensure_held().unwrap();
                let beside = tenure.lock(names[0]).blocking().try_acquire();
                assert!(beside.unwrap().is_none(), "it is taken");
                inside.fetch_sub(1, Ordering::SeqCst);
            }
        })
    });
    join(threads.into());
    let held = tenure.lock("y").blocking().acquire().unwrap();
    let locks = ["x", "y"].map(|name| tenure.lock(name).blocking());
    let error = acquire_all(locks, Wait::within(ms(30))).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    drop(held);
    drop(tenure.lock("x").blocking().acquire_within(LONG).unwrap());
}

/// I7: a task of a runtime blocks, more often than tokio lets a task be ready before it has to return to the scheduler.
#[test]
fn a_task_may_block_as_often_as_it_likes() {
    let blocks = |tenure: Tenure| async move {
        let lock = tenure.lock("x").blocking();
        for _ in 0..300 {
            lock.acquire().unwrap().release().unwrap();
        }
    };
    let runtimes = [
        tokio::runtime::Builder::new_current_thread().build().unwrap(),
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap(),
    ];
    let running = runtimes.into_iter().flat_map(|runtime| {
        let tenure = Tenure::memory().unwrap();
        let runtime = Arc::new(runtime);
        let (first, second) = (runtime.clone(), runtime);
        let (one, other) = (blocks(tenure.clone()), blocks(tenure));
        [
            thread::spawn(move || first.block_on(one)),
            thread::spawn(move || second.block_on(async { tokio::spawn(other).await.unwrap() })),
        ]
    });
    let (done, all_done) = std::sync::mpsc::channel();
    let running: Vec<_> = running.collect();
    // A thread that hangs cannot be joined.
    thread::spawn(move || done.send(join(running)));
    all_done.recv_timeout(LONG).expect("all of them end");
}
