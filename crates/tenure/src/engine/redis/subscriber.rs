//! Hearing wake-ups: one channel per client, on a connection of its own.
//!
//! A connection that was lost may have taken messages with it: after connecting again, everyone is
//! told to ask (I7). Silence is told from deafness by a PING now and then.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use tokio::sync::Notify;

use super::address::Address;
use super::link::{CONNECT_TIME, RECONNECT, RESPONSE_TIME, pause};
use super::trouble::of_connecting;
use super::{keys, stream};
use crate::core::fence::Fence;
use crate::core::moment::Moment;
use crate::engine::{Grant, Listener, Wakeup};
use crate::error::Trouble;
use crate::owner::Entry;
use crate::sync::lock;

/// How often to check that the server still speaks to us.
const PING_EVERY: Duration = Duration::from_secs(3);

/// The ear of one client.
pub(super) struct Subscriber {
    address: Address,
    channel: String,
    listener: Mutex<Option<Weak<dyn Listener>>>,
    first: Mutex<Option<Result<(), Trouble>>>,
    changed: Notify,
}

impl Subscriber {
    pub(super) fn new(address: Address, client: &str) -> Arc<Self> {
        Arc::new(Self {
            address,
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
            let changed = self.changed.notified();
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
            let subscribed = self.subscribe().await;
            let is_first = self.note_first(subscribed.as_ref().map(drop).map_err(Clone::clone));
            if let Ok((sink, messages)) = subscribed {
                delays = RECONNECT.delays(crate::owner::unique_number());
                if !is_first {
                    self.wake(Wakeup::Missed);
                }
                self.hear(sink, messages).await;
            }
            pause(delays.next()).await;
        }
    }

    async fn subscribe(&self) -> Result<(PubSubSink, PubSubStream), Trouble> {
        let place = &self.address.place;
        let subscribing = async {
            let stream = stream::open(place).await?;
            let failed = |error| of_connecting(place, &error);
            let pubsub = PubSub::new(&self.address.user, stream).await.map_err(failed)?;
            let (mut sink, messages) = pubsub.split();
            sink.subscribe(&self.channel).await.map_err(failed)?;
            Ok((sink, messages))
        };
        let slow = |_| Trouble::refused(format!("{place} did not answer within {CONNECT_TIME:?}"));
        tokio::time::timeout(CONNECT_TIME, subscribing).await.map_err(slow)?
    }

    /// Passes messages on until the connection is lost.
    async fn hear(&self, mut sink: PubSubSink, mut messages: PubSubStream) {
        loop {
            tokio::select! {
                message = messages.next() => match message {
                    Some(message) => match read(&String::from_utf8_lossy(message.get_payload_bytes())) {
                        Some(wakeup) => self.wake(wakeup),
                        None => tracing::warn!("a message on our channel is not understood"),
                    },
                    None => return,
                },
                () = pause(PING_EVERY) => {
                    let ping = sink.ping::<redis::Value>();
                    if !matches!(tokio::time::timeout(RESPONSE_TIME, ping).await, Ok(Ok(_))) {
                        return;
                    }
                }
            }
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

    fn wake(&self, wakeup: Wakeup) {
        let listener = lock(&self.listener).clone();
        if let Some(listener) = listener.and_then(|listener| listener.upgrade()) {
            listener.wake(wakeup);
        }
    }
}

/// `granted owner:number fence fences lease-in-ms at key` or `lost owner key`.
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
        _ => None,
    }
}

/// An entry as the scripts write it.
pub(super) fn read_entry(text: &str) -> Option<Entry> {
    let (owner, number) = text.split_once(':')?;
    Some(Entry { owner: owner.parse().ok()?, number: u64::from_str_radix(number, 16).ok()? })
}
