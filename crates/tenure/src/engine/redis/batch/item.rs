//! One operation of a call, and the sender of its answer.

use std::iter::Skip;
use std::str::Lines;

use tokio::sync::oneshot;

use super::super::errors::of_server;
use super::super::link::closed;
use super::super::resp::{Command, Reply};
use super::super::scripts::Script;
use crate::core::name::LockName;
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
    /// Its number in the order in which operations were added.
    fn number(&self) -> u64;
    fn set_number(&mut self, number: u64);
    /// Answers it, with its line of the call's answer. Returns its continuation, if there is more to do.
    fn complete(self: Box<Self>, line: Result<Option<&str>, &StoreError>) -> Option<Box<dyn Item>>;
}

pub(super) struct Awaited<O: Batched> {
    operation: O,
    number: u64,
    reply: oneshot::Sender<Result<O::Outcome, StoreError>>,
    /// How often it, or the operation that it continues, was continued so far.
    continued: u32,
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

    fn number(&self) -> u64 {
        self.number
    }

    fn set_number(&mut self, number: u64) {
        self.number = number;
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
        let next = continues.then(|| settling(self.operation.name().clone(), self.continued));
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
pub(super) fn settling(name: LockName, continued: u32) -> Box<dyn Item> {
    let operation = CancelRequest { name, entry: Entry::single() };
    Box::new(Awaited { operation, number: 0, reply: oneshot::channel().0, continued })
}

pub(super) type Batch = Vec<Box<dyn Item>>;

pub(super) fn awaited<O: Batched>(operation: O) -> (Box<dyn Item>, Answer<O::Outcome>) {
    let (reply, answer) = oneshot::channel();
    let answer = Answer::later(async move { answer.await.unwrap_or_else(|_| Err(closed())) });
    (Box::new(Awaited { operation, number: 0, reply, continued: 0 }), answer)
}

/// Answers every operation of a call; returns their continuations.
pub(super) fn distribute(batch: Batch, result: Result<Reply, StoreError>) -> Batch {
    let mut lines = result.as_ref().map_err(StoreError::clone).and_then(lines);
    let continuations = batch.into_iter().filter_map(|item| match &mut lines {
        Ok(lines) => item.complete(Ok(lines.next())),
        Err(error) => item.complete(Err(error)),
    });
    continuations.collect()
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
