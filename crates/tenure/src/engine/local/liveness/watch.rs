//! Wakes waiters at the moment when a client ahead of them ends.
//!
//! A thread per watched client blocks on the lock of its file, which the kernel grants when the client's process has
//! ended, however it ended. The thread ends with the client that it watches; all waiters of this process behind that
//! client share it, also later ones.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::engine::Wakeup;
use crate::engine::local::waiting::receiver::Receiver;
use crate::sync::lock;

/// The limit of threads: a waiter behind further clients polls within seconds instead. A blocked thread cannot be
/// cancelled, so that it stays as long as the client that it watches, even without waiters.
const MAX_THREADS: usize = 64;

/// The receivers to wake when a client ends, by its lock file.
static WATCHED: Mutex<Option<HashMap<PathBuf, Vec<Weak<Receiver>>>>> = Mutex::new(None);

/// Wakes `receiver` with [`Wakeup::Missed`] when the client with this lock file ends.
pub(crate) fn watch(file: PathBuf, receiver: &Arc<Receiver>) {
    let mut guard = lock(&WATCHED);
    let watched = guard.get_or_insert_default();
    if let Some(receivers) = watched.get_mut(&file) {
        receivers.retain(|it| it.strong_count() > 0);
        if !receivers.iter().any(|it| std::ptr::eq(it.as_ptr(), Arc::as_ptr(receiver))) {
            receivers.push(Arc::downgrade(receiver));
        }
        return;
    }
    if watched.len() >= MAX_THREADS {
        return;
    }
    watched.insert(file.clone(), vec![Arc::downgrade(receiver)]);
    let thread = std::thread::Builder::new().name("tenure-watch".into());
    let watching = file.clone();
    if thread.spawn(move || wait(&watching)).is_err() {
        watched.remove(&file);
    }
}

fn wait(file: &Path) {
    let has_ended = wait_for_end(file);
    let receivers = lock(&WATCHED).as_mut().and_then(|watched| watched.remove(file));
    if !has_ended {
        return;
    }
    for receiver in receivers.iter().flatten().filter_map(Weak::upgrade) {
        receiver.wake(Wakeup::Missed);
    }
}

/// True when the client has ended; false if the file cannot be opened or locked.
fn wait_for_end(file: &Path) -> bool {
    let opened = match File::open(file) {
        Ok(opened) => opened,
        Err(error) => return error.kind() == std::io::ErrorKind::NotFound,
    };
    loop {
        match flock(&opened, FlockOperation::LockShared) {
            Err(Errno::INTR) => {}
            result => return result.is_ok(),
        }
    }
}
