//! What arrives on a connection: replies, one after the other, read in turns.
//!
//! All connections of a client share one thread. A server that sends without pause must not keep it
//! from the others, nor from its clocks: the limits of time are only as good as the thread that
//! looks at them. So after so many bytes the others have their turn.

use super::resp::{Parser, Reply};
use super::stream::Stream;

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
            match self.parser.next() {
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) => {}
                Err(garbled) => return Err(garbled.to_string()),
            }
            if self.read >= TURN {
                self.read = 0;
                tokio::task::yield_now().await;
            }
            match stream.read(self.parser.buffer()).await {
                Ok(0) => return Err("the server hung up".to_owned()),
                Ok(read) => self.read += read,
                Err(error) => return Err(format!("the connection was lost: {error}")),
            }
        }
    }
}
