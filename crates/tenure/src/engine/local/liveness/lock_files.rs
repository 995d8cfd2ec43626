//! Whether other clients live: their lock files, kept open to be asked quickly.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Mutex;

use rustix::fs::{FlockOperation, flock};

use super::client_files;
use crate::core::table::ClientId;
use crate::sync::lock;

/// More files than this are not kept open.
const MOST: usize = 64;

/// The lock files of clients that were alive when they were last asked for.
#[derive(Default)]
pub(crate) struct LockFiles(Mutex<HashMap<ClientId, File>>);

impl LockFiles {
    /// Whether a client has ended: its file is gone, or nobody has it locked. A file that is gone
    /// was one of a client that ended, so one that was opened before tells the same.
    pub(crate) fn has_ended(&self, clients: &Path, client_id: ClientId) -> bool {
        let mut lock_files = lock(&self.0);
        let file = match lock_files.remove(&client_id) {
            Some(file) => file,
            None => match File::open(client_files::lock_file(clients, client_id)) {
                Ok(file) => file,
                // Whatever else is wrong here, it is no proof of an end.
                Err(error) => return error.kind() == std::io::ErrorKind::NotFound,
            },
        };
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            return true;
        }
        if lock_files.len() >= MOST
            && let Some(&other) = lock_files.keys().next()
        {
            // Any one: the others are still asked quickly.
            lock_files.remove(&other);
        }
        lock_files.insert(client_id, file);
        false
    }
}
