//! A connection that is subscribed: messages in, and commands that subscribe out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::super::dialogue::{self, Dialogue};
use super::super::errors;
use super::super::pace::pause;
use super::super::reader::{self, CHECK_EVERY, Loss, Reader, Received};
use super::super::resp::{Command, Reply};
use super::Subscriber;
use crate::clock;
use crate::error::StoreError;

/// After how much silence the connection is checked with a PING.
const PING_EVERY: Duration = Duration::from_secs(3);

/// A subscription that is up.
pub(super) struct Subscription {
    reader: Reader,
    subscriber: Arc<Subscriber>,
    /// The number of received messages.
    received: AtomicU64,
    /// One command is written at a time.
    writing: tokio::sync::Mutex<()>,
}

impl Subscription {
    pub(super) fn new(dialogue: Dialogue, subscriber: Arc<Subscriber>) -> Self {
        Self {
            reader: Reader::new(dialogue.stream, dialogue.inbox),
            subscriber,
            received: AtomicU64::new(0),
            writing: tokio::sync::Mutex::new(()),
        }
    }

    /// Delivers messages until the connection is lost; returns why.
    pub(super) async fn serve(&self) -> String {
        let _end_on_drop = EndOnDrop(self);
        tokio::select! {
            loss = reader::receive(self) => loss.why,
            why = self.check() => why,
            why = self.subscribe_to_topics() => why,
        }
    }

    /// Checks that the connection is alive, and that a thread or task reads it; returns when it is dead, with the
    /// reason.
    async fn check(&self) -> String {
        let (mut received, mut silence, mut is_pinged) = (0, Duration::ZERO, false);
        loop {
            pause(CHECK_EVERY).await;
            self.reader.check(self.reader.stream.is_readable());
            self.subscriber.topics.sweep(clock::now());
            silence += CHECK_EVERY;
            let before = std::mem::replace(&mut received, self.received.load(Ordering::Relaxed));
            if received != before {
                (silence, is_pinged) = (Duration::ZERO, false);
            }
            let time = self.subscriber.trip.response_time();
            if is_pinged && silence >= PING_EVERY + time {
                return format!("no answer within {time:?}");
            }
            if !is_pinged && silence >= PING_EVERY {
                is_pinged = true;
                if let Err(error) = self.write(&Command::new("PING")).await {
                    return error.to_string();
                }
            }
        }
    }

    /// Subscribes where this client waits; returns when the connection is dead, with the reason.
    async fn subscribe_to_topics(&self) -> String {
        let Subscriber { topics, scope, .. } = &*self.subscriber;
        loop {
            for command in topics.commands(scope) {
                if let Err(error) = self.write(&command).await {
                    return error.to_string();
                }
            }
            topics.changed.notified().await;
        }
    }

    async fn write(&self, command: &Command) -> Result<(), StoreError> {
        let _alone = self.writing.lock().await;
        dialogue::write(&self.reader.stream, command).await
    }
}

impl Received for Subscription {
    fn reader(&self) -> &Reader {
        &self.reader
    }

    fn deliver(&self, reply: Reply) -> Result<(), Loss> {
        self.received.fetch_add(1, Ordering::Relaxed);
        if self.subscriber.deliver(&reply) {
            return Ok(());
        }
        Err(Loss::new(errors::unexpected(&reply)))
    }

    /// A message may arrive at any time.
    fn is_awaited(&self) -> bool {
        true
    }
}

/// However the subscription ends: ends the task that reads it.
struct EndOnDrop<'a>(&'a Subscription);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.reader.end();
    }
}
