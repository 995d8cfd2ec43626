//! The files of the clients, in a folder of their own: a lock file, a socket, and two that are there now and then.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::lock_files::LockFiles;
use crate::core::table::ClientId;

/// Locked while the client is alive.
pub(crate) fn lock_file(clients: &Path, client_id: ClientId) -> PathBuf {
    clients.join(format!("{client_id}.lock"))
}

/// Receives the client's wake-ups.
pub(crate) fn socket_file(clients: &Path, client_id: ClientId) -> PathBuf {
    clients.join(format!("{client_id}.sock"))
}

/// Exists when a wake-up did not fit in the socket.
pub(crate) fn missed_file(clients: &Path, client_id: ClientId) -> PathBuf {
    clients.join(format!("{client_id}.missed"))
}

/// Locked by the client's own process alone, once its children may inherit its lock file.
pub(crate) fn own_file(clients: &Path, client_id: ClientId) -> PathBuf {
    clients.join(format!("{client_id}.own"))
}

/// Whether a client's number is free: its lock file is missing or unlocked. The caller holds the store's mutex:
/// without it, this check could make a new client fail to lock its file.
pub(crate) fn is_stale(clients: &Path, client_id: ClientId) -> bool {
    LockFiles::default().has_ended(clients, client_id)
}

/// Whether a client whose lock file is locked has itself ended, and its children have inherited its holds.
pub(crate) fn is_inherited(clients: &Path, client_id: ClientId) -> bool {
    // Without the file there are no heirs; any other error is no proof that the client has ended.
    let own = File::open(own_file(clients, client_id));
    own.is_ok_and(|own| flock(&own, FlockOperation::NonBlockingLockShared).is_ok())
}

/// The number of clients that have not ended. The caller holds the store's mutex.
pub(crate) fn count_live(clients: &Path) -> io::Result<usize> {
    let ids = ids_in(clients)?;
    Ok(ids.into_iter().filter(|&client_id| !is_stale(clients, client_id)).count())
}

/// Removes the files of clients that ended without removing them. The caller holds the store's mutex.
pub(crate) fn remove_stale(clients: &Path) -> io::Result<()> {
    for client_id in ids_in(clients)? {
        if is_stale(clients, client_id) {
            remove(clients, client_id);
        }
    }
    Ok(())
}

/// The clients that have files, each once.
fn ids_in(clients: &Path) -> io::Result<BTreeSet<ClientId>> {
    let client_id = |file: io::Result<fs::DirEntry>| {
        let name = file?.file_name();
        Ok(name.to_str().and_then(|it| it.split_once('.')?.0.parse().ok()))
    };
    fs::read_dir(clients)?.filter_map(|file| client_id(file).transpose()).collect()
}

pub(crate) fn remove(clients: &Path, client_id: ClientId) {
    for file in [lock_file, socket_file, missed_file, own_file] {
        let _ = fs::remove_file(file(clients, client_id));
    }
}
