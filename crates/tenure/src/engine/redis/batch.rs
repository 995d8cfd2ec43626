//! Gathering operations into calls, in order.
//!
//! A lone caller waits for nobody. While a call of one kind is in flight, operations of that kind are
//! gathered, and sent as one call over many keys: as soon as its answer is there, if the server is near; if
//! it is farther away, as soon as [`Batcher::keep_sending`] comes to it, until as many calls are in flight as
//! [`trip`](super::trip) says. It takes that task a moment to wake up, and those who were told something by
//! one answer mostly ask their next questions within that moment. A full lot of operations leaves in any case, with a few
//! calls of its kind in flight: the server then has work while this client reads the answers to the last one.
//!
//! **Order.** A server performs what comes on one connection in the order in which it comes. So the
//! operations of this client on one name are performed in the order in which they were sent here, if an
//! operation never leaves before an earlier one of its name: an acquire does not overtake the release
//! before it. Only the first operations of a name, as far as they are of one kind, are ready to leave;
//! those behind them follow as soon as these are on the socket, and need not wait for the answer.
//!
//! **Held back.** A release that probably hands the lock over is followed by an acquire of the same client only when it
//! is answered. Sent at once, both would often be in the server's buffer together, and the message to the next holder is
//! written when the server has performed both.
//!
//! **More to do.** One call does a bounded amount of work. Where there is more to settle in a lock, the
//! answer ends with a plus sign: an acquire is sent again, for its own answer depends on the rest; after
//! any other operation, calls that cancel nothing follow until the lock is settled.
//!
//! **Put back.** What a call has not performed is put back, before all that waits of its names: where the
//! server has forgotten the script, which then is sent along; and where it refuses a call as a whole because of
//! one of its keys: then each operation leaves in a call of its own, for what is wrong with one lock is that
//! lock's trouble alone. But an acquire must not come behind what was sent after it: see
//! [`flights`](self::flights).
//!
//! **One sender.** Whoever finds that something can leave becomes the sender, until nothing can: it
//! takes a batch, lets go of the lock, and writes it to the socket. Others only add. So batches reach
//! the socket in the order in which they were taken, no lock is held while the link is called, and a
//! link that answers at once, because it is down, does not call deeper.

mod flights;
mod gathered;
mod item;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use self::flights::FlightId;
use self::gathered::{Departure, Gathered, Waiting};
use self::item::{Batch, awaited, distribute, settling};
pub(super) use self::item::{Batched, Common, is_more, lines, read};
use super::call::Landing;
use super::errors::may_be_about_one;
use super::link::{Link, closed};
use super::resp::Reply;
use super::scripts::Script;
use crate::core::name::LockName;
use crate::engine::Answer;
use crate::error::StoreError;
use crate::sync::lock;

/// How many operations one call carries at most: one call must not keep a server from others.
const MOST: usize = 128;

/// Sends the operations of one client, on one connection.
pub(super) struct Batcher {
    link: Arc<Link>,
    client: String,
    gathered: Mutex<Gathered>,
    /// Something is left for [`Batcher::keep_sending`].
    left_over: Notify,
}

impl Batcher {
    pub(super) fn new(link: Arc<Link>, client: String) -> Arc<Self> {
        let (gathered, left_over) = (Mutex::default(), Notify::new());
        Arc::new(Self { link, client, gathered, left_over })
    }

    /// Sends an operation, at once or with the next call.
    pub(super) fn send<O: Batched>(self: &Arc<Self>, operation: O) -> Answer<O::Outcome> {
        let (item, answer) = awaited(operation);
        let mut gathered = lock(&self.gathered);
        gathered.add(item);
        self.send_ready(gathered);
        answer
    }

    /// Goes on settling a lock in which one call has left more to do.
    pub(super) fn settle(self: &Arc<Self>, name: LockName) {
        let mut gathered = lock(&self.gathered);
        gathered.add(settling(name, 0));
        self.send_ready(gathered);
    }

    /// Sends several, together as far as one call carries them.
    pub(super) fn send_all<O: Batched>(
        self: &Arc<Self>,
        operations: Vec<O>,
    ) -> Vec<Answer<O::Outcome>> {
        let (items, answers): (Vec<_>, _) = operations.into_iter().map(awaited).unzip();
        let mut gathered = lock(&self.gathered);
        items.into_iter().for_each(|item| gathered.add(item));
        self.send_ready(gathered);
        answers
    }

    /// Sends what gathers while calls are in flight, for ever. Runs where replies are read: on the I/O
    /// thread, or on the callers' runtime.
    pub(super) async fn keep_sending(self: Arc<Self>) {
        loop {
            self.left_over.notified().await;
            let mut gathered = lock(&self.gathered);
            gathered.is_told = false;
            self.send_all_ready(gathered);
        }
    }

    /// Sends what can leave at once, for a caller; [`Self::keep_sending`] sees to the rest.
    fn send_ready<'a>(self: &'a Arc<Self>, gathered: MutexGuard<'a, Gathered>) {
        let mut gathered = self.send_while(gathered, 1);
        let is_left = !gathered.is_sending && gathered.can_leave(self.link.trip.calls());
        if is_left && !gathered.is_told {
            gathered.is_told = true;
            drop(gathered);
            self.left_over.notify_one();
        }
    }

    /// Sends all that can leave.
    fn send_all_ready<'a>(self: &'a Arc<Self>, gathered: MutexGuard<'a, Gathered>) {
        drop(self.send_while(gathered, self.link.trip.calls()));
    }

    /// Sends while fewer than so many calls of a kind are in flight, unless another thread is sending.
    fn send_while<'a>(
        self: &'a Arc<Self>,
        mut gathered: MutexGuard<'a, Gathered>,
        calls: usize,
    ) -> MutexGuard<'a, Gathered> {
        if gathered.is_sending {
            return gathered;
        }
        gathered.is_sending = true;
        let sending = Sending(self);
        while let Some(departure) = gathered.take(calls) {
            drop(gathered);
            self.depart(departure);
            gathered = lock(&self.gathered);
        }
        gathered.is_sending = false;
        std::mem::forget(sending);
        gathered
    }

    fn depart(self: &Arc<Self>, Departure { id, batch, tells }: Departure) {
        let flight = Flight { batcher: self.clone(), id, batch };
        let Some(first) = flight.batch.first() else { return };
        let names = flight.batch.iter().map(|item| item.name());
        let common = self.link.common(&self.client);
        let mut call = self.link.prepare(first.script(), names, &self.client);
        flight.batch.iter().for_each(|item| item.arguments(common, &mut call.command));
        call.command.is_answered_last = flight.batch.iter().any(|item| item.hands_over());
        if tells {
            return self.link.call_telling(call, Box::new(move |result| flight.land(result)));
        }
        self.link.call_once(
            call,
            Box::new(move |call, landing| match landing {
                Landing::Done(result) => flight.land(result),
                Landing::Missing => {
                    let is_told = flight.batcher.link.was_told_since(&call);
                    flight.put_back(!is_told, false);
                }
            }),
        );
    }
}

/// Sending. If it ends by a panic, others must not wait for it for ever.
struct Sending<'a>(&'a Arc<Batcher>);

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        lock(&self.0.gathered).is_sending = false;
    }
}

/// A call in flight. Dropped without an answer, it is unknown what it did.
struct Flight {
    batcher: Arc<Batcher>,
    id: FlightId,
    batch: Batch,
}

impl Flight {
    /// The answer is there: first the next call departs, then everyone is told.
    fn land(mut self, result: Result<Reply, StoreError>) {
        match result {
            Err(trouble) if self.batch.len() > 1 && may_be_about_one(&trouble) => {
                self.put_back(false, true);
            }
            result => {
                let batch = std::mem::take(&mut self.batch);
                let script = batch.first().map(|item| item.script());
                script.into_iter().for_each(|script| self.end(script));
                self.follow(distribute(batch, result));
            }
        }
    }

    /// The call was not performed. Its operations leave again, unless they would come too late.
    fn put_back(mut self, tells: bool, is_alone: bool) {
        let batch = std::mem::take(&mut self.batch);
        let Some(script) = batch.first().map(|item| item.script()) else { return };
        let mut gathered = lock(&self.batcher.gathered);
        gathered.lane(script).tells |= tells;
        let later = gathered.flights.after(self.id);
        let (refused, again): (Batch, Batch) =
            batch.into_iter().partition(|item| item.is_acquire() && later.contains(item.name()));
        // The last one first, because each comes before those that are there.
        let again = again.into_iter().rev().map(|item| Waiting { item, is_alone });
        again.for_each(|waiting| gathered.add_first(waiting));
        drop(gathered);
        self.end(script);
        refuse(refused);
    }

    /// Sends what follows the operations of this call.
    fn follow(&self, items: Batch) {
        if items.is_empty() {
            return;
        }
        let mut gathered = lock(&self.batcher.gathered);
        let (late, again): (Batch, Batch) = items
            .into_iter()
            .partition(|item| item.is_acquire() && gathered.is_given_up(item.name()));
        again.into_iter().for_each(|item| gathered.add(item));
        self.batcher.send_all_ready(gathered);
        refuse(late);
    }

    /// The call has landed: others of its kind may depart.
    fn end(&self, script: &'static Script) {
        let mut gathered = lock(&self.batcher.gathered);
        gathered.lane(script).in_flight -= 1;
        gathered.land(self.id);
        self.batcher.send_all_ready(gathered);
    }
}

/// Answers acquires that were not performed, and cannot be any more.
fn refuse(items: Batch) {
    let trouble =
        StoreError::refused("the lock was released or cancelled before it could be acquired");
    drop(distribute(items, Err(trouble)));
}

impl Drop for Flight {
    fn drop(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let Some(first) = batch.first() else { return };
        self.end(first.script());
        drop(distribute(batch, Err(closed())));
    }
}
