//! One operation of a call, and the sender of its answer.

use std::iter::Skip;
use std::str::Lines;

use tokio::sync::oneshot;

use super::super::errors::of_server;
use super::super::link::closed;
use super::super::resp::{Command, Reply};
use super::super::routes::MOST_REDIRECTS;
use super::super::scripts::Script;
use super::super::topics::Topic;
use crate::core::name::LockName;
use crate::core::shape::Kind;
use crate::engine::{Answer, CancelRequest};
use crate::error::StoreError;
use crate::foreign;
use crate::owner::{Entry, Owner};

/// How often an operation is continued while there is more to settle: enough for a million waiters, and a bound for a
/// faulty server.
const MAX_CONTINUATIONS: u32 = 1000;

/// An operation that can be sent together with others of its kind.
pub(in crate::engine::redis) trait Batched: Send + 'static {
    /// Its parsed answer.
    type Outcome: Send + Unpin + 'static;

    /// The script that performs it.
    fn script() -> &'static Script;

    /// The lock it is for.
    fn name(&self) -> &LockName;

    /// The owner whose entry it is about.
    fn owner(&self) -> Owner;

    /// Its part of the script's arguments.
    fn arguments(&self, common: Common<'_>, into: &mut Command);

    /// Its line of the script's answer.
    fn read(&self, line: &str) -> Option<Self::Outcome>;

    /// Whether its answer depends on the rest to settle, so that the same operation is sent again.
    const IS_SENT_AGAIN: bool = false;

    /// Whether it probably hands the lock over to another client.
    fn hands_over(&self) -> bool {
        false
    }

    /// The kind of lock that it may have to wait for.
    fn kind(&self) -> Kind {
        Kind::Mutex
    }

    /// Whether the plain case of its script may perform it.
    fn is_plain(&self) -> bool {
        false
    }
}

/// The arguments that all operations of a client have in common.
#[derive(Clone, Copy)]
pub(in crate::engine::redis) struct Common<'a> {
    /// The client's id.
    pub(in crate::engine::redis) client: &'a str,
    /// For how long the fences of its locks outlive them, in ms.
    pub(in crate::engine::redis) retention: u64,
}

/// An operation of any kind, with the sender of its answer.
pub(super) trait Item: Send {
    fn script(&self) -> &'static Script;
    fn name(&self) -> &LockName;
    fn arguments(&self, common: Common<'_>, into: &mut Command);
    /// Whether it acquires a lock.
    fn is_acquire(&self) -> bool;
    /// Whether it probably hands the lock over to another client.
    fn hands_over(&self) -> bool;
    /// The owner whose entry it is about.
    fn owner(&self) -> Owner;
    /// The kind of lock that it may have to wait for.
    fn kind(&self) -> Kind;
    /// Whether the plain case of its script may perform it.
    fn is_plain(&self) -> bool;
    /// The slot of its lock.
    fn slot(&self) -> u16;
    /// The node of a cluster with whose other operations it is sent; none if only with those of its slot.
    fn node(&self) -> Option<u64>;
    fn set_node(&mut self, node: Option<u64>);
    /// Its number in the order in which operations were added.
    fn number(&self) -> u64;
    fn set_number(&mut self, number: u64);
    /// Counts a redirection; returns whether it was redirected too often.
    fn is_redirected_too_often(&mut self) -> bool;
    /// Whether this line says that it waits in a queue, and it was not sent again for that reason.
    fn begins_to_wait(&self, line: &str) -> bool;
    /// It is sent again because its wake-ups arrive only now.
    fn note_heard(&mut self);
    /// Whether its caller has dropped the answer.
    fn is_dropped(&self) -> bool;
    /// Answers it, with its line of the call's answer. Returns its continuation, if there is more to do.
    fn complete(self: Box<Self>, line: Result<Option<&str>, &StoreError>) -> Option<Box<dyn Item>>;
}

pub(super) struct Awaited<O: Batched> {
    operation: O,
    slot: u16,
    node: Option<u64>,
    number: u64,
    reply: oneshot::Sender<Result<O::Outcome, StoreError>>,
    /// How often it, or the operation that it continues, was continued so far.
    continued: u32,
    redirected: u32,
    /// It was sent again because its wake-ups arrive only now.
    is_heard: bool,
}

impl<O: Batched> Awaited<O> {
    fn new(
        operation: O,
        slot: u16,
        reply: oneshot::Sender<Result<O::Outcome, StoreError>>,
    ) -> Self {
        let (node, number, continued, redirected, is_heard) = (None, 0, 0, 0, false);
        Self { operation, slot, node, number, reply, continued, redirected, is_heard }
    }
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
        O::IS_SENT_AGAIN
    }

    fn hands_over(&self) -> bool {
        self.operation.hands_over()
    }

    fn owner(&self) -> Owner {
        self.operation.owner()
    }

    fn kind(&self) -> Kind {
        self.operation.kind()
    }

    fn is_plain(&self) -> bool {
        self.operation.is_plain()
    }

    fn slot(&self) -> u16 {
        self.slot
    }

    fn node(&self) -> Option<u64> {
        self.node
    }

    fn set_node(&mut self, node: Option<u64>) {
        self.node = node;
    }

    fn number(&self) -> u64 {
        self.number
    }

    fn set_number(&mut self, number: u64) {
        self.number = number;
    }

    fn is_redirected_too_often(&mut self) -> bool {
        self.redirected += 1;
        self.redirected > MOST_REDIRECTS
    }

    fn begins_to_wait(&self, line: &str) -> bool {
        O::IS_SENT_AGAIN && !self.is_heard && line.starts_with("2 ") && !is_more(line)
    }

    fn note_heard(&mut self) {
        self.is_heard = true;
    }

    fn is_dropped(&self) -> bool {
        self.reply.is_closed()
    }

    fn complete(
        mut self: Box<Self>,
        line: Result<Option<&str>, &StoreError>,
    ) -> Option<Box<dyn Item>> {
        let is_more = matches!(line, Ok(Some(line)) if is_more(line));
        let continues = is_more && self.continued < MAX_CONTINUATIONS;
        self.continued += 1;
        if continues && O::IS_SENT_AGAIN && !self.reply.is_closed() {
            return Some(self);
        }
        let next =
            continues.then(|| settling(self.operation.name().clone(), self.slot, self.continued));
        let outcome = match line {
            Ok(line) => read(&self.operation, line),
            Err(error) => Err(error.clone()),
        };
        // The receiver may have been dropped. If not, its waker is foreign code.
        foreign::call(|| drop(self.reply.send(outcome)));
        next
    }
}

/// Settles a lock, by cancelling an entry that does not exist.
pub(super) fn settling(name: LockName, slot: u16, continued: u32) -> Box<dyn Item> {
    let operation = CancelRequest { name, entry: Entry::single() };
    Box::new(Awaited { continued, ..Awaited::new(operation, slot, oneshot::channel().0) })
}

pub(super) type Batch = Vec<Box<dyn Item>>;

pub(super) fn awaited<O: Batched>(operation: O, slot: u16) -> (Box<dyn Item>, Answer<O::Outcome>) {
    let (reply, answer) = oneshot::channel();
    let answer = Answer::later(async move { answer.await.unwrap_or_else(|_| Err(closed())) });
    (Box::new(Awaited::new(operation, slot, reply)), answer)
}

/// What is left of a call after its answer.
#[derive(Default)]
pub(super) struct Rest {
    /// The continuations of its operations.
    pub(super) again: Batch,
    /// Acquires that have begun to wait, and whose wake-ups do not arrive yet. They are not answered.
    pub(super) unheard: Vec<(Box<dyn Item>, Topic)>,
}

/// Answers every operation of a call. `unheard` is the channel of an operation whose messages do not arrive yet.
pub(super) fn distribute(
    batch: Batch,
    result: Result<Reply, StoreError>,
    unheard: impl Fn(&dyn Item) -> Option<Topic>,
) -> Rest {
    let mut lines = result.as_ref().map_err(StoreError::clone).and_then(lines);
    let mut rest = Rest::default();
    for item in batch {
        let line = match &mut lines {
            Ok(lines) => Ok(lines.next()),
            Err(error) => Err(&*error),
        };
        let waits = matches!(line, Ok(Some(line)) if item.begins_to_wait(line));
        match waits.then(|| unheard(&*item)).flatten() {
            Some(topic) => rest.unheard.push((item, topic)),
            None => rest.again.extend(item.complete(line)),
        }
    }
    rest
}

/// Answers every operation of a call with an error.
pub(super) fn fail(batch: Batch, error: StoreError) {
    drop(distribute(batch, Err(error), |_| None));
}

/// The lines of an answer, after the first, which identifies the call.
pub(in crate::engine::redis) fn lines(reply: &Reply) -> Result<Skip<Lines<'_>>, StoreError> {
    let text = reply.text().ok_or_else(not_understood)?;
    Ok(text.lines().skip(1))
}

/// One operation's line of an answer.
pub(in crate::engine::redis) fn read<O: Batched>(
    operation: &O,
    line: Option<&str>,
) -> Result<O::Outcome, StoreError> {
    let line = line.ok_or_else(|| StoreError::unknown("the server's answer is too short"))?;
    match line.strip_prefix('-') {
        Some(error) => Err(of_server(error)),
        None => operation.read(line.trim_end_matches('+')).ok_or_else(not_understood),
    }
}

/// Whether an operation's line says that there is more to settle.
pub(in crate::engine::redis) fn is_more(line: &str) -> bool {
    line.ends_with('+') && !line.starts_with('-')
}

pub(super) fn not_understood() -> StoreError {
    StoreError::unknown("the server's answer cannot be parsed")
}
