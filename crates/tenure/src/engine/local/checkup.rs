//! The state of the folder, its disk and its records, and the consequences for locks.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{StatVfs, statfs, statvfs};
use rustix::io::Errno;

use super::errors;
use super::folder::file_system::{self, FileSystem};
use super::liveness::client_files;
use super::storage::listing;
use super::storage::store::Store;
use super::storage::transaction::{Subject, Transaction};
use super::waiting::store_mutex::Patience;
use crate::clock;
use crate::core::name::LockName;
use crate::engine::ListRequest;
use crate::engine::checkup::{Finding, Severity};
use crate::error::StoreError;

/// A transaction takes microseconds; a longer one waits for another process.
const SLOW: Duration = Duration::from_millis(50);

/// A busy store of some thousand locks takes a few megabytes.
const LITTLE_SPACE: u64 = 16 << 20;

/// What the next few transactions may need.
const NO_SPACE: u64 = 1 << 20;

pub(super) fn checkup(store: &Store) -> Result<Vec<Finding>, StoreError> {
    let folder = store.folder();
    if let Err(removed) = store.store_folder.ensure_in_place() {
        let advice = "stop all processes that use it, and start them again";
        return Ok(vec![Finding::bad("folder", Severity::Problem, removed.to_string(), advice)]);
    }
    let of_files = |error| errors::of_files(folder, &error);
    let of_disk = |error: Errno| of_files(error.into());
    Ok(vec![
        permissions(folder).map_err(of_files)?,
        file_system(file_system::kind_of(&statfs(folder).map_err(of_disk)?)),
        space(&statvfs(folder).map_err(of_disk)?),
        map(store)?,
        records(store)?,
        clients(store)?,
        latency(store)?,
    ])
}

/// A new client checks this too, but the mode may have changed since.
fn permissions(folder: &Path) -> io::Result<Finding> {
    let found = fs::metadata(folder)?;
    let mode = found.mode() & 0o777;
    let found = format!("`{}`, with mode {mode:o}", folder.display());
    if mode & 0o077 == 0 {
        return Ok(Finding::fine("folder", found));
    }
    let advice = "close it with `chmod 700`: a user who can write there can take every lock, and new \
                  clients are refused";
    Ok(Finding::bad("folder", Severity::Problem, found, advice))
}

fn file_system(file_system: FileSystem) -> Finding {
    match file_system {
        FileSystem::Local(kind) => Finding::fine("file system", kind),
        FileSystem::Shared(kind) => Finding::bad(
            "file system",
            Severity::Problem,
            format!("{kind}: one machine may not see what another maps or locks there"),
            "use a folder on a disk of this machine, or a server for several machines",
        ),
        FileSystem::Virtual(kind) => Finding::bad(
            "file system",
            Severity::Problem,
            format!("{kind}: a program provides it, and decides whether maps and locks work"),
            "use a folder on a disk of this machine: new clients are refused here",
        ),
        FileSystem::Unknown(number) => Finding::bad(
            "file system",
            Severity::Warning,
            format!("of an unknown kind ({number:#x})"),
            "make sure that it is a disk of this machine, and not shared over a network",
        ),
    }
}

fn space(disk: &StatVfs) -> Finding {
    let left = disk.f_bavail.saturating_mul(disk.f_frsize);
    // Some file systems do not count files, and report zero.
    let has_no_files = disk.f_files > 0 && disk.f_favail < 16;
    let found = format!("{} MiB are left on the disk", left >> 20);
    let severity = match left {
        _ if has_no_files => {
            let found = "the disk can hold no more files: new clients are refused";
            return Finding::bad(
                "space",
                Severity::Problem,
                found,
                "remove files that are not used",
            );
        }
        ..NO_SPACE => Severity::Problem,
        NO_SPACE..LITTLE_SPACE => Severity::Warning,
        _ => return Finding::fine("space", found),
    };
    let advice = "free some space: on a full disk, acquires and renewals may be refused";
    Finding::bad("space", severity, found, advice)
}

fn map(store: &Store) -> Result<Finding, StoreError> {
    let quota = Transaction::begin(store, Patience::Long)?.quota()?;
    let (used, limit) = (quota.used >> 10, quota.limit() >> 10);
    let found = format!("{used} of {limit} KiB are used by locks and waiters");
    let advice = "release locks that are not needed: a full store takes no new locks or waiters";
    let severity = match quota.used {
        used if used >= quota.limit() => Severity::Problem,
        used if used >= quota.limit() / 4 * 3 => Severity::Warning,
        _ => return Ok(Finding::fine("store", found)),
    };
    Ok(Finding::bad("store", severity, found, advice))
}

/// Reads every lock, in slices as a list does.
fn records(store: &Store) -> Result<Finding, StoreError> {
    let all = ListRequest { prefix: String::new(), limit: usize::MAX };
    let locks = listing::list(store, all)?;
    let unreadable: Vec<_> = locks.iter().filter_map(|lock| lock.error.as_ref()).collect();
    let Some(first) = unreadable.first() else {
        return Ok(Finding::fine("records", format!("all {} locks can be read", locks.len())));
    };
    let found = format!("{} of {} locks cannot be read: {first}", unreadable.len(), locks.len());
    let advice = "these cannot be taken or released; stop all processes that use the folder, delete it, \
                  and find the program that writes there";
    Ok(Finding::bad("records", Severity::Problem, found, advice))
}

fn clients(store: &Store) -> Result<Finding, StoreError> {
    // Holds the store's mutex: without it, the count could make a new client fail to lock its file.
    let _transaction = Transaction::begin(store, Patience::Long)?;
    let live = client_files::count_live(&store.clients);
    let live = live.map_err(|error| errors::of_files(store.folder(), &error))?;
    Ok(Finding::fine("clients", format!("{live}, with this one")))
}

fn latency(store: &Store) -> Result<Finding, StoreError> {
    let name =
        LockName::new("tenure-doctor").map_err(|error| StoreError::refused(error.to_string()))?;
    let mut slowest = Duration::ZERO;
    for _ in 0..10 {
        let begun = clock::now();
        store.perform(Patience::Long, Subject::Inspected(&name), |table, now, effects| {
            table.inspect(&name, now, effects)
        })?;
        slowest = slowest.max(clock::now().since(begun));
    }
    let found = format!("the slowest of ten operations took {slowest:.1?}");
    if slowest < SLOW {
        return Ok(Finding::fine("latency", found));
    }
    let advice = "check for a process that is stopped within an operation, for locks with many \
                  thousands of waiters, and for an overloaded machine";
    Ok(Finding::bad("latency", Severity::Warning, found, advice))
}
