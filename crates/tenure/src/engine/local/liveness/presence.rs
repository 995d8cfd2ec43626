//! A client of this process, as other clients see it: a lock file that is locked while the client is alive, and a
//! socket for its wake-ups.

use std::fs::File;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{FlockOperation, flock, fstat};
use rustix::io::{FdFlags, fcntl_setfd};

use super::client_files::{self, lock_file, own_file, socket_file};
use crate::core::table::ClientId;
use crate::engine::local::folder::store_folder::Identity;
use crate::engine::local::waiting::receiver::Receiver;
use crate::sync::lock;

/// The files of a client of this process, until it is dropped or the process ends.
pub(crate) struct Presence {
    clients: PathBuf,
    process: u32,
    socket: Arc<UnixDatagram>,
    pub(crate) receiver: Arc<Receiver>,
    // Closing the file unlocks it, also when the kernel does it: that is how other clients detect our end.
    lock_file: File,
    /// Locked by this process alone, when children may keep the lock file locked.
    own_file: Mutex<Option<File>>,
    identity: Identity,
    path: PathBuf,
}

impl Presence {
    /// Creates the files, and starts the thread that receives wake-ups. The caller holds the store's mutex, so that
    /// no other client takes the lock file for stale before it is locked.
    pub(crate) fn begin(clients: &Path, client_id: ClientId) -> io::Result<Self> {
        client_files::remove(clients, client_id);
        let path = lock_file(clients, client_id);
        let lock_file = File::create_new(&path)?;
        flock(&lock_file, FlockOperation::NonBlockingLockExclusive)?;
        let socket = Arc::new(UnixDatagram::bind(socket_file(clients, client_id))?);
        let presence = Self {
            clients: clients.to_owned(),
            process: std::process::id(),
            socket: socket.clone(),
            receiver: Receiver::new(client_id),
            identity: Identity::of(&lock_file)?,
            lock_file,
            own_file: Mutex::default(),
            path,
        };
        presence.receiver.start(clients, socket)?;
        Ok(presence)
    }

    /// Whether other clients find our lock file. They do not if the folder was removed, moved or replaced, or if the
    /// file was removed.
    pub(crate) fn is_visible(&self) -> bool {
        self.identity.is_at(&self.path)
    }

    /// False if our lock file was removed, alone or with its folder. A move is not detected here.
    pub(crate) fn is_linked(&self) -> bool {
        fstat(&self.lock_file).is_ok_and(|found| found.st_nlink > 0)
    }

    /// From now on, child processes inherit the lock file and keep it locked. A second file, which they do not
    /// inherit, shows whether this process itself is alive.
    pub(crate) fn share_with_children(&self) -> io::Result<()> {
        let mut own = lock(&self.own_file);
        if own.is_none() {
            let file = File::create(own_file(&self.clients, self.receiver.client_id))?;
            // Blocking: another client may be testing this lock right now.
            flock(&file, FlockOperation::LockExclusive)?;
            *own = Some(file);
            fcntl_setfd(&self.lock_file, FdFlags::empty())?;
        }
        Ok(())
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // A forked child must not end its parent's client.
        if std::process::id() != self.process {
            return;
        }
        self.receiver.close();
        // In a folder that was replaced, the files of this name belong to another client.
        if self.is_visible() {
            client_files::remove(&self.clients, self.receiver.client_id);
        }
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}
