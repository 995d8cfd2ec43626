//! Which records an operation reads, writes and sweeps.

use std::time::Duration;

use crate::blocking::block_on;
use crate::clock;
use crate::core::name::LockName;
use crate::engine::Engine;
use crate::engine::local::storage::map;
use crate::engine::local::storage::registry::StoreHandle;
use crate::engine::local::storage::transaction::{Transaction, key};
use crate::engine::local::waiting::store_mutex::Patience;
use crate::engine::local::{LocalEngine, folder};
use crate::{Error, Tenure};

/// No record behind the last listed lock is read: all other operations wait meanwhile.
#[test]
fn a_list_reads_no_more_than_it_shows() {
    let folder = tempfile::tempdir().unwrap();
    let engine = LocalEngine::open(folder.path().join("t")).unwrap();
    let mut transaction = Transaction::begin(&engine.store, Patience::Long).unwrap();
    transaction.put(&key(b'l', "x9"), &[1, 2, 3]).unwrap();
    transaction.commit().unwrap();
    let tenure = Tenure::builder().engine(engine).unwrap();
    let ended = tenure.lock("x0").fixed_lease(Duration::from_secs(1));
    block_on(block_on(ended.try_acquire()).unwrap().unwrap().detach()).unwrap();
    let take = |it| block_on(tenure.lock(format!("x{it}")).acquire()).unwrap();
    let guards: Vec<_> = (1..4).map(take).collect();
    pass(Duration::from_millis(1_100));
    let names = |limit| {
        let infos = block_on(tenure.list("x", limit))?;
        Ok::<_, Error>(infos.iter().map(|info| info.name.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(names(0).unwrap(), [""; 0]);
    assert_eq!(names(3).unwrap(), ["x1", "x2", "x3"]);
    assert_eq!(names(4).unwrap(), ["x1", "x2", "x3", "x9"]);
    drop(guards);
}

#[test]
fn an_inspection_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let tenure =
        Tenure::builder().engine(LocalEngine::open(folder.path().join("t")).unwrap()).unwrap();
    let semaphore = tenure.semaphore("x", 20);
    let _permits: Vec<_> = (0..20).map(|_| block_on(semaphore.acquire()).unwrap()).collect();
    let other = LocalEngine::open(folder.path().join("t")).unwrap();
    let before = other.store.last_change();
    for _ in 0..20 {
        assert_eq!(block_on(other.inspect(LockName::new("x").unwrap())).unwrap().holders.len(), 20);
    }
    assert_eq!(other.store.last_change(), before);
}

/// A sweep is done in slices, because all other operations wait meanwhile.
#[test]
fn a_sweep_continues_where_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let engine = LocalEngine::open(folder.path().join("t")).unwrap();
    let tenure =
        Tenure::builder().engine(LocalEngine::open(folder.path().join("t")).unwrap()).unwrap();
    let kept = block_on(tenure.lock("x010").acquire()).unwrap();
    for number in 0..100 {
        let lock = tenure.lock(format!("y{number:0>3}")).fixed_lease(Duration::from_secs(10));
        block_on(block_on(lock.try_acquire()).unwrap().unwrap().detach()).unwrap();
    }
    let mut now = clock::both();
    // The leases of all but the first have ended by then.
    now.clock = now.clock + Duration::from_secs(15);
    let slice = || {
        let mut transaction = Transaction::begin(&engine.store, Patience::Long).unwrap();
        let swept = transaction.sweep_slice(now).unwrap();
        transaction.commit().unwrap();
        swept
    };
    assert_eq!([slice(), slice(), slice()], [(63, false), (37, true), (0, true)]);
    kept.ensure_held().unwrap();
}

#[test]
fn a_forked_child_is_refused_its_parents_store() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder::prepare(&folder.path().join("t")).unwrap();
    let process = std::process::id();
    let _of_parent = StoreHandle::open(&folder, map::BYTES).unwrap();
    let refused = StoreHandle::open_in(process + 1, &folder, map::BYTES).err().unwrap().to_string();
    assert!(refused.contains("connect after the fork"), "{refused}");
}

/// Rule 12: locks that are never requested again do not accumulate.
#[test]
fn locks_that_ended_are_swept() {
    let folder = tempfile::tempdir().unwrap();
    let engine = LocalEngine::open(folder.path().join("t")).unwrap();
    let tenure = Tenure::builder().engine(engine).unwrap();
    for number in 0..3000 {
        let lock = tenure.lock(format!("x{number}")).fixed_lease(Duration::from_millis(10));
        // It is never released.
        std::mem::forget(block_on(lock.try_acquire()).unwrap().unwrap());
    }
    let engine = LocalEngine::open(folder.path().join("t")).unwrap();
    let transaction = Transaction::begin(&engine.store, Patience::Long).unwrap();
    let left = transaction.keys(b"l", b"", usize::MAX).unwrap().len();
    assert!(left < 2500, "{left} of 3000 are left");
}

#[expect(clippy::disallowed_methods, reason = "only time is to pass")]
fn pass(time: Duration) {
    std::thread::sleep(time);
}
