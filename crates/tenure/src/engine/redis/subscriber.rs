//! Hearing wake-ups: one channel per client, on a connection of its own.
//!
//! A connection that was lost may have taken messages with it: after connecting again, everyone is
//! told to ask (I7). Silence is told from deafness by a PING now and then.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::address::Address;
use super::keys;
use super::link::{RECONNECT, pause};
use super::resp::{self, Command, Reply};
use super::stream::{self, CONNECT_TIME, Stream};
use super::trouble;
use super::wire::RESPONSE_TIME;
use crate::core::fence::Fence;
use crate::core::moment::Moment;
use crate::engine::pulse::Pulse;
use crate::engine::{Grant, Listener, Wakeup};
use crate::error::Trouble;
use crate::owner::Entry;
use crate::sync::lock;

/// How often to check that the server still speaks to us.
const PING_EVERY: Duration = Duration::from_secs(3);

/// The ear of one client.
pub(super) struct Subscriber {
    address: Address,
    pub(super) pulse: Pulse,
    channel: String,
    listener: Mutex<Option<Weak<dyn Listener>>>,
    first: Mutex<Option<Result<(), Trouble>>>,
    changed: Notify,
}

impl Subscriber {
    pub(super) fn new(address: Address, client: &str) -> Arc<Self> {
        Arc::new(Self {
            address,
            pulse: Pulse::new("wake-ups"),
            channel: format!("{}{client}", keys::CHANNEL),
            listener: Mutex::default(),
            first: Mutex::default(),
            changed: Notify::new(),
        })
    }

    pub(super) fn listen(&self, listener: Weak<dyn Listener>) {
        *lock(&self.listener) = Some(listener);
    }

    /// Resolves when the first attempt to subscribe has ended.
    pub(super) async fn first_attempt(&self) -> Result<(), Trouble> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(result) = lock(&self.first).clone() {
                return result;
            }
            changed.await;
        }
    }

    /// Keeps the subscription up, for ever. Runs on the I/O thread.
    pub(super) async fn keep_up(self: Arc<Self>) {
        let mut delays = RECONNECT.delays(crate::owner::unique_number());
        loop {
            let place = &self.address.place;
            let slow = |_| Trouble::refused(format!("{place} was silent for {CONNECT_TIME:?}"));
            let subscribing = tokio::time::timeout(CONNECT_TIME, self.subscribe());
            let subscribed = subscribing.await.map_err(slow).and_then(|result| result);
            let is_first = self.note_first(subscribed.as_ref().map(drop).map_err(Clone::clone));
            let why = match subscribed {
                Ok(ear) => {
                    delays = RECONNECT.delays(crate::owner::unique_number());
                    self.pulse.up();
                    if !is_first {
                        self.wake(Wakeup::Missed);
                    }
                    self.hear(ear).await;
                    Trouble::refused(format!("lost the connection to {place}"))
                }
                Err(trouble) => trouble,
            };
            self.pulse.down(why);
            pause(delays.next()).await;
        }
    }

    async fn subscribe(&self) -> Result<Ear, Trouble> {
        let mut ear = Ear { stream: stream::open(&self.address.place).await?, bytes: Vec::new() };
        let greeting = self.address.greeting().into_iter().map(|command| ("log in", command));
        let subscribe = Command::new("SUBSCRIBE").arg(&self.channel);
        for (what_for, command) in greeting.chain([("listen", subscribe)]) {
            ear.say(&command).await?;
            if let Reply::Error(error) = ear.next().await? {
                let what = format!("could not {what_for} to {}: {error}", self.address.place);
                return Err(trouble::of_greeting(what, &error));
            }
        }
        Ok(ear)
    }

    /// Passes messages on until the connection is lost.
    async fn hear(&self, mut ear: Ear) {
        let mut is_asked = false;
        loop {
            let patience = if is_asked { RESPONSE_TIME } else { PING_EVERY };
            match tokio::time::timeout(patience, ear.next()).await {
                Ok(Ok(reply)) => {
                    is_asked = false;
                    self.pass_on(&reply);
                }
                Ok(Err(_)) => return,
                Err(_) if is_asked => return,
                Err(_) => {
                    is_asked = true;
                    if ear.say(&Command::new("PING")).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn pass_on(&self, reply: &Reply) {
        let Some([kind, _, message]) = reply.array() else { return };
        if kind.text() != Some("message") {
            return;
        }
        match message.text().and_then(read) {
            Some(wakeup) => self.wake(wakeup),
            None => tracing::warn!("a message on our channel is not understood"),
        }
    }

    fn note_first(&self, result: Result<(), Trouble>) -> bool {
        let mut first = lock(&self.first);
        let is_first = first.is_none();
        if is_first {
            *first = Some(result);
            self.changed.notify_waiters();
        }
        is_first
    }

    pub(super) fn wake(&self, wakeup: Wakeup) {
        let listener = lock(&self.listener).clone();
        if let Some(listener) = listener.and_then(|listener| listener.upgrade()) {
            listener.wake(wakeup);
        }
    }
}

/// A connection that mostly listens.
struct Ear {
    stream: Stream,
    bytes: Vec<u8>,
}

impl Ear {
    async fn say(&mut self, command: &Command) -> Result<(), Trouble> {
        let mut bytes = Vec::new();
        command.write(&mut bytes);
        while !bytes.is_empty() {
            let written = match self.stream.writable().await {
                Ok(()) => self.stream.try_write(&bytes),
                Err(error) => Err(error),
            };
            match written {
                Ok(written) => drop(bytes.drain(..written)),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(Trouble::refused(error.to_string())),
            }
        }
        Ok(())
    }

    /// The next reply or message. Dropped in between, nothing is lost.
    async fn next(&mut self) -> Result<Reply, Trouble> {
        loop {
            match resp::read(&self.bytes) {
                Ok(Some((reply, length))) => {
                    self.bytes.drain(..length);
                    return Ok(reply);
                }
                Ok(None) => {}
                Err(resp::Garbled) => {
                    return Err(Trouble::refused("the server does not speak RESP"));
                }
            }
            match self.stream.read(&mut self.bytes).await {
                Ok(0) => return Err(Trouble::refused("the server hung up")),
                Ok(_) => {}
                Err(error) => return Err(Trouble::refused(error.to_string())),
            }
        }
    }
}

/// `granted owner:number fence fences lease-in-ms at key`, `lost owner key` or
/// `sooner owner:number key`.
pub(super) fn read(message: &str) -> Option<Wakeup> {
    let words: Vec<_> = message.split(' ').collect();
    match words[..] {
        ["granted", entry, fence, fences, lease, at, key] => {
            let grant = Grant {
                fence: Fence::from_value(fence.parse().ok()?),
                fences: fences.parse().ok()?,
                lease: Duration::from_millis(lease.parse().ok()?),
                at: Moment::from_micros(at.parse().ok()?),
            };
            Some(Wakeup::Granted { name: keys::name(key)?, entry: read_entry(entry)?, grant })
        }
        ["lost", owner, key] => {
            Some(Wakeup::Lost { name: keys::name(key)?, owner: owner.parse().ok()? })
        }
        ["sooner", entry, key] => {
            Some(Wakeup::Sooner { name: keys::name(key)?, entry: read_entry(entry)? })
        }
        _ => None,
    }
}

/// An entry as the scripts write it.
pub(super) fn read_entry(text: &str) -> Option<Entry> {
    let (owner, number) = text.split_once(':')?;
    Some(Entry { owner: owner.parse().ok()?, number: u64::from_str_radix(number, 16).ok()? })
}
