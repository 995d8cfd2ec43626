//! TLS on a TCP socket.
//!
//! Whoever sends a command encrypts it and writes it itself, as on a plain socket, so the session is
//! driven by hand under a short lock and belongs to no task.
//!
//! A full socket leaves encrypted bytes over. Until they have left, their plain text counts as not
//! written: the caller keeps it, offers it again when the socket is writable, and it is then sent,
//! not encrypted again. So whoever writes needs to know nothing of TLS, and no more than
//! [`AT_ONCE`] is ever kept here.

mod config;
mod explain;
#[cfg(test)]
mod tests;

pub(super) use config::Trust;

use std::io::{self, Read, Write};
use std::sync::Mutex;

use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use super::address::Endpoint;
use super::socket::Socket;
use super::stream::Taken;
use crate::error::StoreError;
use crate::sync::lock;

/// How much plain text is encrypted at once: four records.
const AT_ONCE: usize = 64 * 1024;

/// How much is read at once: about one record.
const CHUNK: usize = 16 * 1024;

/// A connection that speaks TLS.
pub(super) struct Tls {
    socket: Socket,
    session: Mutex<Session>,
    place: Endpoint,
}

struct Session {
    tls: ClientConnection,
    /// How much of the caller's bytes is encrypted but has not left yet.
    encrypted: usize,
}

impl Tls {
    /// Agrees with the server on a session, and makes sure that it is the one that was meant.
    pub(super) async fn over(
        socket: Socket,
        place: &Endpoint,
        name: ServerName<'static>,
        trust: &Trust,
    ) -> Result<Self, StoreError> {
        let failed = |error: &io::Error| {
            let trouble = StoreError::refused(explain::failure(error, place));
            if explain::is_refusal(error) { trouble.lasting() } else { trouble }
        };
        let unfit =
            |why| StoreError::refused(format!("could not connect to {place}: {why}")).lasting();
        let config = trust.config().await.map_err(unfit)?;
        let tls = ClientConnection::new(config, name).map_err(io::Error::other);
        let mut tls = tls.map_err(|error| failed(&error))?;
        tls.set_buffer_limit(Some(AT_ONCE));
        let shaken = shake_hands(&socket, &mut tls).await;
        shaken.map_err(|error| failed(&error))?;
        let session = Mutex::new(Session { tls, encrypted: 0 });
        Ok(Self { socket, session, place: place.clone() })
    }

    /// Encrypts and writes, from any thread. When the socket is full, the next call must begin with
    /// the same bytes.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut session = lock(&self.session);
        if session.encrypted == 0 {
            session.encrypted = session.tls.writer().write(bytes)?;
        }
        push(&self.socket, &mut session.tls)?;
        match std::mem::take(&mut session.encrypted) {
            // It could be tried again for ever.
            0 => Err(io::ErrorKind::WriteZero.into()),
            written => Ok(written),
        }
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Reads and decrypts what is there, at the end of `into`.
    pub(super) fn try_read(&self, into: &mut Vec<u8>) -> io::Result<Taken> {
        let before = into.len();
        let received = self.receive(into);
        let is_closed = received.map_err(|error| explain::loss(error, &self.place))?;
        match into.len() - before {
            // A message of TLS itself, or a part of one: what follows it may be there.
            0 if !is_closed => Err(io::ErrorKind::Interrupted.into()),
            bytes => Ok(Taken { bytes, is_all: false }),
        }
    }

    /// Whether the peer has closed.
    fn receive(&self, into: &mut Vec<u8>) -> io::Result<bool> {
        let before = into.len();
        let mut session = lock(&self.session);
        // What came with the end of the handshake.
        let is_closed = decrypt(&mut session.tls, into)?;
        if is_closed || into.len() > before {
            return Ok(is_closed);
        }
        let mut chunk = [0; CHUNK];
        let read = self.socket.try_read_into(&mut chunk)?;
        let taken = take_in(&mut session.tls, &chunk[..read], into);
        // An answer, to new keys for example, or the alert that says why we hang up. If the socket
        // is full, it leaves with what is written next.
        let _ = push(&self.socket, &mut session.tls);
        Ok(read == 0 || taken?)
    }
}

/// The handshake.
async fn shake_hands(socket: &Socket, tls: &mut ClientConnection) -> io::Result<()> {
    while tls.is_handshaking() || tls.wants_write() {
        match push(socket, tls) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => socket.writable().await?,
            Err(error) => return Err(error),
            Ok(()) if tls.is_handshaking() => {
                if !hear(socket, tls)? {
                    socket.readable().await?;
                }
            }
            Ok(()) => {}
        }
    }
    Ok(())
}

/// One step of the handshake: takes in what is there; whether there was something. Plain text that comes
/// with its end stays in the session.
fn hear(socket: &Socket, tls: &mut ClientConnection) -> io::Result<bool> {
    let read = tls.read_tls(&mut Unwaiting(socket));
    match read {
        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    let processed = tls.process_new_packets();
    if processed.is_err() {
        // The alert that tells the server why, if it can be told.
        let _ = push(socket, tls);
    }
    processed.map(|_| true).map_err(io::Error::other)
}

/// Decrypts what was read; whether the peer has closed.
fn take_in(tls: &mut ClientConnection, mut raw: &[u8], into: &mut Vec<u8>) -> io::Result<bool> {
    while !raw.is_empty() {
        // Nothing is taken in after the peer has closed.
        if tls.read_tls(&mut raw)? == 0 || decrypt(tls, into)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Moves what can be decrypted to the end of `into`; whether the peer has closed.
fn decrypt(tls: &mut ClientConnection, into: &mut Vec<u8>) -> io::Result<bool> {
    let state = tls.process_new_packets().map_err(io::Error::other)?;
    let length = state.plaintext_bytes_to_read();
    tls.reader().take(length as u64).read_to_end(into)?;
    Ok(state.peer_has_closed())
}

/// Writes what is encrypted.
fn push(socket: &Socket, tls: &mut ClientConnection) -> io::Result<()> {
    while tls.wants_write() {
        if tls.write_tls(&mut Unwaiting(socket))? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}

/// The socket as the session sees it: it never waits.
struct Unwaiting<'a>(&'a Socket);

impl Read for Unwaiting<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read_into(buffer)
    }
}

impl Write for Unwaiting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
