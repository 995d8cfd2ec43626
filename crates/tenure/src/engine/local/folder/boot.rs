//! What an earlier boot of the machine has left is thrown away, unread: nobody who held a lock
//! lives through a reboot, the steady clock begins anew, and a file that was never synced may be
//! broken.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use rustix::param::page_size;

use super::location::{CLIENTS, DATA};
use crate::engine::local::liveness::client_files;

/// What is another one after every start of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The files of LMDB.
const FILES: [&str; 2] = [DATA, "lock.mdb"];

/// LMDB's pages are the machine's, but not larger than this.
const MAX_PAGE: usize = 0x8000;

/// Removes what another boot has left. Only for the process that has the turn: no other then begins, and
/// none is between making a client's file and locking it.
pub(crate) fn begin(folder: &Path) -> io::Result<()> {
    let path = folder.join("boot");
    // What is no file, as a pipe, might never end.
    if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "`boot` is no file"));
    }
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let mut file = options.open(path)?;
    let boot = fs::read_to_string(BOOT_ID)?;
    let mut known = String::new();
    let is_known = file.read_to_string(&mut known).is_ok() && known == boot;
    let data = data_in(folder)?;
    if is_known && data == Data::Whole {
        return Ok(());
    }
    // No lock on a file outlives a boot: whoever has one is of this boot, whatever the file says.
    if client_files::count_live(&folder.join(CLIENTS))? == 0 {
        remove_all(folder)?;
    } else if data != Data::Whole {
        return Err(io::Error::other(format!(
            "`{DATA}` was removed or cut while in use; stop everyone who uses the folder, and start \
             them again"
        )));
    }
    // Last: whoever fails before lets the next one do all of it again.
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
enum Data {
    Missing,
    /// The first one was killed, or out of space, while LMDB wrote its first two pages: it would
    /// never open that file again, and nobody has used it.
    Begun,
    Whole,
}

fn data_in(folder: &Path) -> io::Result<Data> {
    let first_pages = 2 * page_size().min(MAX_PAGE) as u64;
    match fs::metadata(folder.join(DATA)) {
        Ok(found) if found.len() < first_pages => Ok(Data::Begun),
        Ok(_) => Ok(Data::Whole),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Data::Missing),
        Err(error) => Err(error),
    }
}
