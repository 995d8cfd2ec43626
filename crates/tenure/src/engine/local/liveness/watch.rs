//! Notices the end of a client that others wait behind, the moment it ends.
//!
//! A thread per watched client waits for the lock on its file, which the kernel gives when the
//! process is gone, however it went. The thread ends with the client it watches; it is shared by
//! everyone in this process who waits behind that client, also by those who come later.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::engine::Wakeup;
use crate::engine::local::waiting::receiver::Receiver;
use crate::sync::lock;

/// More threads than this are not started: whoever waits behind further clients asks again
/// within seconds. A thread cannot be called off, so it stays as long as the client it watches, also
/// when nobody waits behind that one any more.
const MOST: usize = 64;

/// Who wants to know of the end of which client, by its lock file.
static WATCHED: Mutex<Option<HashMap<PathBuf, Vec<Weak<Receiver>>>>> = Mutex::new(None);

/// Tells `receiver` that it may have missed something when the client with this lock file ends.
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
    if watched.len() >= MOST {
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
    let has_ended = until_end(file);
    let receivers = lock(&WATCHED).as_mut().and_then(|watched| watched.remove(file));
    if !has_ended {
        return;
    }
    for receiver in receivers.iter().flatten().filter_map(Weak::upgrade) {
        receiver.wake(Wakeup::Missed);
    }
}

/// True when the client has ended; false if that cannot be waited for.
fn until_end(file: &Path) -> bool {
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
