//! A folder that is removed while it is in use: those who hold a lock in it learn that they are on
//! their own, and do no harm to those who begin anew.

use std::fs;
use std::time::Duration;

use tenure::blocking::block_on;
use tenure::{Error, WhyLost};

use super::other::start;
use crate::{connect, connect_impatiently, now, store};

/// I1: in the old store, nobody's missing file is taken for an end.
#[test]
fn nobody_is_taken_for_gone_because_the_folder_is() {
    let (_around, folder) = store();
    let tenure = connect(&folder);
    let mut other = start(&folder, "hold");
    other.expect("holds");
    fs::remove_dir_all(&folder).unwrap();
    assert!(block_on(tenure.lock("x").try_acquire()).unwrap().is_none(), "it lives");
}

/// I9: a renewal is refused, in a sentence that says why, and the lease ends.
#[test]
fn a_holder_learns_that_its_folder_was_removed() {
    let (_around, folder) = store();
    let tenure = connect_impatiently(&folder).unwrap();
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
fn who_leaves_the_old_folder_takes_nothing_from_the_new_one() {
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
    assert_eq!(files(), 2, "those of the one in the new folder");
}
