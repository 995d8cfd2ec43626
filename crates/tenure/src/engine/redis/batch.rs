//! Coalescing: while a call is in flight, what arrives is gathered, and sent as one call over many
//! keys as soon as the answer is there. A lone caller waits for nobody.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;

use super::link::{Link, closed};
use super::resp::{Command, Reply};
use super::scripts::Script;
use super::trouble::of_server;
use crate::core::name::LockName;
use crate::engine::Answer;
use crate::error::Trouble;
use crate::sync::lock;

/// How many operations one call carries at most: one call must not keep a server from others.
const MOST: usize = 128;

/// An operation that can be sent together with others of its kind.
pub(super) trait Batched: Send + 'static {
    /// What it answers.
    type Outcome: Send + Unpin + 'static;

    /// The script that performs it.
    fn script() -> &'static Script;

    /// The lock it is for.
    fn name(&self) -> &LockName;

    /// Its part of the script's arguments.
    fn arguments(&self, into: &mut Command);

    /// Its line of the script's answer.
    fn read(line: &str) -> Option<Self::Outcome>;
}

/// Gathers operations of one kind.
pub(super) struct Batcher<O: Batched> {
    link: Arc<Link>,
    client: String,
    gathered: Mutex<Gathered<O>>,
}

struct Gathered<O: Batched> {
    waiting: Vec<Item<O>>,
    is_in_flight: bool,
}

struct Item<O: Batched> {
    operation: O,
    reply: oneshot::Sender<Result<O::Outcome, Trouble>>,
}

impl<O: Batched> Batcher<O> {
    pub(super) fn new(link: Arc<Link>, client: String) -> Arc<Self> {
        let gathered = Gathered { waiting: Vec::new(), is_in_flight: false };
        Arc::new(Self { link, client, gathered: Mutex::new(gathered) })
    }

    /// Sends an operation, at once or with the next call.
    pub(super) fn send(self: &Arc<Self>, operation: O) -> Answer<O::Outcome> {
        let mut gathered = lock(&self.gathered);
        let answer = gathered.add(operation);
        self.depart_with(gathered);
        answer
    }

    /// Sends several, together as far as one call carries them.
    pub(super) fn send_all(self: &Arc<Self>, operations: Vec<O>) -> Vec<Answer<O::Outcome>> {
        let mut gathered = lock(&self.gathered);
        let answers = operations.into_iter().map(|operation| gathered.add(operation)).collect();
        self.depart_with(gathered);
        answers
    }

    fn depart_with(self: &Arc<Self>, mut gathered: MutexGuard<'_, Gathered<O>>) {
        if !gathered.is_in_flight {
            let batch = gathered.take();
            if batch.is_empty() {
                return;
            }
            gathered.is_in_flight = true;
            drop(gathered);
            self.depart(batch);
        }
    }

    fn depart(self: &Arc<Self>, batch: Vec<Item<O>>) {
        let names = batch.iter().map(|item| item.operation.name());
        let mut call = self.link.prepare(O::script(), names, &self.client);
        batch.iter().for_each(|item| item.operation.arguments(&mut call.command));
        let batcher = self.clone();
        self.link.call(call, Box::new(move |result| batcher.land(batch, result)));
    }

    /// The answer is there: first the next call departs, then everyone is told.
    fn land(self: Arc<Self>, batch: Vec<Item<O>>, result: Result<Reply, Trouble>) {
        let mut gathered = lock(&self.gathered);
        let next = gathered.take();
        gathered.is_in_flight = !next.is_empty();
        drop(gathered);
        if !next.is_empty() {
            self.depart(next);
        }
        distribute(batch, result);
    }
}

impl<O: Batched> Gathered<O> {
    fn add(&mut self, operation: O) -> Answer<O::Outcome> {
        let (reply, answer) = oneshot::channel();
        self.waiting.push(Item { operation, reply });
        Answer::later(async move { answer.await.unwrap_or_else(|_| Err(closed())) })
    }

    fn take(&mut self) -> Vec<Item<O>> {
        let count = self.waiting.len().min(MOST);
        self.waiting.drain(..count).collect()
    }
}

fn distribute<O: Batched>(batch: Vec<Item<O>>, result: Result<Reply, Trouble>) {
    let answer = result.and_then(lines);
    let mut lines = answer.as_ref().map(|lines| lines.iter().map(String::as_str));
    for item in batch {
        let outcome = match &mut lines {
            Ok(lines) => read::<O>(lines.next()),
            Err(trouble) => Err((*trouble).clone()),
        };
        // Nobody may be waiting for it any more.
        let _ = item.reply.send(outcome);
    }
}

/// The lines of an answer, after the nonce.
pub(super) fn lines(reply: Reply) -> Result<Vec<String>, Trouble> {
    let text = reply.text().ok_or_else(not_understood)?;
    Ok(text.lines().skip(1).map(str::to_owned).collect())
}

/// One operation's line of an answer.
pub(super) fn read<O: Batched>(line: Option<&str>) -> Result<O::Outcome, Trouble> {
    let line = line.ok_or_else(|| Trouble::unknown("the server's answer is too short"))?;
    match line.strip_prefix('-') {
        Some(error) => Err(of_server(error)),
        None => O::read(line.trim_end_matches('+')).ok_or_else(not_understood),
    }
}

fn not_understood() -> Trouble {
    Trouble::unknown("the server's answer is not understood")
}
