//! Spinning: a spinning waiter finds its grant, and no hand-over depends on it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;

use crate::core::lease::Lease;
use crate::core::name::LockName;
use crate::core::shape::Shape;
use crate::engine::local::storage::transaction::Subject;
use crate::engine::local::waiting::spin::Spin;
use crate::engine::local::waiting::store_mutex::Patience;
use crate::engine::local::{LocalEngine, liveness};
use crate::engine::{AcquireRequest, Acquired, Engine, Listener, Queueing, ReleaseRequest, Wakeup};
use crate::info::About;
use crate::owner::Entry;
use crate::sync::lock;

fn folder() -> (TempDir, PathBuf) {
    let around = tempfile::tempdir().unwrap();
    let folder = around.path().join("t");
    (around, folder)
}

fn request(name: &LockName) -> AcquireRequest {
    AcquireRequest {
        name: name.clone(),
        entry: Entry::single(),
        shape: Shape::mutex(),
        lease: Lease::new(Duration::from_secs(30)).unwrap(),
        about: Arc::new(About::this_process()),
        queue: Some(Queueing {
            heartbeat: Duration::from_secs(15),
            claim: Duration::from_secs(3),
            fences: 1,
        }),
        proposal: None,
    }
}

/// Records the wake-ups.
#[derive(Default)]
struct Woken(Mutex<Vec<Wakeup>>);

impl Listener for Woken {
    fn wake(&self, wakeup: Wakeup) {
        lock(&self.0).push(wakeup);
    }
}

/// A spinning waiter is not woken, and finds its grant by polling; the hold ends with its client, like any other. A
/// waiter that stopped spinning is woken.
#[test]
fn a_spinning_waiter_finds_its_grant_by_polling() {
    for is_spinning in [true, false] {
        let (_around, folder) = folder();
        let first = LocalEngine::open(&folder).unwrap();
        let second = LocalEngine::open(&folder).unwrap();
        let woken = Arc::new(Woken::default());
        let listener = Arc::downgrade(&woken);
        second.listen(listener);
        let name = LockName::new("x").unwrap();
        let (holder, waiter) = (request(&name), request(&name));
        assert!(matches!(first.attempt(&holder, || true).unwrap().acquired, Acquired::Granted(_)));
        let queued = second.attempt(&waiter, || true).unwrap();
        assert!(queued.spin_since.is_none(), "the holder is in this process: a spin is futile");
        let mark = |is_spinning| {
            second.store.perform(Patience::Long, Subject::Lock(&name), |table, _, _| {
                liveness::set_spinning(table.lock_mut(&name).unwrap(), waiter.entry, is_spinning);
            })
        };
        mark(true).unwrap();
        mark(is_spinning).unwrap();
        assert!(second.poll_grant(&waiter).is_none());
        drop(first.release(ReleaseRequest::new(name.clone(), holder.entry)));
        assert_eq!(lock(&woken.0).is_empty(), is_spinning);
        let seen = second.poll_grant(&waiter).unwrap();
        assert_eq!(seen.lease, Duration::from_secs(3), "a claim, until it is confirmed");
        let Acquired::Granted(grant) = second.attempt(&waiter, || true).unwrap().acquired else {
            panic!("it was handed over");
        };
        assert_eq!((grant.fence, grant.lease), (seen.fence, Duration::from_secs(30)));
        drop(second);
        let third = request(&name);
        assert!(matches!(first.attempt(&third, || true).unwrap().acquired, Acquired::Granted(_)));
    }
}

#[test]
fn futile_spins_become_rare() {
    let spin = Spin::with_cores(2);
    let spins = |waits: u32| {
        let is_futile = |_: &u32| spin.is_worth_it() && spin.until(|| None::<()>).is_none();
        (0..waits).filter(is_futile).count()
    };
    assert_eq!(spins(127), 7, "at once, and then after 1, 3, 7, 15, 31 and 63 others");
    assert_eq!(spins(640), 10);
    while !spin.is_worth_it() {}
    assert_eq!(spin.until(|| Some(7)), Some(7));
    assert!(spin.is_worth_it(), "a successful spin is repeated");
    assert!(!Spin::with_cores(1).is_worth_it());
}
