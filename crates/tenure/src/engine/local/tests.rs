//! Records and messages are read as they were written.

mod garbage;
mod queue;
mod spinning;
mod stopped;
mod store;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::storage::record;
use super::waiting::message;
use crate::core::fence::Fence;
use crate::core::holders::{Entries, Holder, Holders};
use crate::core::lease::Lease;
use crate::core::lock::LockState;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::core::queue::{Queue, Waiter};
use crate::core::shape::{Kind, Shape};
use crate::engine::{Grant, Wakeup};
use crate::info::{About, ForceRecord};
use crate::owner::{Entry, Owner};

fn an_about() -> impl Strategy<Value = Arc<About>> {
    (".{0,9}", any::<u32>(), ".{0,9}", option::of(".{0,20}")).prop_map(
        |(host, pid, program, note)| {
            let note = note.map(Into::into);
            Arc::new(About { host: host.into(), pid, program: program.into(), note })
        },
    )
}

fn a_moment() -> impl Strategy<Value = Moment> {
    any::<u64>().prop_map(Moment::from_micros)
}

fn a_fence() -> impl Strategy<Value = Fence> {
    (0..=Fence::MAX.value()).prop_map(Fence::from_value)
}

fn an_owner() -> impl Strategy<Value = Owner> {
    any::<u128>().prop_map(Owner::from_value)
}

fn a_holder() -> impl Strategy<Value = Holder> {
    let numbers = (0u32..1000, any::<u32>(), a_fence(), any::<u32>());
    let times = (a_moment(), a_moment());
    (an_owner(), numbers, times, vec(any::<u64>(), 0..4), an_about()).prop_map(
        |(owner, (permits, fences, fence, client_id), (until, since), all, about)| {
            let mut entries = Entries::None;
            all.into_iter().for_each(|number| entries.add(number));
            Holder { owner, permits, fences, fence, until, since, entries, about, client_id }
        },
    )
}

fn a_waiter() -> impl Strategy<Value = Waiter> {
    let numbers = (any::<u64>(), 0..=Shape::MAX_LIMIT, any::<u32>(), any::<u32>());
    let times = (a_moment(), a_moment(), 10u64..86_400_000, any::<u32>());
    let proposal = option::of((1..=Fence::MAX.value()).prop_map(Fence::from_value));
    (an_owner(), numbers, times, an_about(), proposal).prop_map(
        |(
            owner,
            (number, permits, fences, client_id),
            (alive_until, since, lease, claim),
            about,
            proposal,
        )| {
            Waiter {
                entry: Entry { owner, number },
                permits,
                lease: Lease::new(Duration::from_millis(lease)).unwrap(),
                claim: Duration::from_micros(claim.into()),
                fences,
                alive_until,
                since,
                about,
                client_id,
                proposal,
            }
        },
    )
}

fn a_lock() -> impl Strategy<Value = LockState> {
    let kinds = [Kind::Mutex, Kind::ReadWrite, Kind::Semaphore, Kind::Latch, Kind::Barrier];
    let kind = proptest::sample::select(kinds.to_vec());
    // One holder at most: several have no order, and could not be compared.
    let holders = option::of(a_holder());
    (kind, 1..=Shape::MAX_LIMIT, holders, vec(a_waiter(), 0..4)).prop_map(
        |(kind, limit, holder, waiters)| {
            let limit = match kind {
                Kind::Mutex => 1,
                Kind::Barrier => limit.min(Shape::MAX_PARTIES),
                _ => limit,
            };
            let mut lock = LockState { kind, limit, holders: Holders::None, queue: None };
            holder.into_iter().for_each(|holder| lock.holders.insert(holder));
            for waiter in waiters {
                lock.queue.get_or_insert_with(Box::<Queue>::default).push(waiter);
            }
            lock
        },
    )
}

proptest! {
    #[test]
    fn a_lock_is_read_as_it_was_written(lock in a_lock()) {
        let bytes = record::encode_lock(&lock);
        let again = record::decode_lock(&bytes).unwrap();
        // The index of the queue has no order.
        let shown = |lock: &LockState| {
            let waiters: Vec<_> = lock.queue.iter().flat_map(|queue| queue.iter()).collect();
            format!("{:?} {} {:?} {waiters:?}", lock.kind, lock.limit, lock.holders)
        };
        prop_assert_eq!(shown(&again), shown(&lock));
        prop_assert_eq!(record::encode_lock(&again), bytes);
    }

    #[test]
    fn many_holders_are_all_read(holders in vec(a_holder(), 2..20)) {
        let mut lock =
            LockState { kind: Kind::Semaphore, limit: 9, holders: Holders::None, queue: None };
        holders.into_iter().for_each(|holder| lock.holders.insert(holder));
        let again = record::decode_lock(&record::encode_lock(&lock)).unwrap();
        let sorted = |lock: &LockState| {
            let mut all: Vec<_> = lock.holders.iter().map(|it| format!("{it:?}")).collect();
            all.sort();
            all
        };
        prop_assert_eq!(sorted(&again), sorted(&lock));
        prop_assert_eq!(again.holders.used(), lock.holders.used());
        prop_assert_eq!(record::encode_lock(&again), record::encode_lock(&lock), "the order is stable");
    }

    #[test]
    fn a_cut_record_is_refused(lock in a_lock(), part in 0.0..1.0) {
        let bytes = record::encode_lock(&lock);
        let length = (bytes.len() as f64 * part) as usize;
        prop_assert!(record::decode_lock(&bytes[..length]).is_err());
    }

    #[test]
    fn no_bytes_make_a_reader_panic(mut bytes in vec(any::<u8>(), 0..200), is_versioned: bool) {
        if is_versioned && !bytes.is_empty() {
            bytes[0] = 1;
        }
        let _ = record::decode_lock(&bytes);
        let _ = record::decode_forced(&bytes);
        let _ = record::Meta::decode(&bytes);
        let _ = message::decode(&bytes);
        let _ = record::forced_at(&bytes);
    }

    #[test]
    fn a_record_of_a_forced_release_is_read_as_it_was_written(
        name in "[^\0]{1,40}", owners in vec(an_owner(), 0..4), by in an_about(), reason: String,
        at: u32,
    ) {
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(at.into());
        let name = LockName::new(name).unwrap();
        let forced = ForceRecord { name, owners, by, reason: reason.into(), at };
        let bytes = record::encode_forced(&forced);
        prop_assert_eq!(record::decode_forced(&bytes).unwrap(), forced);
    }

    #[test]
    fn a_wakeup_is_decoded_as_it_was_encoded(
        name in "[^\0]{1,512}", owner in an_owner(), number: u64, fence in a_fence(), at in a_moment(),
    ) {
        let Ok(name) = LockName::new(name) else { return Ok(()) };
        let lease = Duration::from_secs(3);
        let grant = Grant { fence, fences: 64, lease, at };
        let entry = Entry { owner, number };
        let granted = Wakeup::Granted { name: name.clone(), entry, grant };
        let sooner = Wakeup::Sooner { name: name.clone(), entry };
        for wakeup in [granted, Wakeup::Lost { name, owner }, sooner, Wakeup::Missed] {
            let bytes = message::encode(&wakeup);
            prop_assert!(bytes.len() <= message::MAX_BYTES);
            prop_assert_eq!(message::decode(&bytes).unwrap(), wakeup);
        }
    }
}
