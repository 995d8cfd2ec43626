//! One connection: commands out, in order, and replies in, in the same order.
//!
//! Whoever sends a command writes it to the socket itself, on its own thread: waking the I/O
//! thread to do so would cost more than the trip to the server. The I/O thread reads, calls back,
//! and writes only what the socket would not take at once.

use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;

use super::address::Place;
use super::resp::{self, Command, Reply};
use super::stream::Stream;
use crate::clock;
use crate::core::moment::Moment;
use crate::error::Trouble;
use crate::sync::lock;

/// Far longer than any answer takes, and well below a third of the default lease.
pub(super) const RESPONSE_TIME: Duration = Duration::from_secs(2);

/// How often to look for answers that are overdue.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Called with the reply, on the I/O thread, or with what went wrong, on any. It must not block.
pub(super) type Done = Box<dyn FnOnce(Result<Reply, Trouble>) + Send>;

/// One connection.
pub(super) struct Wire {
    stream: Stream,
    traffic: Mutex<Traffic>,
    /// Something is left to be written by the I/O thread.
    left_over: Notify,
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

impl Wire {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, traffic: Mutex::default(), left_over: Notify::new() }
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

    /// Carries the traffic until the connection is lost, then tells everyone who waits; why it was.
    pub(super) async fn carry(&self, place: &Place) -> String {
        let why = tokio::select! {
            why = self.receive() => why,
            () = self.write_left_over() => unreachable!("it goes on for ever"),
            () = self.overdue() => format!("no answer from {place} within {RESPONSE_TIME:?}"),
        };
        let awaited = {
            let mut traffic = lock(&self.traffic);
            traffic.is_over = true;
            std::mem::take(&mut traffic.awaited)
        };
        for Awaited { done, .. } in awaited {
            done(Err(Trouble::unknown(why.clone())));
        }
        why
    }

    /// Reads replies until there are no more; why not.
    async fn receive(&self) -> String {
        let mut bytes = Vec::with_capacity(16 * 1024);
        loop {
            match self.stream.read(&mut bytes).await {
                Ok(0) => return "the server hung up".to_owned(),
                Ok(_) => {}
                Err(error) => return format!("the connection was lost: {error}"),
            }
            let mut taken = 0;
            loop {
                match resp::read(&bytes[taken..]) {
                    Ok(Some((reply, length))) => {
                        taken += length;
                        self.deliver(reply);
                    }
                    Ok(None) => break,
                    Err(resp::Garbled) => return "the server does not speak RESP".to_owned(),
                }
            }
            bytes.drain(..taken);
        }
    }

    fn deliver(&self, reply: Reply) {
        let next = lock(&self.traffic).awaited.pop_front();
        match next {
            Some(Awaited { done, .. }) => done(Ok(reply)),
            None => tracing::warn!("the server answered without being asked"),
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
            super::link::pause(LOOK_EVERY).await;
            let oldest = lock(&self.traffic).awaited.front().map(|awaited| awaited.sent);
            if oldest.is_some_and(|sent| clock::now().since(sent) > RESPONSE_TIME) {
                return;
            }
        }
    }
}
