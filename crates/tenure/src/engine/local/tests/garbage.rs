//! An unreadable record: its lock is refused by name, and no other lock is affected.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tempfile::TempDir;

use super::a_lock;
use crate::blocking::block_on;
use crate::clock;
use crate::core::lease::Lease;
use crate::core::name::LockName;
use crate::core::shape::Shape;
use crate::core::table::Table;
use crate::engine::local::storage::record;
use crate::engine::local::storage::transaction::{Transaction, key};
use crate::engine::local::waiting::store_mutex::Patience;
use crate::engine::local::{LocalEngine, liveness};
use crate::engine::{
    AcquireRequest, Engine, ForceRequest, ListRequest, Queueing, ReleaseRequest, Renewal, Severity,
};
use crate::info::About;
use crate::owner::Entry;
use crate::{Error, Tenure};

const LEASE: Duration = Duration::from_secs(1);

fn engines() -> (TempDir, LocalEngine, LocalEngine) {
    let folder = tempfile::tempdir().unwrap();
    let open = || LocalEngine::open(folder.path().join("t")).unwrap();
    let (one, other) = (open(), open());
    (folder, one, other)
}

fn corrupt(engine: &LocalEngine, kind: u8, name: &str) {
    let mut transaction = Transaction::begin(&engine.store, Patience::Long).unwrap();
    transaction.put(&key(kind, name), &[1, 2, 3]).unwrap();
    transaction.commit().unwrap();
}

/// I6: operations on the lock itself are refused, and the error names it.
#[test]
fn a_lock_that_cannot_be_read_is_refused_by_name() {
    let (_folder, engine, other) = engines();
    corrupt(&other, b'l', "x");
    let tenure = Tenure::builder().patience(Duration::ZERO).engine(engine).unwrap();
    for error in [
        block_on(tenure.lock("x").try_acquire()).map(drop).unwrap_err(),
        block_on(tenure.lock("x").inspect()).map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        assert!(error.to_string().contains("the record of `x`"), "{error}");
    }
    drop(block_on(tenure.lock("y").try_acquire()).unwrap().unwrap());
}

/// I9: one process holds three locks, and renews them in one call. When the record of one is corrupt, the other two
/// stay held.
#[test]
fn a_corrupt_record_costs_no_other_lock_its_renewals() {
    let (_folder, engine, other) = engines();
    let tenure = Tenure::builder().engine(engine).unwrap();
    let take = |name: &str| block_on(tenure.lock(name).lease(LEASE).acquire()).unwrap();
    let [before, broken, behind] = ["a", "b", "c"].map(take);
    corrupt(&other, b'l', "b");
    block_on(broken.lost());
    for guard in [&before, &behind] {
        guard.ensure_held().unwrap();
        block_on(guard.renew()).unwrap();
    }
    // Its release would only be retried in the background.
    broken.forget();
}

/// The list has the locks that can be read, and names those that cannot.
#[test]
fn a_list_names_what_cannot_be_read_and_shows_the_rest() {
    let (_folder, engine, other) = engines();
    let tenure = Tenure::builder().engine(engine).unwrap();
    let _held = ["a", "c"].map(|name| block_on(tenure.lock(name).acquire()).unwrap());
    corrupt(&other, b'l', "b");
    let infos = block_on(tenure.list("", 10)).unwrap();
    let seen: Vec<_> =
        infos.iter().map(|info| (info.name.as_str(), info.holders.len(), info.is_free())).collect();
    assert_eq!(seen, [("a", 1, false), ("b", 0, false), ("c", 1, false)]);
    assert_eq!((&infos[0].error, &infos[2].error), (&None, &None));
    let trouble = infos[1].error.as_ref().unwrap();
    assert!(trouble.contains("the record of `b`"), "{trouble}");
}

/// The doctor reports it.
#[test]
fn a_checkup_finds_what_cannot_be_read() {
    let (_folder, engine, other) = engines();
    let records = || {
        let findings = block_on(engine.checkup()).unwrap();
        findings.into_iter().find(|it| it.topic == "records").unwrap()
    };
    assert_eq!(records().severity, Severity::Fine);
    corrupt(&other, b'l', "b");
    let found = records();
    assert_eq!(found.severity, Severity::Problem);
    assert!(found.found.contains("the record of `b`"), "{found:?}");
}

/// The record of a forced release is not the lock itself.
#[test]
fn a_lock_is_shown_although_its_forced_release_cannot_be_read() {
    let (_folder, engine, other) = engines();
    let tenure = Tenure::builder().engine(engine).unwrap();
    let guard = block_on(tenure.lock("x").acquire()).unwrap();
    corrupt(&other, b'x', "x");
    let info = block_on(tenure.lock("x").inspect()).unwrap();
    assert_eq!(info.holders[0].fence, guard.fence());
    let trouble = info.error.unwrap();
    assert!(trouble.contains("the forced release of `x`"), "{trouble}");
}

/// Locks that are not in use are removed, also behind an unreadable one.
#[test]
fn a_sweep_passes_over_what_cannot_be_read() {
    let (_folder, engine, other) = engines();
    for name in ["a", "c"] {
        let tenure = Tenure::builder().engine(LocalEngine::open(engine.store.folder()).unwrap());
        let lock = tenure.unwrap().lock(name).fixed_lease(Duration::from_secs(10));
        block_on(block_on(lock.try_acquire()).unwrap().unwrap().detach()).unwrap();
    }
    corrupt(&other, b'l', "b");
    let mut now = clock::both();
    now.clock = now.clock + Duration::from_secs(15);
    let mut transaction = Transaction::begin(&engine.store, Patience::Long).unwrap();
    assert_eq!(transaction.sweep_slice(now).unwrap(), (2, true));
    assert_eq!(transaction.keys(b"l", b"", 10).unwrap(), [key(b'l', "b")]);
}

/// Dropping a dead waiter that is there twice would never end.
#[test]
fn an_entry_that_waits_twice_is_refused() {
    let (lock, _) = super::queue::a_queue(1, &[]);
    let mut bytes = record::encode_lock(&lock);
    // After the version, the kind, the limit and the number of holders, which is zero.
    let (count, first) = (10, 14);
    bytes[count] = 2;
    bytes.extend_from_within(first..);
    assert_eq!(record::decode_lock(&bytes).unwrap_err(), "one entry waits twice");
}

proptest! {
    /// Bytes that another program changed are refused, or are a valid lock: every operation on it ends, and none
    /// panics.
    #[test]
    fn whatever_can_be_read_can_be_used(
        lock in a_lock(), flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut bytes = record::encode_lock(&lock);
        for (index, byte) in flips {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(lock) = record::decode_lock(&bytes) {
            use_lock(lock);
        }
    }
}

fn use_lock(lock: crate::core::lock::LockState) {
    let (name, mut effects) = (LockName::new("x").unwrap(), Vec::new());
    let (now, about) = (clock::both(), Arc::new(About::this_process()));
    let owner = lock.holders.iter().next().map(|holder| holder.owner);
    let entry = owner.map_or_else(Entry::single, |owner| Entry { owner, number: 0 });
    let shape = Shape::new(lock.kind, lock.limit, 1).unwrap();
    let mut table = Table::after(0);
    table.put(name.clone(), lock);
    let ended = |lock: &mut crate::core::lock::LockState| {
        liveness::expire_dead(lock, now.clock, liveness::Waiters::All, |client_id| {
            client_id % 2 == 0
        });
    };
    let lease = Lease::DEFAULT;
    let queue = Some(Queueing { heartbeat: LEASE, claim: LEASE, fences: 1 });
    let request = |entry| AcquireRequest {
        name: name.clone(),
        entry,
        shape,
        lease,
        about: about.clone(),
        queue,
        proposal: None,
    };
    table.inspect(&name, now, &mut effects);
    table.list(&ListRequest { prefix: String::new(), limit: 9 }, now, &mut effects);
    let all = Shape::new(shape.kind(), shape.limit(), shape.limit()).unwrap_or(shape);
    table.acquire(&request(Entry::single()), 1, now, &mut effects);
    table.acquire(&AcquireRequest { shape: all, ..request(entry) }, 1, now, &mut effects);
    table.lock_mut(&name).map(ended);
    table.renew(&Renewal { name: name.clone(), entry, lease, commit: None }, now, &mut effects);
    table.release(&ReleaseRequest::new(name.clone(), entry), now, &mut effects);
    let (by, reason) = (about.clone(), "".into());
    let force = ForceRequest { name: name.clone(), expected: None, reason, by };
    table.force_release(&force, now, &mut effects);
    let _ = table.lock_mut(&name).map(|lock| record::encode_lock(lock));
}
