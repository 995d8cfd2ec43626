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
//! acquire must not be sent after a later release or cancel of its name: see [`flights`](self::flights). So are
//! operations that a node of a cluster redirects, which are then sent to another node.
//!
//! **Slots.** A call carries operations of one slot of a cluster, or plain ones of several: see [`spread`](self::spread).
//! One server has all locks in one slot.
//!
//! **One sender.** A thread that finds a call ready becomes the sender, until none is: it takes a batch, unlocks, and
//! writes it to the socket. Other threads only add operations. So batches reach the socket in the order in which they
//! were taken, no mutex is held while the link is called, and a link that answers at once, because it is down, does not
//! recurse.

mod flights;
mod gathered;
mod item;
mod spread;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use self::flights::FlightId;
use self::gathered::{Asks, Dispatch, Gathered, LaneKey, Locks, Waiting};
use self::item::{Batch, Item, Rest, awaited, distribute, fail, settling};
pub(super) use self::item::{Batched, Common, is_more, lines, read};
pub(super) use self::spread::is_undone;
use super::call::{Call, CallOutcome};
use super::errors::may_be_about_one;
use super::link::{Link, closed};
use super::redirect::{self, Redirect};
use super::resp::Reply;
use super::routes::Routes;
use super::scripts::Script;
use crate::clock;
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

/// Sends the operations of one client.
pub(super) struct Batcher {
    routes: Routes,
    client: Arc<str>,
    gathered: Mutex<Gathered>,
    /// There is work for [`Batcher::keep_sending`].
    left_over: Notify,
}

impl Batcher {
    pub(super) fn new(routes: Routes, client: Arc<str>) -> Arc<Self> {
        let (gathered, left_over) = (Mutex::default(), Notify::new());
        Arc::new(Self { routes, client, gathered, left_over })
    }

    /// Sends an operation, at once or with the next call.
    pub(super) fn send<O: Batched>(self: &Arc<Self>, operation: O) -> Answer<O::Outcome> {
        let (item, answer) = self.item(operation);
        self.add(item);
        answer
    }

    /// Continues to settle a lock that one call has not settled completely.
    pub(super) fn settle(self: &Arc<Self>, name: LockName) {
        let slot = self.routes.slot(&name);
        self.add(settling(name, slot, 0));
    }

    /// Sends several, in as few calls as carry them.
    pub(super) fn send_all<O: Batched>(
        self: &Arc<Self>,
        operations: Vec<O>,
    ) -> Vec<Answer<O::Outcome>> {
        let (items, answers): (Vec<_>, _) =
            operations.into_iter().map(|operation| self.item(operation)).unzip();
        let mut gathered = lock(&self.gathered);
        items.into_iter().for_each(|item| self.gather(&mut gathered, item));
        self.send_ready(gathered);
        answers
    }

    fn item<O: Batched>(&self, operation: O) -> (Box<dyn Item>, Answer<O::Outcome>) {
        let slot = self.routes.slot(operation.name());
        awaited(operation, slot)
    }

    fn add(self: &Arc<Self>, item: Box<dyn Item>) {
        let mut gathered = lock(&self.gathered);
        self.gather(&mut gathered, item);
        self.send_ready(gathered);
    }

    /// Adds a new operation, to be sent with others of its slot, or of its node.
    fn gather(&self, gathered: &mut Gathered, mut item: Box<dyn Item>) {
        if gathered.spreading.takes(&*item) {
            item.set_node(self.routes.spread_over(item.slot()));
        }
        gathered.add(item);
    }

    /// Sends acquires that were held back, unless they were given up meanwhile.
    fn send_held_back(self: &Arc<Self>, items: Batch) {
        let mut gathered = lock(&self.gathered);
        let (again, late): (Batch, Batch) = items
            .into_iter()
            .partition(|item| gathered.is_still_held_back(&**item) && !item.is_dropped());
        for mut item in again {
            item.note_heard();
            gathered.add(item);
        }
        self.send_all_ready(gathered);
        refuse(late);
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
        let is_busy = gathered.in_flight() >= self.routes.calls_at_once();
        let mut gathered = if is_busy { gathered } else { self.send_while(gathered, |_| 1) };
        let is_left = !gathered.is_sending && gathered.can_send(&|locks| self.calls(locks));
        if is_left && !gathered.is_notified {
            gathered.is_notified = true;
            drop(gathered);
            self.left_over.notify_one();
        }
    }

    /// Sends all calls that may be in flight.
    fn send_all_ready<'a>(self: &'a Arc<Self>, gathered: MutexGuard<'a, Gathered>) {
        drop(self.send_while(gathered, |locks| self.calls(locks)));
    }

    /// How many calls for these locks may be in flight.
    fn calls(&self, locks: Locks) -> usize {
        match locks {
            Locks::Of(slot) => self.routes.calls(slot),
            Locks::On(number) => self.routes.calls_to(number),
        }
    }

    /// Sends while fewer than `calls` calls of a kind are in flight for the same locks, unless another thread is sending.
    fn send_while<'a>(
        self: &'a Arc<Self>,
        mut gathered: MutexGuard<'a, Gathered>,
        calls: impl Fn(Locks) -> usize,
    ) -> MutexGuard<'a, Gathered> {
        if gathered.is_sending {
            return gathered;
        }
        gathered.is_sending = true;
        let sending = Sending(self);
        // In a cluster each call is small, and so many of them are written at once.
        let mut corked = Vec::new();
        loop {
            let Some(dispatch) = gathered.take(&calls) else {
                if corked.is_empty() {
                    break;
                }
                // Without the mutex: this is a system call. Other threads may add operations meanwhile.
                drop(gathered);
                corked.clear();
                gathered = lock(&self.gathered);
                continue;
            };
            let is_more = gathered.is_more();
            drop(gathered);
            if is_more && corked.is_empty() {
                corked = self.routes.cork();
            }
            self.dispatch(dispatch);
            gathered = lock(&self.gathered);
        }
        gathered.is_sending = false;
        std::mem::forget(sending);
        gathered
    }

    fn dispatch(self: &Arc<Self>, Dispatch { id, lane, batch, sends_text, asks }: Dispatch) {
        let Some(first) = batch.first() else { return };
        let (script, slot) = (first.script(), first.slot());
        let is_spread = batch.iter().any(|item| item.slot() != slot);
        let batcher = self.clone();
        let mut flight = Flight { batcher, id, lane, script, slot, is_spread, link: None, batch };
        let is_asking = asks.is_some();
        let link = match asks.map_or_else(|| self.routes.node(slot), Ok) {
            Ok(node) => node.commands.clone(),
            Err(error) => return flight.complete(Err(error)),
        };
        flight.link = Some(link.clone());
        let mut call = flight.call(&link);
        call.command.is_answered_last = flight.batch.iter().any(|item| item.hands_over());
        call.command.is_asking = is_asking;
        if (sends_text && !is_spread) || is_asking {
            let done = Box::new(move |result| flight.complete(result));
            return link.call_with_script(call, done);
        }
        let on_outcome = Box::new(move |call: Arc<Call>, outcome| match outcome {
            CallOutcome::Answered(result) => flight.complete(result),
            CallOutcome::MissingScript => flight.miss_script(&call),
        });
        link.call_once(call, on_outcome);
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
    lane: LaneKey,
    script: &'static Script,
    /// The slot of the first lock.
    slot: u16,
    /// Other locks are of other slots.
    is_spread: bool,
    /// The connection it is on.
    link: Option<Arc<Link>>,
    batch: Batch,
}

impl Flight {
    /// The call of the script.
    fn call(&self, link: &Link) -> Call {
        if self.is_spread {
            return self.spread_call(link);
        }
        let client = self.batcher.client_in(self.slot);
        let names = self.batch.iter().map(|item| item.name());
        let mut call = link.prepare(self.script, names, &client);
        let common = link.common(&client);
        self.batch.iter().for_each(|item| item.arguments(common, &mut call.command));
        call
    }

    /// The server does not have the script: it is sent along with the next call.
    fn miss_script(self, call: &Call) {
        match &self.link {
            Some(link) if self.is_spread => {
                self.script.spread().into_iter().for_each(|it| link.load(it))
            }
            Some(link) => lock(&self.batcher.gathered)
                .send_texts(self.slot, |script| link.is_text_sent_since(script, call)),
            None => {}
        }
        self.put_back(false, None);
    }

    /// Handles the answer: first sends the next call, then answers the operations.
    fn complete(self, result: Result<Reply, StoreError>) {
        match result {
            Err(error) if self.batch.len() > 1 && may_be_about_one(&error) => {
                self.put_back(true, None);
            }
            result => match result.as_ref().ok().and_then(|reply| self.redirect(reply)) {
                Some(redirect) if self.is_spread => self.redirected_spread(&redirect),
                Some(redirect) => self.redirected(&redirect),
                None if self.is_spread => self.answer_spread(result),
                None => self.answer(result),
            },
        }
    }

    fn answer(mut self, result: Result<Reply, StoreError>) {
        let batch = std::mem::take(&mut self.batch);
        self.end();
        let hears = match &self.batcher.routes {
            Routes::One(_) => true,
            Routes::Cluster(cluster) => cluster.hears(self.slot),
        };
        let Rest { again, unheard } = distribute(batch, result, hears);
        self.continue_with(again);
        self.hold_back(unheard);
    }

    /// Where the node has redirected this call to.
    fn redirect(&self, reply: &Reply) -> Option<Redirect> {
        self.link.as_ref().and_then(|link| redirect::read(reply, &link.address))
    }

    /// Another node of the cluster has the slot: the call was not performed, and is sent there.
    fn redirected(mut self, redirect: &Redirect) {
        let count =
            |is_before: bool, item: &mut Box<dyn Item>| item.is_redirected_too_often() || is_before;
        let followed = if self.batch.iter_mut().fold(false, count) {
            Err(redirect::too_often())
        } else {
            self.batcher.routes.follow(self.slot, redirect)
        };
        match followed {
            Ok((node, is_asking)) => {
                let asks = is_asking.then(|| Asks { node, since: clock::now() });
                self.put_back(is_asking, asks);
            }
            Err(error) => self.answer(Err(error)),
        }
    }

    /// The call was not performed. Its operations are sent again, unless they would come too late.
    fn put_back(mut self, is_alone: bool, asks: Option<Asks>) {
        let batch = std::mem::take(&mut self.batch);
        let refused = self.put_back_some(batch, is_alone, asks.as_ref());
        self.end();
        refuse(refused);
    }

    /// These operations of the call were not performed. They are sent again, to their slots; returns those that would
    /// come too late.
    fn put_back_some(&self, batch: Batch, is_alone: bool, asks: Option<&Asks>) -> Batch {
        let mut gathered = lock(&self.batcher.gathered);
        let later = gathered.flights.after(self.id);
        // The cancel of an acquire whose answer was dropped may have been answered, by another node of a cluster.
        let (refused, again): (Batch, Batch) = batch.into_iter().partition(|item| {
            let is_ended = || later.contains(&(item.name().clone(), item.owner()));
            item.is_acquire() && (item.is_dropped() || is_ended())
        });
        // In reverse, so that names become ready in order.
        for mut item in again.into_iter().rev() {
            item.set_node(None);
            gathered.put_back(Waiting { item, is_alone, asks: asks.cloned() });
        }
        refused
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

    /// Holds back acquires that have begun to wait in a slot of a cluster whose wake-ups do not arrive yet; they are sent
    /// again when they do, and so learn of a grant that was published before.
    fn hold_back(&self, items: Batch) {
        let Routes::Cluster(cluster) = &self.batcher.routes else { return };
        if items.is_empty() {
            return;
        }
        let mut gathered = lock(&self.batcher.gathered);
        let (late, items): (Batch, Batch) =
            items.into_iter().partition(|item| gathered.is_given_up(&**item));
        items.iter().for_each(|item| gathered.hold_back(&**item));
        drop(gathered);
        refuse(late);
        let batcher = self.batcher.clone();
        cluster.wait_in(self.slot, Box::new(move || batcher.send_held_back(items)));
    }

    /// The call is no longer in flight: sends the calls that have waited for it.
    fn end(&self) {
        let mut gathered = lock(&self.batcher.gathered);
        gathered.land(self.lane, self.id);
        self.batcher.send_all_ready(gathered);
    }
}

/// Answers acquires that were not performed, and must not be sent again.
fn refuse(items: Batch) {
    fail(
        items,
        StoreError::refused("the lock was released or cancelled before it could be acquired"),
    );
}

impl Drop for Flight {
    fn drop(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if !batch.is_empty() {
            self.end();
            fail(batch, closed());
        }
    }
}
