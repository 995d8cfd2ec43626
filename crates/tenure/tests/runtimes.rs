//! No runtime is required, and any works.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure::blocking::block_on;
use tenure::{Owner, Released, Tenure};

async fn contend(tenure: Tenure, counter: Arc<AtomicUsize>) {
    for _ in 0..50 {
        let guard = tenure.lock("x").acquire_within(Duration::from_secs(20)).await.unwrap();
        let seen = counter.load(Ordering::SeqCst);
        std::thread::yield_now();
        counter.store(seen + 1, Ordering::SeqCst);
        assert_eq!(guard.release().await.unwrap(), Released::Now);
    }
}

/// Tokio, another executor and plain threads share one client, at once.
#[test]
fn all_executors_share_a_lock() {
    let tenure = Tenure::memory().unwrap();
    let counter = Arc::new(AtomicUsize::new(0));
    let threads = [0, 1, 2].map(|kind| {
        let future = contend(tenure.clone(), counter.clone());
        std::thread::spawn(move || match kind {
            0 => tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future),
            1 => smol::block_on(future),
            _ => block_on(future),
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(counter.load(Ordering::SeqCst), 150);
}

/// The lock outlives the runtime it was acquired on.
#[test]
fn a_guard_outlives_its_runtime() {
    let tenure = Tenure::memory().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    let lease = Duration::from_millis(150);
    let guard = runtime.block_on(tenure.lock("x").lease(lease).acquire()).unwrap();
    drop(runtime);
    let waiter = tenure.lock("x").blocking();
    let error = waiter.acquire_within(3 * lease).unwrap_err();
    assert!(matches!(error, tenure::Error::TimedOut { .. }), "renewed nevertheless: {error:?}");
    drop(guard);
    drop(waiter.acquire_within(Duration::from_secs(20)).unwrap());
}

/// R6, R8: the blocking mirror, where the thread is the owner.
#[test]
fn a_thread_enters_again_and_keeps_others_out() {
    let tenure = Tenure::memory().unwrap();
    let lock = tenure.lock("x").reentrant().blocking();
    let outer = lock.acquire().unwrap();
    let inner = lock.try_acquire().unwrap().expect("the same thread");
    assert_eq!((outer.owner(), outer.owner()), (inner.owner(), Owner::of_thread()));
    let other = lock.clone();
    let refused = std::thread::spawn(move || other.try_acquire().unwrap().is_none());
    assert!(refused.join().unwrap());
    assert_eq!(outer.release().unwrap(), Released::Now);
    inner.renew().unwrap();
    assert!(!lock.inspect().unwrap().is_free());
    drop(inner);
    assert!(lock.inspect().unwrap().is_free());
}

/// Many threads of the blocking mirror wait in the queue.
#[test]
fn threads_wait_for_their_turn() {
    let tenure = Tenure::memory().unwrap();
    let counter = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (lock, counter) = (tenure.lock("x").blocking(), counter.clone());
            std::thread::spawn(move || {
                for _ in 0..100 {
                    let _guard = lock.acquire().unwrap();
                    let seen = counter.load(Ordering::SeqCst);
                    counter.store(seen + 1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(counter.load(Ordering::SeqCst), 800);
}
