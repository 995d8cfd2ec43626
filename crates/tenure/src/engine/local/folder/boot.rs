//! Discards the files of an earlier boot of the machine, unread: no client survives a reboot, the monotonic clock
//! starts anew, and a file that was never synced may be corrupt.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use rustix::param::page_size;

use super::location::{CLIENTS, DATA};
use crate::engine::local::liveness::client_files;

/// A random id that changes with every boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// LMDB's files.
const FILES: [&str; 2] = [DATA, "lock.mdb"];

/// LMDB uses the machine's page size, but not a larger one than this.
const MAX_PAGE: usize = 0x8000;

/// Removes the files of another boot. The caller holds the store's mutex: no other process is opening the store, or
/// between creating a client's file and locking it.
pub(crate) fn discard_earlier_boot(folder: &Path) -> io::Result<()> {
    let path = folder.join("boot");
    // Reading a pipe might block for ever.
    if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "`boot` is not a regular file"));
    }
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let mut file = options.open(path)?;
    let boot = fs::read_to_string(BOOT_ID)?;
    let mut recorded = String::new();
    let is_recorded = file.read_to_string(&mut recorded).is_ok() && recorded == boot;
    let data = data_state(folder)?;
    if is_recorded && data == DataFile::Whole {
        return Ok(());
    }
    // No file lock outlives a boot: a client that has one belongs to this boot, whatever the file says.
    if client_files::count_live(&folder.join(CLIENTS))? == 0 {
        remove_all(folder)?;
    } else if data != DataFile::Whole {
        return Err(io::Error::other(format!(
            "`{DATA}` was removed or truncated while in use; stop all processes that use the folder, \
             and start them again"
        )));
    }
    // Last, so that the next process repeats all of it if this one fails before.
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(boot.as_bytes())
}

fn remove_all(folder: &Path) -> io::Result<()> {
    for name in FILES {
        match fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DataFile {
    Missing,
    /// The first process was killed, or out of space, while LMDB wrote its first two pages: LMDB would never open
    /// that file again, and it has never been used.
    Incomplete,
    Whole,
}

fn data_state(folder: &Path) -> io::Result<DataFile> {
    let first_pages = 2 * page_size().min(MAX_PAGE) as u64;
    match fs::metadata(folder.join(DATA)) {
        Ok(found) if found.len() < first_pages => Ok(DataFile::Incomplete),
        Ok(_) => Ok(DataFile::Whole),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(DataFile::Missing),
        Err(error) => Err(error),
    }
}
