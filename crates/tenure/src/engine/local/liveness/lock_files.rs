//! Whether other clients are alive: their lock files, kept open so that a check is one system call.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Mutex;

use rustix::fs::{FlockOperation, flock};

use super::client_files;
use crate::core::table::ClientId;
use crate::sync::lock;

/// How many files are kept open.
const MAX_OPEN: usize = 64;

/// The lock files of clients that were alive at the last check.
#[derive(Default)]
pub(crate) struct LockFiles(Mutex<HashMap<ClientId, File>>);

impl LockFiles {
    /// Whether a client has ended: its file is missing or unlocked. A removed file belonged to a client that ended,
    /// so that a descriptor opened before gives the same answer.
    pub(crate) fn has_ended(&self, clients: &Path, client_id: ClientId) -> bool {
        let mut lock_files = lock(&self.0);
        let file = match lock_files.remove(&client_id) {
            Some(file) => file,
            None => match File::open(client_files::lock_file(clients, client_id)) {
                Ok(file) => file,
                // Any other error is no proof that the client has ended.
                Err(error) => return error.kind() == std::io::ErrorKind::NotFound,
            },
        };
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            return true;
        }
        if lock_files.len() >= MAX_OPEN
            && let Some(&other) = lock_files.keys().next()
        {
            // Any one will do: the others remain open.
            lock_files.remove(&other);
        }
        lock_files.insert(client_id, file);
        false
    }
}
