//! The replies that arrive on a connection, read in turns.
//!
//! All connections of a client share one thread. A server that sends without pause must not starve the other
//! connections, nor the timeouts, which that thread checks. So it yields after a number of bytes.

use std::io;

use super::resp::{Parser, Reply};
use super::stream::{Stream, Taken};

/// How many bytes are read in one turn: less than a millisecond's work.
const TURN: usize = 128 * 1024;

/// The replies of one connection.
pub(super) struct Inbox {
    parser: Parser,
    /// How many bytes were read in this turn.
    read: usize,
}

impl Inbox {
    /// A reply that costs more than `limit` bytes of memory is an error.
    pub(super) fn new(limit: usize) -> Self {
        Self { parser: Parser::new(limit), read: 0 }
    }

    /// The next reply, or the reason why there is none. Cancel safe: no reply is lost.
    pub(super) async fn next(&mut self, stream: &Stream) -> Result<Reply, String> {
        loop {
            if let Some(reply) = self.parse()? {
                return Ok(reply);
            }
            if self.read >= TURN {
                self.read = 0;
                tokio::task::yield_now().await;
            }
            let read = stream.read(self.parser.buffer()).await;
            self.note(read)?;
        }
    }

    /// Reads the bytes that are available; returns whether these were all, also if there were none.
    pub(super) fn fill(&mut self, stream: &Stream) -> Result<bool, String> {
        match stream.try_read(self.parser.buffer()) {
            Ok(Taken { bytes, is_all }) => self.note(Ok(bytes)).map(|()| is_all),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => self.note(Err(error)).map(|()| true),
        }
    }

    /// The next reply from the bytes that were read.
    pub(super) fn parse(&mut self) -> Result<Option<Reply>, String> {
        self.parser.next().map_err(|garbled| garbled.to_string())
    }

    fn note(&mut self, read: io::Result<usize>) -> Result<(), String> {
        match read {
            Ok(0) => Err("the server closed the connection".to_owned()),
            Ok(read) => {
                self.read += read;
                Ok(())
            }
            Err(error) => Err(format!("the connection was lost: {error}")),
        }
    }
}
