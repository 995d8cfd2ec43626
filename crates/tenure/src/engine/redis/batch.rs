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
//! and need not wait for the answer. That holds for calls to one node of a cluster: see [`slots`](self::slots).
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

mod flight;
mod flights;
mod gathered;
mod item;
mod lane;
mod slots;
mod spread;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use self::flight::{Flight, refuse};
use self::gathered::{Dispatch, Gathered};
use self::item::{Batch, Item, awaited, settling};
pub(super) use self::item::{Batched, Common, is_more, lines, read};
use self::lane::Locks;
use self::slots::Slots;
pub(super) use self::spread::is_undone;
use super::call::{Call, CallOutcome};
use super::routes::Routes;
use super::scripts::Script;
use crate::core::name::LockName;
use crate::engine::{AcquireRequest, Answer, CancelRequest, ReleaseRequest};
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
        let slots = match &routes {
            Routes::One(_) => Slots::default(),
            Routes::Cluster(cluster) => {
                let cluster = cluster.clone();
                Slots::of_cluster(Box::new(move |slot| cluster.number_of(slot)))
            }
        };
        let mut gathered = Gathered::default();
        gathered.slots = slots;
        let gathered = Mutex::new(gathered);
        Arc::new(Self { routes, client, gathered, left_over: Notify::new() })
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
        let node = self.routes.spread_over(item.slot());
        item.set_node(node.filter(|node| gathered.spreading.takes(&*item, *node)));
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

    fn dispatch(self: &Arc<Self>, dispatch: Dispatch) {
        let Dispatch { id, lane, batch, sends_text, asks, to, slots } = dispatch;
        let Some(first) = batch.first() else { return };
        let (script, slot) = (first.script(), first.slot());
        let is_spread = batch.iter().any(|item| item.slot() != slot);
        let batcher = self.clone();
        let mut flight =
            Flight { batcher, id, lane, slots, script, slot, is_spread, link: None, batch };
        let is_asking = asks.is_some();
        // As it was decided with the order of its names: the slot may have got another node since.
        let link = match asks.map_or_else(|| self.routes.node_numbered(to, slot), Ok) {
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
