//! A client as the others see it: a lock file that is locked while it lives, and a socket that
//! takes its wake-ups.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use rustix::fs::{FlockOperation, flock, fstat};
use rustix::io::{FdFlags, fcntl_setfd};

use super::lock_files::LockFiles;
use super::message;
use super::store_folder::Identity;
use crate::core::table::ClientId;
use crate::engine::{Listener, Wakeup};
use crate::sync::lock;

/// The file that is locked as long as a client lives.
pub(super) fn lock_file(clients: &Path, client_id: ClientId) -> PathBuf {
    clients.join(format!("{client_id}.lock"))
}

fn socket_file(clients: &Path, client_id: ClientId) -> PathBuf {
    clients.join(format!("{client_id}.sock"))
}

/// There when a wake-up did not fit in the socket any more.
fn missed_file(clients: &Path, client_id: ClientId) -> PathBuf {
    clients.join(format!("{client_id}.missed"))
}

/// Locked by a client's own process alone, once others may inherit its lock file.
fn own_file(clients: &Path, client_id: ClientId) -> PathBuf {
    clients.join(format!("{client_id}.own"))
}

/// Whoever hears the wake-ups of one client.
pub(super) struct Ear {
    pub(super) client_id: ClientId,
    listener: Mutex<Option<Weak<dyn Listener>>>,
    is_closed: AtomicBool,
}

impl Ear {
    pub(super) fn listen(&self, listener: Weak<dyn Listener>) {
        *lock(&self.listener) = Some(listener);
    }

    /// False if nobody listens any more.
    pub(super) fn wake(&self, wakeup: Wakeup) -> bool {
        let listener = lock(&self.listener).as_ref().and_then(Weak::upgrade);
        listener.map(|listener| listener.wake(wakeup)).is_some()
    }
}

/// The files of a client of this process, until it is dropped or the process ends.
pub(super) struct Presence {
    clients: PathBuf,
    process: u32,
    socket: Arc<UnixDatagram>,
    pub(super) ear: Arc<Ear>,
    // Unlocked when it is closed, by whoever closes it: that is how others learn of our end.
    alive: File,
    /// Tells our own end, when others keep the first file locked.
    own: Mutex<Option<File>>,
    identity: Identity,
    file: PathBuf,
}

impl Presence {
    /// Makes the files, and starts the thread that hears. Only for whoever has the turn, so that
    /// nobody takes a file for stale before it is locked.
    pub(super) fn begin(clients: &Path, client_id: ClientId) -> io::Result<Self> {
        remove_files(clients, client_id);
        let file = lock_file(clients, client_id);
        let alive = File::create_new(&file)?;
        flock(&alive, FlockOperation::NonBlockingLockExclusive)?;
        let socket = Arc::new(UnixDatagram::bind(socket_file(clients, client_id))?);
        let ear = Arc::new(Ear {
            client_id,
            listener: Mutex::default(),
            is_closed: AtomicBool::new(false),
        });
        let presence = Self {
            clients: clients.to_owned(),
            process: std::process::id(),
            socket: socket.clone(),
            ear: ear.clone(),
            identity: Identity::of(&alive)?,
            alive,
            own: Mutex::default(),
            file,
        };
        let missed = missed_file(clients, client_id);
        let thread = std::thread::Builder::new().name("tenure-local".into());
        thread.spawn(move || hear(&socket, &ear, &missed))?;
        Ok(presence)
    }

    /// Whether others find our lock file, and so know that we live: not if the folder was removed,
    /// moved or made anew, nor if somebody has removed the file.
    pub(super) fn is_there(&self) -> bool {
        self.identity.is_at(&self.file)
    }

    /// False if our lock file was removed, alone or with its folder. Whether it was moved is not
    /// seen here.
    pub(super) fn is_linked(&self) -> bool {
        fstat(&self.alive).is_ok_and(|found| found.st_nlink > 0)
    }

    /// Processes that are started from now on keep the lock file locked, too, and a second file, which they
    /// do not inherit, tells whether we live.
    pub(super) fn share_with_children(&self) -> io::Result<()> {
        let mut own = lock(&self.own);
        if own.is_none() {
            let file = File::create(own_file(&self.clients, self.ear.client_id))?;
            // Another may be asking for it at this moment.
            flock(&file, FlockOperation::LockExclusive)?;
            *own = Some(file);
            fcntl_setfd(&self.alive, FdFlags::empty())?;
        }
        Ok(())
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // A forked child has no say in what its parent is.
        if std::process::id() != self.process {
            return;
        }
        self.ear.is_closed.store(true, Ordering::Release);
        // In a folder that was made anew, they are another client's.
        if self.is_there() {
            remove_files(&self.clients, self.ear.client_id);
        }
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// Passes on what comes, until the client is gone.
fn hear(socket: &UnixDatagram, ear: &Ear, missed: &Path) {
    let mut buffer = [0; message::MAX_BYTES];
    loop {
        let received = socket.recv(&mut buffer);
        if ear.is_closed.load(Ordering::Acquire) {
            return;
        }
        match received {
            Ok(length) => {
                // What is no wake-up is nobody's; a hint less.
                if let Ok(wakeup) = message::decode(&buffer[..length]) {
                    ear.wake(wakeup);
                }
                if fs::remove_file(missed).is_ok() {
                    ear.wake(Wakeup::Missed);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Sends a wake-up to a client of another process; false if that client is gone.
pub(super) fn send(
    from: &UnixDatagram,
    clients: &Path,
    client_id: ClientId,
    wakeup: &Wakeup,
) -> bool {
    let bytes = message::encode(wakeup);
    let to = socket_file(clients, client_id);
    let sent = from.send_to(&bytes, &to);
    let sent = match sent {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            send_anew(&bytes, clients, client_id)
        }
        sent => sent,
    };
    !sent.is_err_and(|error| is_gone_by(&error))
}

/// What nobody has read counts as its sender's, so that a client that is stopped may fill the
/// sender for all others; a new one is empty. If it is the client's own socket that is full, the
/// client will read on, and then find a file. Sent again, because it may have read all of it
/// before the file was there.
fn send_anew(bytes: &[u8], clients: &Path, client_id: ClientId) -> io::Result<usize> {
    let to = socket_file(clients, client_id);
    let from = UnixDatagram::unbound()?;
    from.set_nonblocking(true)?;
    match from.send_to(bytes, &to) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let _ = File::create(missed_file(clients, client_id));
            from.send_to(bytes, &to)
        }
        sent => sent,
    }
}

fn is_gone_by(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, NotFound};
    matches!(error.kind(), BrokenPipe | ConnectionRefused | NotFound)
}

/// Whether a client's number is free: its file is gone, or nobody has it locked. Only for whoever
/// has the turn: one who is about to lock its file would find it locked.
pub(super) fn is_stale(clients: &Path, client_id: ClientId) -> bool {
    LockFiles::default().has_ended(clients, client_id)
}

/// Whether a client whose lock file is locked has itself ended, and left what it holds to processes that it
/// had started.
pub(super) fn is_inherited(clients: &Path, client_id: ClientId) -> bool {
    // Without the file it has left nothing; whatever else is wrong here, it is no proof of an end.
    let own = File::open(own_file(clients, client_id));
    own.is_ok_and(|own| flock(&own, FlockOperation::NonBlockingLockShared).is_ok())
}

/// How many clients there are that have not ended. Only for whoever has the turn.
pub(super) fn count_live(clients: &Path) -> io::Result<usize> {
    let routes = routes_in(clients)?;
    Ok(routes.into_iter().filter(|&client_id| !is_stale(clients, client_id)).count())
}

/// Removes the files of clients that ended without doing so. Only for whoever has the turn.
pub(super) fn remove_stale(clients: &Path) -> io::Result<()> {
    for client_id in routes_in(clients)? {
        if is_stale(clients, client_id) {
            remove_files(clients, client_id);
        }
    }
    Ok(())
}

/// The clients that have files, each once.
fn routes_in(clients: &Path) -> io::Result<BTreeSet<ClientId>> {
    let client_id = |file: io::Result<fs::DirEntry>| {
        let name = file?.file_name();
        Ok(name.to_str().and_then(|it| it.split_once('.')?.0.parse().ok()))
    };
    fs::read_dir(clients)?.filter_map(|file| client_id(file).transpose()).collect()
}

fn remove_files(clients: &Path, client_id: ClientId) {
    for file in [lock_file, socket_file, missed_file, own_file] {
        let _ = fs::remove_file(file(clients, client_id));
    }
}
