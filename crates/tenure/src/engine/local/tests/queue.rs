//! Who in a queue is asked for, and who is watched.

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

/// A queue whose waiters have the clients 1, 2, 3 and so on, behind holders with others.
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
        };
        lock.queue.get_or_insert_default().push(waiter);
    }
    (lock, entries)
}

/// I7: an end is noticed by a few, and whoever is next notices that of every holder.
#[test]
fn a_waiter_watches_the_few_ahead_of_it() {
    let (mut lock, entries) = a_queue(10, &[40, 50]);
    let mut ahead_of = |waiter: usize, gone: &[u32]| {
        let ahead = liveness::ahead_of(&mut lock, entries[waiter], waiter as u32 + 1, |it| {
            gone.contains(&it)
        });
        (ahead, lock.queue.as_ref().unwrap().len())
    };
    assert_eq!(ahead_of(0, &[]), (vec![40, 50], 10));
    assert_eq!(ahead_of(2, &[]), (vec![1, 2, 40, 50], 10));
    assert_eq!(ahead_of(3, &[]), (vec![3, 2, 1], 10));
    assert_eq!(ahead_of(9, &[]), (vec![9, 8, 7], 10));
    assert_eq!(ahead_of(9, &[9, 7]), (vec![8, 6, 5], 8), "those who are gone are taken out");
    assert_eq!(ahead_of(1, &[1]), (vec![1, 40, 50], 8), "but for the first");
}

/// To ask for everyone would take longer the more there are.
#[test]
fn who_is_gone_is_looked_for_from_the_head() {
    for (waiters, left, most_asked) in [(Waiters::First, 8, 3), (Waiters::All, 7, 10)] {
        let (mut lock, _) = a_queue(10, &[]);
        let mut asked = 0;
        liveness::end_the_gone(&mut lock, Moment::ZERO, waiters, |client| {
            asked += 1;
            [1, 2, 7].contains(&client)
        });
        assert_eq!((lock.queue.unwrap().len(), asked), (left, most_asked));
    }
}

#[test]
fn the_marks_are_no_part_of_a_client() {
    assert_eq!(liveness::client_of(7 | liveness::KEPT | liveness::AWAKE), 7);
}
