//! One connection: commands out, in order, and replies in, in the same order.
//!
//! A caller writes its command to the socket on its own thread: waking the I/O thread to do so would cost more than the
//! round trip to the server. The I/O thread writes only the bytes that the socket did not accept at once.
//!
//! Which thread reads the replies: see [`reader`](super::reader).
//!
//! However a connection ends, every command on it is answered: its effect is unknown (I6).

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::address::Endpoint;
use super::inbox::Inbox;
use super::reader::{self, CHECK_EVERY, Loss, Reader, Received};
use super::resp::{Command, Reply};
use super::stream::Stream;
use super::trip::Trip;
use super::{errors, pace};
use crate::clock;
use crate::core::moment::Moment;
use crate::error::StoreError;
use crate::foreign;
use crate::sync::lock;

/// The memory that a reply may take. The largest expected one lists a hundred locks and their holders, at some 200
/// bytes each; a server that sends more than this is faulty.
const LARGEST: usize = 64 * 1024 * 1024;

/// Why a connection is closed after another one of the client has found a replica.
pub(super) const MOVED: &str = "the server is not the master any more";

/// Called with the reply or the error, on any thread. It must not block.
pub(super) type Done = Box<dyn FnOnce(Result<Reply, StoreError>) + Send>;

/// One connection.
pub(super) struct Wire {
    reader: Reader,
    traffic: Mutex<Traffic>,
    /// There are bytes for the I/O thread to write.
    left_over: Notify,
    trip: Arc<Trip>,
}

#[derive(Default)]
struct Traffic {
    unsent: Vec<u8>,
    awaited: VecDeque<Awaited>,
    /// When the last reply arrived.
    arrived: Option<Moment>,
    /// Commands are written when so many threads that send several have sent theirs.
    corks: usize,
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
    /// A server writes replies and messages when it has performed all commands that it has read, and begins with the
    /// client whose output was queued last. A PING in the same packet, answered before the command runs, queues this
    /// client's output first, so that the server writes a message to another client before this one's reply: that
    /// client starts one write earlier, and need not wait for a core that this one was woken on.
    pub(super) fn send(self: &Arc<Self>, command: &Command, done: Done) {
        let mut traffic = lock(&self.traffic);
        if traffic.is_over {
            drop(traffic);
            // Never sent: the outcome is known.
            return done(Err(StoreError::refused("the connection was lost")));
        }
        let (sent, was_clear) = (clock::now(), traffic.unsent.is_empty());
        let before: [(bool, &[u8]); 2] = [
            (command.is_answered_last, b"*1\r\n$4\r\nPING\r\n"),
            // It holds for the next command alone.
            (command.is_asking, b"*1\r\n$6\r\nASKING\r\n"),
        ];
        for (_, bytes) in before.iter().filter(|(is_sent, _)| *is_sent) {
            // Its reply is ignored, even an error.
            traffic.awaited.push_back(Awaited { sent, done: Box::new(|_| ()) });
            traffic.unsent.extend_from_slice(bytes);
        }
        traffic.awaited.push_back(Awaited { sent, done });
        command.write(&mut traffic.unsent);
        if was_clear && traffic.corks == 0 {
            self.write_now(&mut traffic);
        }
        drop(traffic);
        reader::await_arrival(self);
    }

    /// Collects the commands that are sent until the result is dropped, and then writes them at once: one system call
    /// instead of many.
    pub(super) fn cork(self: &Arc<Self>) -> Corked {
        lock(&self.traffic).corks += 1;
        Corked(self.clone())
    }

    /// Writes as much as the socket accepts, and leaves the rest to the I/O thread.
    fn write_now(&self, traffic: &mut Traffic) {
        self.write(traffic);
        if !traffic.unsent.is_empty() {
            self.left_over.notify_one();
        }
    }

    /// Carries the traffic until the connection is lost, or the server has `moved`; then answers all commands that
    /// wait. Returns why it was lost.
    pub(super) async fn carry(&self, endpoint: &Endpoint, moved: impl Future<Output = ()>) -> Loss {
        // However this ends, commands are answered: a thread that reads keeps the connection alive, and waits.
        let _end_on_drop = EndOnDrop(self);
        let loss = tokio::select! {
            loss = reader::receive(self) => loss,
            () = self.write_left_over() => unreachable!("it never returns"),
            () = self.overdue() => {
                let time = self.trip.response_time();
                Loss::new(format!("no answer from {endpoint} within {time:?}"))
            }
            () = moved => Loss::new(MOVED),
        };
        if !lock(&self.traffic).awaited.is_empty() {
            // Unsent commands must not take effect later, when their callers have been answered.
            self.reader.stream.reset_when_closed();
        }
        self.end(&loss.why);
        loss
    }

    /// Answers all commands that wait, and refuses all later ones.
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

    /// Writes the bytes that the socket did not accept at once; never returns.
    async fn write_left_over(&self) {
        loop {
            self.left_over.notified().await;
            while !lock(&self.traffic).unsent.is_empty() {
                let writable = self.reader.stream.writable().await;
                let mut traffic = lock(&self.traffic);
                match writable {
                    Ok(()) => self.write(&mut traffic),
                    Err(error) => self.give_up_writing(&mut traffic, &error),
                }
            }
        }
    }

    /// Writes as much as the socket accepts.
    fn write(&self, traffic: &mut Traffic) {
        while !traffic.unsent.is_empty() {
            match self.reader.stream.try_write(&traffic.unsent) {
                Ok(0) => return,
                Ok(written) => drop(traffic.unsent.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => return self.give_up_writing(traffic, &error),
            }
        }
    }

    /// A command may have been written in part, so that none can follow it on this connection.
    fn give_up_writing(&self, traffic: &mut Traffic, error: &io::Error) {
        traffic.unsent.clear();
        let is_peer_gone =
            matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset);
        // Then reading reports it, after the replies that have arrived.
        if !is_peer_gone {
            self.reader.lose(Loss::new(format!("could not write to the connection: {error}")));
        }
    }

    /// Resolves when no reply has arrived for too long, though one is awaited: the connection is dead. Late replies
    /// that keep arriving mean a congested network.
    ///
    /// Between two checks at most twice [`CHECK_EVERY`] is counted: the time for which the whole machine was paused
    /// is not waiting time.
    async fn overdue(&self) {
        let (mut paused, mut before, mut start) = (Duration::ZERO, clock::now(), None);
        loop {
            pace::pause(CHECK_EVERY).await;
            let now = clock::now();
            let excess = now.since(before).saturating_sub(CHECK_EVERY * 2);
            before = now;
            let traffic = lock(&self.traffic);
            let oldest = traffic.awaited.front().map(|awaited| awaited.sent);
            let silent_since = oldest.map(|sent| Some(sent).max(traffic.arrived).unwrap_or(sent));
            drop(traffic);
            paused = if silent_since == start { paused + excess } else { excess };
            start = silent_since;
            let silence = now.since(silent_since.unwrap_or(now)).saturating_sub(paused);
            if silence > self.trip.response_time() {
                return;
            }
            self.reader.check(silence > CHECK_EVERY);
        }
    }
}

impl Received for Wire {
    fn reader(&self) -> &Reader {
        &self.reader
    }

    fn deliver(&self, reply: Reply) -> Result<(), Loss> {
        let of_replica = errors::of_replica(&reply);
        let mut traffic = lock(&self.traffic);
        traffic.arrived = Some(clock::now());
        let next = traffic.awaited.pop_front();
        drop(traffic);
        let Some(Awaited { sent, done }) = next else {
            // Requests and replies are out of step, or the server gives a reason before it closes.
            return Err(Loss::new(errors::unexpected(&reply)));
        };
        self.trip.note(clock::now().since(sent));
        // The callback wakes tasks of foreign executors.
        foreign::call(|| done(Ok(reply)));
        match of_replica {
            Some(why) => Err(Loss { why, is_of_replica: true }),
            None => Ok(()),
        }
    }

    fn is_awaited(&self) -> bool {
        !lock(&self.traffic).awaited.is_empty()
    }
}

/// A connection that collects commands.
pub(super) struct Corked(Arc<Wire>);

impl Drop for Corked {
    fn drop(&mut self) {
        let mut traffic = lock(&self.0.traffic);
        traffic.corks -= 1;
        if traffic.corks == 0 && !traffic.unsent.is_empty() && !traffic.is_over {
            self.0.write_now(&mut traffic);
        }
    }
}

/// Ends the connection when the I/O thread no longer carries its traffic.
struct EndOnDrop<'a>(&'a Wire);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end("the client was closed");
    }
}

impl Drop for Wire {
    /// The I/O thread has ended, or its task has panicked.
    fn drop(&mut self) {
        self.end("the client was closed");
    }
}
