//! Which clients of a queue are checked for liveness, and which are watched.

use std::sync::Arc;

use crate::core::fence::Fence;
use crate::core::holders::{Entries, Holder, Holders};
use crate::core::lease::Lease;
use crate::core::lock::LockState;
use crate::core::moment::Moment;
use crate::core::queue::Waiter;
use crate::core::shape::Kind;
use crate::engine::local::liveness::{self, Waiters};
use crate::info::About;
use crate::owner::{Entry, Owner};

/// A queue whose waiters have the clients 1, 2, 3 and so on, behind holders with other clients.
pub(super) fn a_queue(waiters: u32, holders: &[u32]) -> (LockState, Vec<Entry>) {
    let about = Arc::new(About::this_process());
    let (lease, never, since) = (Lease::DEFAULT, Moment::NEVER, Moment::ZERO);
    let mut lock =
        LockState { kind: Kind::Semaphore, limit: 9, holders: Holders::None, queue: None };
    for &client_id in holders {
        let (owner, fence, about) = (Owner::new(), Fence::from_value(1), about.clone());
        let (entries, until) = (Entries::One(0), never);
        let holder =
            Holder { owner, permits: 1, fences: 1, fence, until, since, entries, about, client_id };
        lock.holders.insert(holder);
    }
    let entries: Vec<_> = (0..waiters).map(|_| Entry::single()).collect();
    for (&entry, client_id) in entries.iter().zip(1..) {
        let (claim, about) = (lease.duration(), about.clone());
        let waiter = Waiter {
            entry,
            permits: 1,
            lease,
            claim,
            fences: 1,
            alive_until: never,
            since,
            about,
            client_id,
            proposal: None,
        };
        lock.queue.get_or_insert_default().push(waiter);
    }
    (lock, entries)
}

/// I7: an end wakes a few waiters, and the next waiter detects the end of every holder.
#[test]
fn a_waiter_watches_the_few_ahead_of_it() {
    let (mut lock, entries) = a_queue(10, &[40, 50]);
    let mut watched_by = |waiter: usize, dead: &[u32]| {
        let watched =
            liveness::clients_to_watch(&mut lock, entries[waiter], waiter as u32 + 1, |it| {
                dead.contains(&it)
            });
        (watched, lock.queue.as_ref().unwrap().len())
    };
    assert_eq!(watched_by(0, &[]), (vec![40, 50], 10));
    assert_eq!(watched_by(2, &[]), (vec![1, 2, 40, 50], 10));
    assert_eq!(watched_by(3, &[]), (vec![3, 2, 1], 10));
    assert_eq!(watched_by(9, &[]), (vec![9, 8, 7], 10));
    assert_eq!(watched_by(9, &[9, 7]), (vec![8, 6, 5], 8), "dead waiters are dropped");
    assert_eq!(watched_by(1, &[1]), (vec![1, 40, 50], 8), "except the first");
}

/// To check every waiter would cost more the longer the queue is.
#[test]
fn dead_waiters_are_dropped_from_the_head() {
    for (waiters, left, max_checks) in [(Waiters::First, 8, 3), (Waiters::All, 7, 10)] {
        let (mut lock, _) = a_queue(10, &[]);
        let mut checks = 0;
        liveness::expire_dead(&mut lock, Moment::ZERO, waiters, |client| {
            checks += 1;
            [1, 2, 7].contains(&client)
        });
        assert_eq!((lock.queue.unwrap().len(), checks), (left, max_checks));
    }
}

#[test]
fn a_client_id_is_read_without_its_marks() {
    assert_eq!(liveness::client_of(7 | liveness::DETACHED | liveness::SPINNING), 7);
}
