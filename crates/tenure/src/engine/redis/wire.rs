//! One connection: commands out, in order, and replies in, in the same order.
//!
//! Whoever sends a command writes it to the socket itself, on its own thread: waking the I/O
//! thread to do so would cost more than the trip to the server. The I/O thread writes only what the socket
//! would not take at once.
//!
//! The replies are read by whoever is there to do it: see [`reader`](super::reader).
//!
//! However a connection ends, every command on it is answered: what it did is unknown (I6).

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::address::Endpoint;
use super::inbox::Inbox;
use super::reader::{self, LOOK_EVERY, Loss, Reader, Received};
use super::resp::{Command, Reply};
use super::stream::Stream;
use super::trip::Trip;
use super::{errors, pace};
use crate::clock;
use crate::core::moment::Moment;
use crate::error::StoreError;
use crate::foreign;
use crate::sync::lock;

/// What a reply may cost in memory. The largest that is asked for tells of a hundred locks and their
/// holders, at some 200 bytes each; a server that sends more than this is broken.
const LARGEST: usize = 64 * 1024 * 1024;

/// Why a connection is left that carries no bad news itself.
pub(super) const MOVED: &str = "the server is not the master any more";

/// Called with the reply, or with what went wrong, on any thread. It must not block.
pub(super) type Done = Box<dyn FnOnce(Result<Reply, StoreError>) + Send>;

/// One connection.
pub(super) struct Wire {
    reader: Reader,
    traffic: Mutex<Traffic>,
    /// Something is left to be written by the I/O thread.
    left_over: Notify,
    trip: Arc<Trip>,
}

#[derive(Default)]
struct Traffic {
    unsent: Vec<u8>,
    awaited: VecDeque<Awaited>,
    /// When the last reply came.
    arrived: Option<Moment>,
    is_over: bool,
}

struct Awaited {
    sent: Moment,
    done: Done,
}

impl Wire {
    pub(super) fn new(stream: Stream, trip: Arc<Trip>) -> Self {
        trip.begin();
        let reader = Reader::new(stream, Inbox::new(LARGEST));
        Self { reader, traffic: Mutex::default(), left_over: Notify::new(), trip }
    }

    /// Sends a command, from any thread.
    ///
    /// A server writes its replies and messages when it has performed all that it has read, and first to the client that
    /// something was to be written for last. So a PING in the same packet, which is answered before the command runs, has
    /// a message to another client written before this one's reply: that client starts to work one write earlier, and
    /// need not wait for a core that this one was woken on.
    pub(super) fn send(self: &Arc<Self>, command: &Command, done: Done) {
        let mut traffic = lock(&self.traffic);
        if traffic.is_over {
            drop(traffic);
            // Never sent: so this is known.
            return done(Err(StoreError::refused("the connection was lost")));
        }
        let (sent, was_clear) = (clock::now(), traffic.unsent.is_empty());
        if command.is_answered_last {
            // Also where it is refused: nothing depends on it.
            traffic.awaited.push_back(Awaited { sent, done: Box::new(|_| ()) });
            traffic.unsent.extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
        }
        traffic.awaited.push_back(Awaited { sent, done });
        command.write(&mut traffic.unsent);
        if was_clear {
            self.write(&mut traffic);
            if !traffic.unsent.is_empty() {
                self.left_over.notify_one();
            }
        }
        drop(traffic);
        reader::await_arrival(self);
    }

    /// Carries the traffic until the connection is lost, or the server has `moved`; then answers all that
    /// wait. Why it was lost.
    pub(super) async fn carry(&self, place: &Endpoint, moved: impl Future<Output = ()>) -> Loss {
        // However this ends: a thread that leads keeps the connection, and waits for its answer.
        let _ending = Ending(self);
        let loss = tokio::select! {
            loss = reader::receive(self) => loss,
            () = self.write_left_over() => unreachable!("it goes on for ever"),
            () = self.overdue() => {
                let time = self.trip.response_time();
                Loss::new(format!("no answer from {place} within {time:?}"))
            }
            () = moved => Loss::new(MOVED),
        };
        if !lock(&self.traffic).awaited.is_empty() {
            // What has not left this machine must not take effect later, for nobody.
            self.reader.stream.reset_when_closed();
        }
        self.end(&loss.why);
        loss
    }

    /// Answers all that wait. From now on everything is refused.
    fn end(&self, why: &str) {
        let awaited = {
            let mut traffic = lock(&self.traffic);
            traffic.is_over = true;
            std::mem::take(&mut traffic.awaited)
        };
        self.reader.end();
        for Awaited { done, .. } in awaited {
            foreign::call(|| done(Err(StoreError::unknown(why))));
        }
    }

    /// Writes what the socket would not take at once, for ever.
    async fn write_left_over(&self) {
        loop {
            self.left_over.notified().await;
            while !lock(&self.traffic).unsent.is_empty() {
                let is_writable = self.reader.stream.writable().await.is_ok();
                let mut traffic = lock(&self.traffic);
                if is_writable {
                    self.write(&mut traffic);
                } else {
                    // The connection is lost, which shows when reading.
                    traffic.unsent.clear();
                }
            }
        }
    }

    /// Writes what the socket takes. An error shows when reading.
    fn write(&self, traffic: &mut Traffic) {
        while !traffic.unsent.is_empty() {
            match self.reader.stream.try_write(&traffic.unsent) {
                Ok(0) => return,
                Ok(written) => drop(traffic.unsent.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return traffic.unsent.clear(),
            }
        }
    }

    /// Resolves when nothing has come for too long, though something is awaited: the connection is a black
    /// hole. Answers that come late, one after another, are those of a way that is full.
    ///
    /// Between two looks at most twice [`LOOK_EVERY`] is counted: a machine that stood still, with all that is on
    /// it, has not waited.
    async fn overdue(&self) {
        let (mut stood_still, mut before, mut start) = (Duration::ZERO, clock::now(), None);
        loop {
            pace::pause(LOOK_EVERY).await;
            let now = clock::now();
            let too_long = now.since(before).saturating_sub(LOOK_EVERY * 2);
            before = now;
            let traffic = lock(&self.traffic);
            let oldest = traffic.awaited.front().map(|awaited| awaited.sent);
            let silent_since = oldest.map(|sent| Some(sent).max(traffic.arrived).unwrap_or(sent));
            drop(traffic);
            stood_still = if silent_since == start { stood_still + too_long } else { too_long };
            start = silent_since;
            let silence = now.since(silent_since.unwrap_or(now)).saturating_sub(stood_still);
            if silence > self.trip.response_time() {
                return;
            }
            self.reader.look(silence > LOOK_EVERY);
        }
    }
}

impl Received for Wire {
    fn reader(&self) -> &Reader {
        &self.reader
    }

    fn deliver(&self, reply: Reply) -> Result<(), Loss> {
        let said = errors::of_replica(&reply);
        let mut traffic = lock(&self.traffic);
        traffic.arrived = Some(clock::now());
        let next = traffic.awaited.pop_front();
        drop(traffic);
        let Some(Awaited { sent, done }) = next else {
            // Requests and replies are out of step, or the server says why it hangs up.
            let what = errors::error_in(&reply).unwrap_or("something");
            return Err(Loss::new(format!("the server said without being asked: {what}")));
        };
        self.trip.note(clock::now().since(sent));
        // What is called is not all ours: it wakes the tasks of foreign executors.
        foreign::call(|| done(Ok(reply)));
        match said {
            Some(why) => Err(Loss { why, is_of_replica: true }),
            None => Ok(()),
        }
    }

    fn is_awaited(&self) -> bool {
        !lock(&self.traffic).awaited.is_empty()
    }
}

/// The I/O thread carries the traffic.
struct Ending<'a>(&'a Wire);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end("the client was closed");
    }
}

impl Drop for Wire {
    /// The I/O thread has ended, or what ran on it has panicked.
    fn drop(&mut self) {
        self.end("the client was closed");
    }
}
