//! TLS on a TCP socket.
//!
//! A caller encrypts and writes its command on its own thread, as on a plain socket, so the session is
//! driven by hand under a short mutex and belongs to no task.
//!
//! A full socket leaves encrypted bytes over. Until they are sent, their plain text counts as not
//! written: the caller keeps it, offers it again when the socket is writable, and it is then sent,
//! not encrypted again. So the writer needs no knowledge of TLS, and no more than [`AT_ONCE`] is ever
//! buffered here.

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

/// How many bytes of plain text are encrypted at once: four records.
const AT_ONCE: usize = 64 * 1024;

/// How many bytes are read at once: about one record.
const CHUNK: usize = 16 * 1024;

/// A connection with TLS.
pub(super) struct Tls {
    socket: Socket,
    session: Mutex<Session>,
    endpoint: Endpoint,
}

struct Session {
    tls: ClientConnection,
    /// How many of the caller's bytes are encrypted but not sent yet.
    encrypted: usize,
}

impl Tls {
    /// Performs the handshake, and verifies the server's certificate.
    pub(super) async fn over(
        socket: Socket,
        endpoint: &Endpoint,
        name: ServerName<'static>,
        trust: &Trust,
    ) -> Result<Self, StoreError> {
        let failed = |error: &io::Error| {
            let refused = StoreError::refused(explain::failure(error, endpoint));
            if explain::is_refusal(error) { refused.lasting() } else { refused }
        };
        let unfit =
            |why| StoreError::refused(format!("could not connect to {endpoint}: {why}")).lasting();
        let config = trust.config().await.map_err(unfit)?;
        let tls = ClientConnection::new(config, name).map_err(io::Error::other);
        let mut tls = tls.map_err(|error| failed(&error))?;
        tls.set_buffer_limit(Some(AT_ONCE));
        handshake(&socket, &mut tls).await.map_err(|error| failed(&error))?;
        let session = Mutex::new(Session { tls, encrypted: 0 });
        Ok(Self { socket, session, endpoint: endpoint.clone() })
    }

    /// Encrypts and writes, from any thread. When the socket is full, the next call must begin with
    /// the same bytes.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut session = lock(&self.session);
        if session.encrypted == 0 {
            session.encrypted = session.tls.writer().write(bytes)?;
        }
        flush(&self.socket, &mut session.tls)?;
        match std::mem::take(&mut session.encrypted) {
            // An error, because the caller would retry for ever.
            0 => Err(io::ErrorKind::WriteZero.into()),
            written => Ok(written),
        }
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Reads and decrypts the available bytes to the end of `into`.
    pub(super) fn try_read(&self, into: &mut Vec<u8>) -> io::Result<Taken> {
        let before = into.len();
        let received = self.receive(into);
        let is_closed = received.map_err(|error| explain::loss(error, &self.endpoint))?;
        match into.len() - before {
            // A control message of TLS, or a part of a record: more bytes may be available.
            0 if !is_closed => Err(io::ErrorKind::Interrupted.into()),
            bytes => Ok(Taken { bytes, is_all: false }),
        }
    }

    /// Receives, decrypts and appends; returns whether the peer has closed.
    fn receive(&self, into: &mut Vec<u8>) -> io::Result<bool> {
        let before = into.len();
        let mut session = lock(&self.session);
        // Plain text that arrived with the end of the handshake.
        let is_closed = decrypt(&mut session.tls, into)?;
        if is_closed || into.len() > before {
            return Ok(is_closed);
        }
        let mut chunk = [0; CHUNK];
        let read = self.socket.try_read_into(&mut chunk)?;
        let taken = decrypt_chunk(&mut session.tls, &chunk[..read], into);
        // A control message, such as the answer to new keys, or the alert with which we close. If the socket
        // is full, it is sent with the next write.
        let _ = flush(&self.socket, &mut session.tls);
        Ok(read == 0 || taken?)
    }
}

async fn handshake(socket: &Socket, tls: &mut ClientConnection) -> io::Result<()> {
    while tls.is_handshaking() || tls.wants_write() {
        match flush(socket, tls) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => socket.writable().await?,
            Err(error) => return Err(error),
            Ok(()) if tls.is_handshaking() => {
                if !handshake_step(socket, tls)? {
                    socket.readable().await?;
                }
            }
            Ok(()) => {}
        }
    }
    Ok(())
}

/// One step of the handshake: processes the available bytes; returns whether there were any. Plain text that arrives
/// with its end stays in the session.
fn handshake_step(socket: &Socket, tls: &mut ClientConnection) -> io::Result<bool> {
    let read = tls.read_tls(&mut NonBlocking(socket));
    match read {
        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    let processed = tls.process_new_packets();
    if processed.is_err() {
        // Send the alert with the reason, if the socket accepts it.
        let _ = flush(socket, tls);
    }
    processed.map(|_| true).map_err(io::Error::other)
}

/// Decrypts received bytes; returns whether the peer has closed.
fn decrypt_chunk(
    tls: &mut ClientConnection,
    mut raw: &[u8],
    into: &mut Vec<u8>,
) -> io::Result<bool> {
    while !raw.is_empty() {
        // Zero: the session takes no bytes after the peer has closed.
        if tls.read_tls(&mut raw)? == 0 || decrypt(tls, into)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Moves decrypted bytes to the end of `into`; returns whether the peer has closed.
fn decrypt(tls: &mut ClientConnection, into: &mut Vec<u8>) -> io::Result<bool> {
    let state = tls.process_new_packets().map_err(io::Error::other)?;
    let length = state.plaintext_bytes_to_read();
    tls.reader().take(length as u64).read_to_end(into)?;
    Ok(state.peer_has_closed())
}

/// Writes the encrypted bytes.
fn flush(socket: &Socket, tls: &mut ClientConnection) -> io::Result<()> {
    while tls.wants_write() {
        if tls.write_tls(&mut NonBlocking(socket))? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}

/// The non-blocking socket, as the session reads and writes it.
struct NonBlocking<'a>(&'a Socket);

impl Read for NonBlocking<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read_into(buffer)
    }
}

impl Write for NonBlocking<'_> {
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
