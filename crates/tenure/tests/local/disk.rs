//! Full disks: operations that do not fit are refused, and nothing else is affected.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use tenure::blocking::block_on;
use tenure::{Error, Guard, Tenure};

use super::namespace;
use super::other::start;
use crate::{LONG, connect_once, now, until_waiting};

const PAGE: u64 = 4096;

/// Writing to a mapped page without a disk block would kill the process with a signal.
#[test]
fn wherever_the_disk_ends_a_store_is_opened_or_refused() {
    namespace::run(&namespace::small_disk("size=1m"), "open as the disk ends");
}

pub(crate) fn open_as_the_disk_ends(folder: &Path) {
    let mut refused = 0;
    for left in 0..16 {
        let folder = folder.with_extension(left.to_string());
        let filler = fill(&folder, left);
        let opened = connect_once(&folder);
        let taken = opened.and_then(|tenure| block_on(tenure.lock("x").try_acquire()));
        if let Err(error) = taken {
            assert_is_refused(&error, &folder);
            refused += 1;
        }
        fs::remove_file(filler).unwrap();
        let again = connect_once(&folder).unwrap();
        drop(block_on(again.lock("y").try_acquire()).unwrap().unwrap());
    }
    assert!((3..14).contains(&refused), "{refused} were refused: the disk has another size");
}

#[test]
fn a_full_disk_refuses_what_does_not_fit_and_harms_nothing() {
    namespace::run(&namespace::small_disk("size=2m"), "fill the disk");
}

pub(crate) fn fill_the_disk(folder: &Path) {
    let tenure = connect_once(folder).unwrap();
    let kept = block_on(tenure.lock("x").acquire()).unwrap();
    let mut waiter = start(folder, "hold");
    until_waiting(&tenure, 1);
    for round in 0..20 {
        // The free space varies, so that some writes are partial.
        let filler = fill(folder, round % 7);
        let taken = take_until_refused(&tenure, folder, round);
        use_full_disk(&tenure, folder, &kept, taken);
        fs::remove_file(filler).unwrap();
        block_on(kept.renew()).unwrap();
    }
    // Releases that failed are retried in the background.
    let begun = now();
    while block_on(tenure.list("", 10)).unwrap().len() > 1 {
        assert!(begun.elapsed() < LONG, "a released lock is not free");
        std::thread::yield_now();
    }
    assert_eq!(block_on(kept.release()).unwrap(), tenure::Released::Now);
    waiter.expect("holds");
}

fn take_until_refused(tenure: &Tenure, folder: &Path, round: u64) -> Vec<Guard> {
    let mut taken = Vec::new();
    loop {
        // Long names fill a page quickly.
        let name = format!("{round}/{:0>400}", taken.len());
        match block_on(tenure.lock(name).lease(LONG).try_acquire()) {
            Ok(guard) => taken.push(guard.unwrap()),
            Err(error) => {
                assert_is_refused(&error, folder);
                return taken;
            }
        }
    }
}

/// Holders keep their locks, and operations that need no space succeed.
fn use_full_disk(tenure: &Tenure, folder: &Path, kept: &Guard, taken: Vec<Guard>) {
    for guard in taken.iter().chain([kept]) {
        guard.ensure_held().unwrap();
        let info = block_on(tenure.lock(guard.name().as_str()).inspect()).unwrap();
        assert_eq!(info.holders.len(), 1);
        assert_eq!(info.holders[0].fence, guard.fence());
    }
    let renewed = block_on(kept.renew());
    renewed.unwrap_or_else(|error| assert_is_refused(&error, folder));
    if let Err(error) = connect_once(folder) {
        assert_is_refused(&error, folder);
    }
    let (names, released): (Vec<_>, Vec<_>) =
        taken.into_iter().map(|guard| (guard.name().clone(), block_on(guard.release()))).unzip();
    for (name, released) in names.iter().zip(released) {
        match released {
            Ok(_) => {
                let info = block_on(tenure.lock(name.as_str()).inspect()).unwrap();
                assert!(info.is_free(), "{info:?}");
            }
            Err(error) => assert_is_refused(&error, folder),
        }
    }
}

#[test]
fn a_read_only_disk_is_refused() {
    namespace::run(&namespace::small_disk("size=1m,ro"), "open on a read-only disk");
}

pub(crate) fn open_read_only(folder: &Path) {
    let around = folder.parent().unwrap();
    for folder in [around, folder] {
        let refused = connect_once(folder).unwrap_err();
        assert_is_refused(&refused, folder);
        assert!(refused.to_string().contains("Read-only file system"), "{refused}");
    }
}

/// Writes a file beside the store, which leaves this many free pages on the disk.
pub(crate) fn fill(folder: &Path, left: u64) -> PathBuf {
    let path = folder.with_file_name("filler");
    let mut file = File::create(&path).unwrap();
    let full = loop {
        if let Err(error) = file.write_all(&[0; PAGE as usize]) {
            break error;
        }
    };
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    let length = file.metadata().unwrap().len();
    file.set_len(length - left * PAGE).unwrap();
    path
}

/// The error names the folder, and says that nothing was done (I6).
fn assert_is_refused(error: &Error, folder: &Path) {
    assert!(matches!(error, Error::Unreachable { .. } | Error::Connect { .. }), "{error:?}");
    let sentence = error.to_string();
    assert!(sentence.contains(&folder.display().to_string()), "{sentence}");
}
