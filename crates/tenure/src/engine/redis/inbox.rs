//! What arrives on a connection: replies, one after the other, read in turns.
//!
//! All connections of a client share one thread. A server that sends without pause must not keep it
//! from the others, nor from its clocks: the limits of time are only as good as the thread that
//! looks at them. So after so many bytes the others have their turn.

use std::io;

use super::resp::{Parser, Reply};
use super::stream::{Stream, Taken};

/// How much is read in one turn: less than a millisecond's work.
const TURN: usize = 128 * 1024;

/// The replies that come in on one connection.
pub(super) struct Inbox {
    parser: Parser,
    /// How much was read in this turn.
    read: usize,
}

impl Inbox {
    /// A reply costs at most `limit` bytes of memory, or the connection is given up.
    pub(super) fn new(limit: usize) -> Self {
        Self { parser: Parser::new(limit), read: 0 }
    }

    /// The next reply, or why there is none. Dropped in between, nothing is lost.
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

    /// Reads what is there; whether that was all. Nothing was there: so it was.
    pub(super) fn fill(&mut self, stream: &Stream) -> Result<bool, String> {
        match stream.try_read(self.parser.buffer()) {
            Ok(Taken { bytes, is_all }) => self.note(Ok(bytes)).map(|()| is_all),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => self.note(Err(error)).map(|()| true),
        }
    }

    /// The next reply of what was read.
    pub(super) fn parse(&mut self) -> Result<Option<Reply>, String> {
        self.parser.next().map_err(|garbled| garbled.to_string())
    }

    fn note(&mut self, read: io::Result<usize>) -> Result<(), String> {
        match read {
            Ok(0) => Err("the server hung up".to_owned()),
            Ok(read) => {
                self.read += read;
                Ok(())
            }
            Err(error) => Err(format!("the connection was lost: {error}")),
        }
    }
}
