//! Gathering operations into calls, in order.
//!
//! An operation without concurrent ones is sent at once. While a call of one kind is in flight, operations of that kind
//! are gathered, and sent as one call over many keys. If the server is near, that happens when the answer arrives; if
//! it is farther away, when [`Batcher::keep_sending`] runs, until as many calls are in flight as [`trip`](super::trip)
//! allows: while that task wakes up, the callers woken by one answer mostly submit their next operations. A full batch
//! is sent in any case, with a few calls of its kind in flight: so the server has work while this client reads the
//! answers to the previous one.
//!
//! **Order.** A server performs the calls of one connection in the order in which they arrive. So this client's
//! operations on one name are performed in the order in which they were submitted, provided that none is sent before an
//! earlier one of its name: an acquire does not overtake the release before it. Only the first operations of a name, as
//! far as they are of one kind, are ready to be sent; the next ones become ready as soon as these are on the socket,
//! and need not wait for the answer.
//!
//! **Continuation.** One call does a bounded amount of work. If there is more to settle in a lock, the answer ends with
//! a plus sign: an acquire is sent again, because its own answer depends on the rest; after any other operation, calls
//! that cancel nothing follow until the lock is settled.
//!
//! **Put back.** Operations that a call has not performed are put back, before all that wait of their names: if the
//! server has lost the script, which is then sent along; and if it refuses a call as a whole because of one of its
//! keys: then each operation is sent in a call of its own, so that an error of one lock affects no other. But an
//! acquire must not be sent after a later release or cancel of its name: see [`flights`](self::flights).
//!
//! **One sender.** A thread that finds a call ready becomes the sender, until none is: it takes a batch, unlocks, and
//! writes it to the socket. Other threads only add operations. So batches reach the socket in the order in which they
//! were taken, no mutex is held while the link is called, and a link that answers at once, because it is down, does not
//! recurse.

mod flights;
mod gathered;
mod item;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use self::flights::FlightId;
use self::gathered::{Dispatch, Gathered, Waiting};
use self::item::{Batch, awaited, distribute, settling};
pub(super) use self::item::{Batched, Common, is_more, lines, read};
use super::call::CallOutcome;
use super::errors::may_be_about_one;
use super::link::{Link, closed};
use super::resp::Reply;
use super::scripts::Script;
use crate::core::name::LockName;
use crate::engine::{AcquireRequest, Answer, CancelRequest, ReleaseRequest};
use crate::error::StoreError;
use crate::sync::lock;

/// How many operations one call carries at most: a call must not block the server for other clients.
const MOST: usize = 128;

/// The scripts of the operations that are gathered.
fn scripts() -> [&'static Script; 3] {
    [AcquireRequest::script(), ReleaseRequest::script(), CancelRequest::script()]
}

/// Sends the operations of one client, on one connection.
pub(super) struct Batcher {
    link: Arc<Link>,
    client: String,
    gathered: Mutex<Gathered>,
    /// There is work for [`Batcher::keep_sending`].
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

    /// Continues to settle a lock that one call has not settled completely.
    pub(super) fn settle(self: &Arc<Self>, name: LockName) {
        let mut gathered = lock(&self.gathered);
        gathered.add(settling(name, 0));
        self.send_ready(gathered);
    }

    /// Sends several, in as few calls as carry them.
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

    /// Sends the operations gathered while calls are in flight; never returns. Runs where replies are read: on the
    /// I/O thread, or on the callers' runtime.
    pub(super) async fn keep_sending(self: Arc<Self>) {
        loop {
            self.left_over.notified().await;
            let mut gathered = lock(&self.gathered);
            gathered.is_notified = false;
            self.send_all_ready(gathered);
        }
    }

    /// Sends, on a caller's thread, the calls that need not wait for another; [`Self::keep_sending`] sends the rest.
    fn send_ready<'a>(self: &'a Arc<Self>, gathered: MutexGuard<'a, Gathered>) {
        let mut gathered = self.send_while(gathered, 1);
        let is_left = !gathered.is_sending && gathered.can_send(self.link.trip.calls());
        if is_left && !gathered.is_notified {
            gathered.is_notified = true;
            drop(gathered);
            self.left_over.notify_one();
        }
    }

    /// Sends all calls that may be in flight.
    fn send_all_ready<'a>(self: &'a Arc<Self>, gathered: MutexGuard<'a, Gathered>) {
        drop(self.send_while(gathered, self.link.trip.calls()));
    }

    /// Sends while fewer than `calls` calls of a kind are in flight, unless another thread is sending.
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
        while let Some(dispatch) = gathered.take(calls) {
            drop(gathered);
            self.dispatch(dispatch);
            gathered = lock(&self.gathered);
        }
        gathered.is_sending = false;
        std::mem::forget(sending);
        gathered
    }

    fn dispatch(self: &Arc<Self>, Dispatch { id, batch, sends_text }: Dispatch) {
        let flight = Flight { batcher: self.clone(), id, batch };
        let Some(first) = flight.batch.first() else { return };
        let names = flight.batch.iter().map(|item| item.name());
        let common = self.link.common(&self.client);
        let mut call = self.link.prepare(first.script(), names, &self.client);
        flight.batch.iter().for_each(|item| item.arguments(common, &mut call.command));
        call.command.is_answered_last = flight.batch.iter().any(|item| item.hands_over());
        if sends_text {
            let done = Box::new(move |result| flight.complete(result));
            return self.link.call_with_script(call, done);
        }
        self.link.call_once(
            call,
            Box::new(move |call, outcome| match outcome {
                CallOutcome::Answered(result) => flight.complete(result),
                CallOutcome::MissingScript => {
                    let link = flight.batcher.link.clone();
                    lock(&flight.batcher.gathered)
                        .send_texts(|script| link.is_text_sent_since(script, &call));
                    flight.put_back(false);
                }
            }),
        );
    }
}

/// A thread is sending. If it panics, another one must be able to send.
struct Sending<'a>(&'a Arc<Batcher>);

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        lock(&self.0.gathered).is_sending = false;
    }
}

/// A call in flight. Dropped without an answer, its effect is unknown.
struct Flight {
    batcher: Arc<Batcher>,
    id: FlightId,
    batch: Batch,
}

impl Flight {
    /// Handles the answer: first sends the next call, then answers the operations.
    fn complete(mut self, result: Result<Reply, StoreError>) {
        match result {
            Err(error) if self.batch.len() > 1 && may_be_about_one(&error) => {
                self.put_back(true);
            }
            result => {
                let batch = std::mem::take(&mut self.batch);
                let script = batch.first().map(|item| item.script());
                script.into_iter().for_each(|script| self.end(script));
                self.continue_with(distribute(batch, result));
            }
        }
    }

    /// The call was not performed. Its operations are sent again, unless they would come too late.
    fn put_back(mut self, is_alone: bool) {
        let batch = std::mem::take(&mut self.batch);
        let Some(script) = batch.first().map(|item| item.script()) else { return };
        let mut gathered = lock(&self.batcher.gathered);
        let later = gathered.flights.after(self.id);
        let (refused, again): (Batch, Batch) = batch.into_iter().partition(|item| {
            item.is_acquire() && later.contains(&(item.name().clone(), item.owner()))
        });
        // In reverse, so that names become ready in order.
        let again = again.into_iter().rev().map(|item| Waiting { item, is_alone });
        again.for_each(|waiting| gathered.put_back(waiting));
        drop(gathered);
        self.end(script);
        refuse(refused);
    }

    /// Sends the continuations of this call's operations.
    fn continue_with(&self, items: Batch) {
        if items.is_empty() {
            return;
        }
        let mut gathered = lock(&self.batcher.gathered);
        let (late, again): (Batch, Batch) =
            items.into_iter().partition(|item| item.is_acquire() && gathered.is_given_up(&**item));
        again.into_iter().for_each(|item| gathered.add(item));
        self.batcher.send_all_ready(gathered);
        refuse(late);
    }

    /// The call is no longer in flight: sends the calls that have waited for it.
    fn end(&self, script: &'static Script) {
        let mut gathered = lock(&self.batcher.gathered);
        gathered.lane(script).in_flight -= 1;
        gathered.flights.complete(self.id);
        self.batcher.send_all_ready(gathered);
    }
}

/// Answers acquires that were not performed, and must not be sent again.
fn refuse(items: Batch) {
    let error =
        StoreError::refused("the lock was released or cancelled before it could be acquired");
    drop(distribute(items, Err(error)));
}

impl Drop for Flight {
    fn drop(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let Some(first) = batch.first() else { return };
        self.end(first.script());
        drop(distribute(batch, Err(closed())));
    }
}
