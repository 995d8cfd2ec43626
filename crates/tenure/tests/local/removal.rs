//! A folder that is removed while it is in use: its holders are refused and lose their locks, and do not affect the
//! clients of a new folder.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tenure::blocking::block_on;
use tenure::{Error, WhyLost};

use super::other::start;
use crate::{LONG, connect, connect_once, now, pass, store, until_waiting};

/// I1: in the old store, a missing file does not count as the end of a client.
#[test]
fn a_removed_folder_does_not_count_as_the_end_of_a_client() {
    let (_around, folder) = store();
    let tenure = connect(&folder);
    let mut other = start(&folder, "hold");
    other.expect("holds");
    fs::remove_dir_all(&folder).unwrap();
    let holders = block_on(tenure.lock("x").inspect()).unwrap().holders;
    assert_eq!(holders[0].about.pid, other.child.id(), "it is alive");
}

/// I1: short critical sections never renew, so that every acquire checks.
#[test]
fn no_lock_is_granted_in_a_folder_that_was_removed_or_moved() {
    let is_refused = |after, remove: &dyn Fn(&Path)| {
        let (_around, folder) = store();
        let tenure = connect_once(&folder).unwrap();
        drop(block_on(tenure.lock("x").try_acquire()).unwrap().unwrap());
        remove(&folder);
        pass(after);
        let refused = block_on(tenure.lock("x").try_acquire()).unwrap_err();
        assert!(matches!(refused, Error::Unreachable { .. }), "{refused:?}");
        assert!(refused.to_string().contains("removed or moved while in use"), "{refused}");
    };
    let (at_once, soon) = (Duration::ZERO, Duration::from_millis(120));
    is_refused(at_once, &|folder| fs::remove_dir_all(folder).unwrap());
    is_refused(soon, &|folder| fs::rename(folder, folder.with_extension("moved")).unwrap());
    is_refused(at_once, &|folder| fs::remove_dir_all(folder.join("clients")).unwrap());
    is_refused(soon, &|folder| fs::remove_file(folder.join("data.mdb")).unwrap());
}

/// I1: the process has the old store open, but others use the new one.
#[test]
fn a_process_that_connects_again_uses_the_new_folder_or_is_refused() {
    let (_around, folder) = store();
    let old = connect_once(&folder).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    let mut other = start(&folder, "hold");
    other.expect("holds");
    let refused = connect_once(&folder).unwrap_err().to_string();
    assert!(refused.contains("still has clients of the removed one"), "{refused}");
    drop(old);
    let begun = now();
    // The thread of the client drops it, which takes a moment.
    let new = loop {
        match connect_once(&folder) {
            Ok(new) => break new,
            Err(refused) => assert!(begun.elapsed() < LONG, "{refused}"),
        }
    };
    assert!(block_on(new.lock("x").try_acquire()).unwrap().is_none(), "the other has it");
}

/// LMDB would lose its lock on a file that is opened twice and closed once.
#[test]
fn a_folder_that_was_moved_is_not_opened_a_second_time() {
    let (around, folder) = store();
    let first = connect(&folder);
    let link = around.path().join("link");
    std::os::unix::fs::symlink(&folder, &link).unwrap();
    let same = connect(&link);
    let guard = block_on(first.lock("x").acquire()).unwrap();
    assert!(block_on(same.lock("x").try_acquire()).unwrap().is_none(), "it is the same store");
    drop((guard, same));
    let moved = folder.with_extension("moved");
    fs::rename(&folder, &moved).unwrap();
    let refused = connect_once(&moved).unwrap_err().to_string();
    assert!(refused.contains("removed or moved while in use"), "{refused}");
}

/// I1: a live client belongs to this boot, whatever the file says.
#[test]
fn nothing_is_discarded_while_a_client_is_alive() {
    for boot in [None, Some(""), Some("another")] {
        let (_around, folder) = store();
        let mut other = start(&folder, "hold");
        other.expect("holds");
        match boot {
            None => fs::remove_file(folder.join("boot")).unwrap(),
            Some(boot) => fs::write(folder.join("boot"), boot).unwrap(),
        }
        let tenure = connect(&folder);
        assert!(block_on(tenure.lock("x").try_acquire()).unwrap().is_none(), "it has the lock");
        fs::remove_file(folder.join("data.mdb")).unwrap();
        drop(tenure);
        let mut third = start(&folder, "hold");
        assert!(!third.child.wait().unwrap().success(), "it has created a second store");
    }
}

/// Retries cannot succeed, and must not be frequent.
#[test]
fn a_waiter_in_a_removed_folder_does_not_burn_the_processor() {
    let (_around, folder) = store();
    let tenure = connect(&folder);
    let mut other = start(&folder, "hold");
    other.expect("holds");
    let mut waiter = start(&folder, "hold");
    until_waiting(&tenure, 1);
    fs::remove_dir_all(&folder).unwrap();
    // This wakes the waiter behind it.
    other.kill();
    let stat = format!("/proc/{}/stat", waiter.child.id());
    let used = || -> u64 {
        let stat = fs::read_to_string(&stat).unwrap();
        let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split(' ').collect();
        fields[12..14].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum()
    };
    let before = used();
    pass(Duration::from_secs(1));
    let ticks = used() - before;
    assert!(ticks < 20, "{ticks} hundredths of a second");
    waiter.kill();
}

/// I9: a renewal is refused with an error that says why, and the lease ends.
#[test]
fn a_holder_is_notified_that_its_folder_was_removed() {
    let (_around, folder) = store();
    let tenure = connect_once(&folder).unwrap();
    let lock = tenure.lock("x").lease(Duration::from_secs(1));
    let guard = block_on(lock.acquire()).unwrap();
    fs::rename(&folder, folder.with_extension("moved")).unwrap();
    let refused = block_on(guard.renew()).unwrap_err();
    assert!(matches!(refused, Error::Unreachable { .. }), "{refused:?}");
    assert!(refused.to_string().contains("removed or moved while in use"), "{refused}");
    let moved = now();
    assert_eq!(block_on(guard.lost()).why(), WhyLost::LeaseEnded);
    assert!(moved.elapsed() < Duration::from_secs(2));
}

/// The files of a new store have the same names.
#[test]
fn a_client_of_the_old_folder_removes_nothing_from_the_new_one() {
    let (_around, folder) = store();
    let mut old = start(&folder, "hold for a second");
    old.expect("holds");
    fs::remove_dir_all(&folder).unwrap();
    let mut new = start(&folder, "hold");
    new.expect("holds");
    let files = || fs::read_dir(folder.join("clients")).unwrap().count();
    assert_eq!(files(), 2);
    old.expect("lost");
    assert!(old.child.wait().unwrap().success());
    assert_eq!(files(), 2, "those of the client in the new folder");
}
