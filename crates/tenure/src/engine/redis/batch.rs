//! Coalescing: while a call is in flight, what arrives is gathered, and sent as one call over many
//! keys. A lone caller waits for nobody.

use std::sync::{Arc, Mutex};

use redis::Value;
use tokio::sync::{Notify, oneshot};

use super::link::Link;
use super::scripts::Script;
use super::trouble::of_server;
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

    /// The lock's key.
    fn key(&self) -> String;

    /// Its part of the script's arguments.
    fn arguments(&self, into: &mut Vec<Vec<u8>>);

    /// Its part of the script's answer.
    fn read(value: &Value) -> Option<Self::Outcome>;
}

/// Gathers operations of one kind.
pub(super) struct Batcher<O: Batched> {
    waiting: Mutex<Vec<Item<O>>>,
    bell: Notify,
}

struct Item<O: Batched> {
    operation: O,
    reply: oneshot::Sender<Result<O::Outcome, Trouble>>,
}

impl<O: Batched> Batcher<O> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { waiting: Mutex::default(), bell: Notify::new() })
    }

    /// Hands an operation over to the I/O thread.
    pub(super) fn send(&self, operation: O) -> Answer<O::Outcome> {
        let (reply, answer) = oneshot::channel();
        lock(&self.waiting).push(Item { operation, reply });
        self.bell.notify_one();
        Answer::later(async move {
            answer.await.unwrap_or_else(|_| Err(Trouble::unknown("the client was closed")))
        })
    }

    /// Sends what has gathered, for ever. Runs on the I/O thread.
    pub(super) async fn run(self: Arc<Self>, link: Arc<Link>, common: Vec<Vec<u8>>) {
        loop {
            let batch = self.take();
            if batch.is_empty() {
                self.bell.notified().await;
                continue;
            }
            let mut arguments = common.clone();
            batch.iter().for_each(|item| item.operation.arguments(&mut arguments));
            let keys: Vec<_> = batch.iter().map(|item| item.operation.key()).collect();
            let result = link.call(O::script(), &keys, &arguments).await;
            distribute(batch, result);
        }
    }

    fn take(&self) -> Vec<Item<O>> {
        let mut waiting = lock(&self.waiting);
        let count = waiting.len().min(MOST);
        waiting.drain(..count).collect()
    }
}

fn distribute<O: Batched>(batch: Vec<Item<O>>, result: Result<Vec<Value>, Trouble>) {
    let mut values = result.map(Vec::into_iter);
    for item in batch {
        let outcome = match &mut values {
            Ok(values) => read::<O>(values.next()),
            Err(trouble) => Err(trouble.clone()),
        };
        // Nobody may be waiting for it any more.
        let _ = item.reply.send(outcome);
    }
}

/// One operation's part of an answer.
pub(super) fn read<O: Batched>(value: Option<Value>) -> Result<O::Outcome, Trouble> {
    match &value {
        Some(Value::ServerError(error)) => Err(of_server(error)),
        Some(value) => {
            O::read(value).ok_or_else(|| Trouble::unknown("the server's answer is not understood"))
        }
        None => Err(Trouble::unknown("the server's answer is too short")),
    }
}
