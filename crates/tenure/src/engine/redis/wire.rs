//! One connection: commands out, in order, and replies in, in the same order.
//!
//! Whoever sends a command writes it to the socket itself, on its own thread: waking the I/O
//! thread to do so would cost more than the trip to the server. The I/O thread reads, calls back,
//! and writes only what the socket would not take at once.
//!
//! However a connection ends, every command on it is answered: what it did is unknown (I6).

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::address::Place;
use super::inbox::Inbox;
use super::resp::{Command, Reply};
use super::stream::Stream;
use super::trip::Trip;
use super::{pace, trouble};
use crate::clock;
use crate::core::moment::Moment;
use crate::error::Trouble;
use crate::foreign;
use crate::sync::lock;

/// Far longer than any answer takes, and well below a third of the default lease.
pub(super) const RESPONSE_TIME: Duration = Duration::from_secs(2);

/// How often to look for answers that are overdue.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What a reply may cost in memory. The largest that is asked for tells of a hundred locks and their
/// holders, at some 200 bytes each; a server that sends more than this is broken.
const LARGEST: usize = 64 * 1024 * 1024;

/// Why a connection is left that carries no bad news itself.
pub(super) const MOVED: &str = "the server is not the master any more";

/// Called with the reply, on the I/O thread, or with what went wrong, on any. It must not block.
pub(super) type Done = Box<dyn FnOnce(Result<Reply, Trouble>) + Send>;

/// One connection.
pub(super) struct Wire {
    stream: Stream,
    traffic: Mutex<Traffic>,
    /// Something is left to be written by the I/O thread.
    left_over: Notify,
    trip: Arc<Trip>,
}

#[derive(Default)]
struct Traffic {
    unsent: Vec<u8>,
    awaited: VecDeque<Awaited>,
    is_over: bool,
}

struct Awaited {
    sent: Moment,
    done: Done,
}

/// Why a connection ended.
pub(super) struct Loss {
    pub(super) why: String,
    /// The server has said that it is not the master any more.
    pub(super) is_of_replica: bool,
}

impl Loss {
    fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_of_replica: false }
    }
}

impl Wire {
    pub(super) fn new(stream: Stream, trip: Arc<Trip>) -> Self {
        trip.begin();
        Self { stream, traffic: Mutex::default(), left_over: Notify::new(), trip }
    }

    /// Sends a command, from any thread.
    pub(super) fn send(&self, command: &Command, done: Done) {
        let mut traffic = lock(&self.traffic);
        if traffic.is_over {
            drop(traffic);
            // Never sent: so this is known.
            return done(Err(Trouble::refused("the connection was lost")));
        }
        traffic.awaited.push_back(Awaited { sent: clock::now(), done });
        let was_clear = traffic.unsent.is_empty();
        command.write(&mut traffic.unsent);
        if was_clear {
            self.write(&mut traffic);
            if !traffic.unsent.is_empty() {
                self.left_over.notify_one();
            }
        }
    }

    /// Carries the traffic until the connection is lost, or the server has `moved`; then answers all that
    /// wait. Why it was lost.
    pub(super) async fn carry(&self, place: &Place, moved: impl Future<Output = ()>) -> Loss {
        let loss = tokio::select! {
            loss = self.receive() => loss,
            () = self.write_left_over() => unreachable!("it goes on for ever"),
            () = self.overdue() => {
                Loss::new(format!("no answer from {place} within {RESPONSE_TIME:?}"))
            }
            () = moved => Loss::new(MOVED),
        };
        if !lock(&self.traffic).awaited.is_empty() {
            // What has not left this machine must not take effect later, for nobody.
            self.stream.reset_when_closed();
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
        for Awaited { done, .. } in awaited {
            foreign::call(|| done(Err(Trouble::unknown(why))));
        }
    }

    /// Reads replies until there are no more; why not.
    async fn receive(&self) -> Loss {
        let mut inbox = Inbox::new(LARGEST);
        loop {
            let reply = match inbox.next(&self.stream).await {
                Ok(reply) => reply,
                Err(why) => return Loss::new(why),
            };
            let said = trouble::of_replica(&reply);
            let Some(Awaited { sent, done }) = lock(&self.traffic).awaited.pop_front() else {
                // Requests and replies are out of step, or the server says why it hangs up.
                let what = trouble::error_in(&reply).unwrap_or("something");
                return Loss::new(format!("the server said without being asked: {what}"));
            };
            self.trip.note(clock::now().since(sent));
            // What is called is not all ours: it wakes the tasks of foreign executors.
            foreign::call(|| done(Ok(reply)));
            if let Some(why) = said {
                return Loss { why, is_of_replica: true };
            }
        }
    }

    /// Writes what the socket would not take at once, for ever.
    async fn write_left_over(&self) {
        loop {
            self.left_over.notified().await;
            while !lock(&self.traffic).unsent.is_empty() {
                let is_writable = self.stream.writable().await.is_ok();
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
            match self.stream.try_write(&traffic.unsent) {
                Ok(0) => return,
                Ok(written) => drop(traffic.unsent.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return traffic.unsent.clear(),
            }
        }
    }

    /// Resolves when an answer is overdue: the connection is a black hole.
    async fn overdue(&self) {
        loop {
            pace::pause(LOOK_EVERY).await;
            let oldest = lock(&self.traffic).awaited.front().map(|awaited| awaited.sent);
            if oldest.is_some_and(|sent| clock::now().since(sent) > RESPONSE_TIME) {
                return;
            }
        }
    }
}

impl Drop for Wire {
    /// The I/O thread has ended, or what ran on it has panicked.
    fn drop(&mut self) {
        self.end("the client was closed");
    }
}
