//! Wakers are foreign code, and may call back.

use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tenure::Tenure;

use crate::common::ms;

/// Uses a client when it is dropped.
struct Curious {
    tenure: Tenure,
    dropped: mpsc::Sender<()>,
}

impl Wake for Curious {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Curious {
    fn drop(&mut self) {
        // A timer, a wait group and a hold: each has a mutex in the driver.
        let lock = self.tenure.lock("y");
        let mut waiting = Box::pin(lock.acquire_within(ms(1000)));
        let _ = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(waiting);
        self.dropped.send(()).unwrap();
    }
}

/// Polls a future with one waker after another, of which it has the only reference, and drops it.
fn poll_with<F: Future>(wakers: [Waker; 3], mut future: Pin<Box<F>>) {
    for waker in wakers {
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
}

/// I8: a future is polled with another waker each time, and then dropped. The former wakers are dropped
/// meanwhile, and call back: there is no deadlock.
#[test]
fn a_waker_may_call_back_when_it_is_dropped() {
    let tenure = Tenure::memory().unwrap();
    let held =
        ["x", "y"].map(|name| tenure::blocking::block_on(tenure.lock(name).acquire()).unwrap());
    let signal = held[0].lost_signal();
    let (dropped, drops) = mpsc::channel();
    let curious = || {
        let (tenure, dropped) = (tenure.clone(), dropped.clone());
        Waker::from(Arc::new(Curious { tenure, dropped }))
    };
    let lock = tenure.lock("x");
    let wakers: [[Waker; 3]; 2] = std::array::from_fn(|_| std::array::from_fn(|_| curious()));
    std::thread::spawn(move || {
        let long = Duration::from_secs(3600);
        let [of_waiting, of_watching] = wakers;
        poll_with(of_waiting, Box::pin(lock.acquire_within(long)));
        poll_with(of_watching, Box::pin(signal.lost()));
    });
    for _ in 0..6 {
        drops.recv_timeout(Duration::from_secs(20)).expect("no deadlock");
    }
    drop(held);
}
