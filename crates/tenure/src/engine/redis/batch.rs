//! Gathering operations into calls, in order.
//!
//! A lone caller waits for nobody. While a call of one kind is in flight, operations of that kind are
//! gathered, and sent as one call over many keys: as soon as its answer is there, if the server is near; if
//! it is farther away, as soon as the I/O thread comes to it, until as many calls are in flight as
//! [`trip`](super::trip) says. It takes the thread a moment to wake up, and those who were told something by
//! one answer mostly ask their next questions within that moment.
//!
//! **Order.** A server performs what comes on one connection in the order in which it comes. So the
//! operations of this client on one name are performed in the order in which they were sent here, if an
//! operation never leaves before an earlier one of its name: an acquire does not overtake the release
//! before it. Only the first operations of a name, as far as they are of one kind, are ready to leave;
//! those behind them follow as soon as these are on the socket, and need not wait for the answer.
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
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::iter::Skip;
use std::str::Lines;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, oneshot};

use self::flights::{FlightId, Flights};
use super::call::Landing;
use super::link::{Link, closed};
use super::resp::{Command, Reply};
use super::scripts::Script;
use super::trouble::{may_be_about_one, of_server};
use crate::core::name::LockName;
use crate::engine::{Answer, CancelRequest};
use crate::error::Trouble;
use crate::foreign;
use crate::owner::Entry;
use crate::sync::lock;

/// How many operations one call carries at most: one call must not keep a server from others.
const MOST: usize = 128;

/// How often an operation goes on at most where there is more to settle: for a million waiters, and no
/// longer for a server that is out of its mind.
const GOES_ON_AT_MOST: u32 = 1000;

/// An operation that can be sent together with others of its kind.
pub(super) trait Batched: Send + 'static {
    /// What it answers.
    type Outcome: Send + Unpin + 'static;

    /// The script that performs it.
    fn script() -> &'static Script;

    /// The lock it is for.
    fn name(&self) -> &LockName;

    /// Its part of the script's arguments.
    fn arguments(&self, common: Common<'_>, into: &mut Command);

    /// Its line of the script's answer.
    fn read(&self, line: &str) -> Option<Self::Outcome>;

    /// Whether its answer depends on what is left to settle, so that the same must be asked again.
    const IS_ASKED_AGAIN: bool = false;
}

/// What the operations of a client have in common.
#[derive(Clone, Copy)]
pub(super) struct Common<'a> {
    /// The client's id.
    pub(super) client: &'a str,
    /// For how long the fences of its locks outlive them, in ms.
    pub(super) retention: u64,
}

/// An operation of any kind, and who waits for it.
trait Item: Send {
    fn script(&self) -> &'static Script;
    fn name(&self) -> &LockName;
    fn arguments(&self, common: Common<'_>, into: &mut Command);
    /// Whether it asks for a lock.
    fn is_acquire(&self) -> bool;
    /// Answers it, with its line of the call's answer. What must follow it, if there is more to do.
    fn land(self: Box<Self>, line: Result<Option<&str>, &Trouble>) -> Option<Box<dyn Item>>;
}

struct Awaited<O: Batched> {
    operation: O,
    reply: oneshot::Sender<Result<O::Outcome, Trouble>>,
    /// How often it, or what it follows, went on so far.
    went_on: u32,
}

impl<O: Batched> Item for Awaited<O> {
    fn script(&self) -> &'static Script {
        O::script()
    }

    fn name(&self) -> &LockName {
        self.operation.name()
    }

    fn arguments(&self, common: Common<'_>, into: &mut Command) {
        self.operation.arguments(common, into);
    }

    fn is_acquire(&self) -> bool {
        O::IS_ASKED_AGAIN
    }

    fn land(mut self: Box<Self>, line: Result<Option<&str>, &Trouble>) -> Option<Box<dyn Item>> {
        let is_more = matches!(line, Ok(Some(line)) if is_more(line));
        let goes_on = is_more && self.went_on < GOES_ON_AT_MOST;
        self.went_on += 1;
        if goes_on && O::IS_ASKED_AGAIN && !self.reply.is_closed() {
            return Some(self);
        }
        let next = goes_on.then(|| settling(self.operation.name().clone(), self.went_on));
        let outcome = match line {
            Ok(line) => read(&self.operation, line),
            Err(trouble) => Err(trouble.clone()),
        };
        // Nobody may be waiting for it any more. If one does, its waker is foreign code.
        foreign::call(|| drop(self.reply.send(outcome)));
        next
    }
}

/// Settles a lock: cancels an entry that nobody has made.
fn settling(name: LockName, went_on: u32) -> Box<dyn Item> {
    let operation = CancelRequest { name, entry: Entry::single() };
    Box::new(Awaited { operation, reply: oneshot::channel().0, went_on })
}

type Batch = Vec<Box<dyn Item>>;

/// Sends the operations of one client, on one connection.
pub(super) struct Batcher {
    link: Arc<Link>,
    client: String,
    gathered: Mutex<Gathered>,
    /// Something is left to be sent by the I/O thread.
    left_over: Notify,
}

/// What has not been sent, and how much is in flight.
#[derive(Default)]
struct Gathered {
    /// What waits, by name, in order. No list is empty.
    waiting: HashMap<LockName, VecDeque<Waiting>>,
    lanes: Vec<Lane>,
    flights: Flights,
    /// Somebody is sending, and will look again.
    is_sending: bool,
    /// The I/O thread was told that something is left.
    is_told: bool,
}

/// An operation that has not left.
struct Waiting {
    item: Box<dyn Item>,
    /// It leaves in a call of its own.
    is_alone: bool,
}

/// The calls of one script.
struct Lane {
    script: &'static Script,
    in_flight: usize,
    /// The next call is to tell the script's text.
    tells: bool,
    /// Names whose first operation is of this kind, in the order in which they became so.
    ready: VecDeque<LockName>,
}

impl Lane {
    fn can_leave(&self, calls: usize) -> bool {
        self.in_flight < calls && !self.ready.is_empty()
    }
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

    /// Sends what gathers while calls are in flight, for ever. Runs on the I/O thread.
    pub(super) async fn keep_sending(self: Arc<Self>) {
        loop {
            self.left_over.notified().await;
            let mut gathered = lock(&self.gathered);
            gathered.is_told = false;
            self.send_all_ready(gathered);
        }
    }

    /// Sends what can leave at once, for a caller; the I/O thread sees to the rest.
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

/// A call that is about to be sent.
struct Departure {
    id: FlightId,
    batch: Batch,
    /// With the script's text.
    tells: bool,
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
    fn land(mut self, result: Result<Reply, Trouble>) {
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
        gathered.flights.land(self.id);
        self.batcher.send_all_ready(gathered);
    }
}

/// Answers acquires that were not performed, and cannot be any more.
fn refuse(items: Batch) {
    let trouble =
        Trouble::refused("the lock was released or cancelled before it could be acquired");
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

impl Gathered {
    fn lane(&mut self, script: &'static Script) -> &mut Lane {
        let known = self.lanes.iter().position(|lane| std::ptr::eq(lane.script, script));
        let index = known.unwrap_or_else(|| {
            self.lanes.push(Lane { script, in_flight: 0, tells: false, ready: VecDeque::new() });
            self.lanes.len() - 1
        });
        &mut self.lanes[index]
    }

    fn add(&mut self, item: Box<dyn Item>) {
        let (name, script) = (item.name().clone(), item.script());
        let of_name = self.waiting.entry(name.clone()).or_default();
        of_name.push_back(Waiting { item, is_alone: false });
        if of_name.len() == 1 {
            self.lane(script).ready.push_back(name);
        }
    }

    /// Adds what comes before all that waits of its name.
    fn add_first(&mut self, waiting: Waiting) {
        let (name, script) = (waiting.item.name().clone(), waiting.item.script());
        let of_name = self.waiting.entry(name.clone()).or_default();
        let before = of_name.front().map(|it| it.item.script());
        of_name.push_front(waiting);
        if let Some(before) = before {
            self.lane(before).ready.retain(|it| *it != name);
        }
        self.lane(script).ready.push_front(name);
    }

    /// Whether something else than an acquire of this name is in flight, or waits.
    fn is_given_up(&self, name: &LockName) -> bool {
        let waiting = self.waiting.get(name).into_iter().flatten();
        self.flights.has(name) || waiting.into_iter().any(|it| !it.item.is_acquire())
    }

    /// Whether something can leave, with at most so many calls of a kind in flight.
    fn can_leave(&self, calls: usize) -> bool {
        self.lanes.iter().any(|lane| lane.can_leave(calls))
    }

    /// Takes what can leave in one call; none if nothing can.
    fn take(&mut self, calls: usize) -> Option<Departure> {
        let lane = self.lanes.iter_mut().find(|lane| lane.can_leave(calls))?;
        lane.in_flight += 1;
        let (script, tells) = (lane.script, std::mem::take(&mut lane.tells));
        let mut batch = Batch::new();
        // As many names as were ready, so that one with a long list does not come twice.
        for _ in 0..lane.ready.len() {
            if batch.len() == MOST {
                break;
            }
            let Some(name) = self.lane(script).ready.pop_front() else { break };
            if self.take_of(name, script, &mut batch) {
                break;
            }
        }
        let id = self
            .flights
            .depart(batch.iter().filter(|item| !item.is_acquire()).map(|item| item.name()));
        Some(Departure { id, batch, tells })
    }

    /// Takes the first operations of a name, as far as they are of one kind. Whether the call is complete.
    fn take_of(&mut self, name: LockName, script: &'static Script, batch: &mut Batch) -> bool {
        let Some(of_name) = self.waiting.get_mut(&name) else { return false };
        let fits = |waiting: &Waiting, batch: &Batch| {
            std::ptr::eq(waiting.item.script(), script)
                && batch.len() < MOST
                && (batch.is_empty() || !waiting.is_alone)
        };
        let mut is_complete = false;
        while !is_complete && of_name.front().is_some_and(|waiting| fits(waiting, batch)) {
            let Some(waiting) = of_name.pop_front() else { break };
            is_complete = waiting.is_alone;
            batch.push(waiting.item);
        }
        match of_name.front() {
            Some(next) => {
                let (next, is_first) = (next.item.script(), next.is_alone);
                let ready = &mut self.lane(next).ready;
                if is_first {
                    ready.push_front(name)
                } else {
                    ready.push_back(name)
                }
                is_complete |= is_first;
            }
            None => drop(self.waiting.remove(&name)),
        }
        is_complete
    }
}

fn awaited<O: Batched>(operation: O) -> (Box<dyn Item>, Answer<O::Outcome>) {
    let (reply, answer) = oneshot::channel();
    let answer = Answer::later(async move { answer.await.unwrap_or_else(|_| Err(closed())) });
    (Box::new(Awaited { operation, reply, went_on: 0 }), answer)
}

/// Answers every operation of a call; what must follow.
fn distribute(batch: Batch, result: Result<Reply, Trouble>) -> Batch {
    let mut lines = result.as_ref().map_err(Trouble::clone).and_then(lines);
    let landed = batch.into_iter().map(|item| match &mut lines {
        Ok(lines) => item.land(Ok(lines.next())),
        Err(trouble) => item.land(Err(trouble)),
    });
    landed.flatten().collect()
}

/// The lines of an answer, after what its call is known by.
pub(super) fn lines(reply: &Reply) -> Result<Skip<Lines<'_>>, Trouble> {
    let text = reply.text().ok_or_else(not_understood)?;
    Ok(text.lines().skip(1))
}

/// One operation's line of an answer.
pub(super) fn read<O: Batched>(operation: &O, line: Option<&str>) -> Result<O::Outcome, Trouble> {
    let line = line.ok_or_else(|| Trouble::unknown("the server's answer is too short"))?;
    match line.strip_prefix('-') {
        Some(error) => Err(of_server(error)),
        None => operation.read(line.trim_end_matches('+')).ok_or_else(not_understood),
    }
}

/// Whether an operation's line says that there is more to settle.
pub(super) fn is_more(line: &str) -> bool {
    line.ends_with('+') && !line.starts_with('-')
}

fn not_understood() -> Trouble {
    Trouble::unknown("the server's answer is not understood")
}
