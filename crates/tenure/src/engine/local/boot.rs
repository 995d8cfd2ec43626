//! What an earlier boot of the machine has left is thrown away, unread: nobody who held a lock
//! lives through a reboot, the steady clock begins anew, and a file that was never synced may be
//! broken.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::param::page_size;

/// What is another one after every start of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The files of LMDB.
const FILES: [&str; 2] = ["data.mdb", "lock.mdb"];

/// LMDB's pages are the machine's, but not larger than this.
const MAX_PAGE: usize = 0x8000;

/// Removes what another boot has left. The file that is returned is locked: while it is open,
/// nobody else begins.
pub(super) fn begin(folder: &Path) -> io::Result<File> {
    let boot = fs::read_to_string(BOOT_ID)?;
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let mut file = options.open(folder.join("boot"))?;
    flock(&file, FlockOperation::LockExclusive)?;
    let mut known = String::new();
    let is_read = file.read_to_string(&mut known).is_ok();
    if is_read && known == boot && is_whole(folder)? {
        return Ok(file);
    }
    for name in FILES {
        match fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    // Last: whoever fails before lets the next one do all of it again.
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(boot.as_bytes())?;
    Ok(file)
}

/// False if the first one was killed, or out of space, while LMDB wrote its first two pages: it
/// would never open that file again, and nobody has used it.
fn is_whole(folder: &Path) -> io::Result<bool> {
    let first_pages = 2 * page_size().min(MAX_PAGE) as u64;
    match fs::metadata(folder.join(FILES[0])) {
        Ok(found) => Ok(found.len() >= first_pages),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}
