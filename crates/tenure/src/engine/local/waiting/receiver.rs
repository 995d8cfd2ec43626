//! Wake-ups between processes: each client has a socket that takes them, and a thread that dispatches them.

use std::fs::{self, File};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::message;
use crate::core::table::ClientId;
use crate::engine::local::liveness::client_files::{missed_file, socket_file};
use crate::engine::{Listener, Wakeup};
use crate::sync::lock;

/// Dispatches the wake-ups of one client to its listener.
pub(crate) struct Receiver {
    pub(crate) client_id: ClientId,
    listener: Mutex<Option<Weak<dyn Listener>>>,
    is_closed: AtomicBool,
}

impl Receiver {
    pub(crate) fn new(client_id: ClientId) -> Arc<Self> {
        let (listener, is_closed) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(Self { client_id, listener, is_closed })
    }

    /// Starts the thread that reads the socket.
    pub(crate) fn start(
        self: &Arc<Self>,
        clients: &Path,
        socket: Arc<UnixDatagram>,
    ) -> io::Result<()> {
        let (receiver, missed) = (self.clone(), missed_file(clients, self.client_id));
        let thread = std::thread::Builder::new().name("tenure-local".into());
        thread.spawn(move || receiver.receive(&socket, &missed))?;
        Ok(())
    }

    pub(crate) fn listen(&self, listener: Weak<dyn Listener>) {
        *lock(&self.listener) = Some(listener);
    }

    /// False if the listener no longer exists.
    pub(crate) fn wake(&self, wakeup: Wakeup) -> bool {
        let listener = lock(&self.listener).as_ref().and_then(Weak::upgrade);
        listener.map(|listener| listener.wake(wakeup)).is_some()
    }

    /// Ends the thread after its next wake-up, or when the socket is shut down.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    fn receive(&self, socket: &UnixDatagram, missed: &Path) {
        let mut buffer = [0; message::MAX_BYTES];
        loop {
            let received = socket.recv(&mut buffer);
            if self.is_closed.load(Ordering::Acquire) {
                return;
            }
            match received {
                Ok(length) => {
                    // Wake-ups are hints, so that an unreadable one is dropped.
                    if let Ok(wakeup) = message::decode(&buffer[..length]) {
                        self.wake(wakeup);
                    }
                    if fs::remove_file(missed).is_ok() {
                        self.wake(Wakeup::Missed);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }
}

/// Sends a wake-up to a client of another process; false if that client has ended.
pub(crate) fn send(
    from: &UnixDatagram,
    clients: &Path,
    client_id: ClientId,
    wakeup: &Wakeup,
) -> bool {
    let bytes = message::encode(wakeup);
    let to = socket_file(clients, client_id);
    let sent = match from.send_to(&bytes, &to) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            send_from_new_socket(&bytes, clients, client_id)
        }
        sent => sent,
    };
    !sent.is_err_and(|error| is_by_ended_client(&error))
}

/// Unread datagrams count against the sender's buffer, so that one stopped client may block the sender for all
/// others; a new socket has an empty buffer. If the client's own socket is full, it finds the file of missed wake-ups
/// when it reads again. The second attempt is for a client that emptied its socket before the file existed.
fn send_from_new_socket(bytes: &[u8], clients: &Path, client_id: ClientId) -> io::Result<usize> {
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

fn is_by_ended_client(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, NotFound};
    matches!(error.kind(), BrokenPipe | ConnectionRefused | NotFound)
}
