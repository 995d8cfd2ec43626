//! The receiver of wake-ups: one channel per client, on a connection of its own.
//!
//! Messages may be lost with a connection: after a reconnect, all waiters are notified to poll (I7). A PING from time
//! to time distinguishes a quiet channel from a dead connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::address::{Address, Endpoint};
use super::dialogue::{self, Dialogue};
use super::pace::{Outage, Pace, pause};
use super::reader::{self, CHECK_EVERY, Loss, Reader, Received};
use super::resp::{Command, Reply};
use super::stream::CONNECT_TIME;
use super::trip::Trip;
use super::wire;
use super::{errors, keys, role};
use crate::core::fence::Fence;
use crate::core::moment::Moment;
use crate::engine::link_monitor::LinkMonitor;
use crate::engine::{Grant, Listener, Wakeup};
use crate::error::StoreError;
use crate::foreign;
use crate::owner::Entry;
use crate::sync::lock;
use crate::telemetry;

/// After how much silence the connection is checked with a PING.
const PING_EVERY: Duration = Duration::from_secs(3);

/// The memory that a message may take: many times the longest, which contains a lock's name.
const LARGEST: usize = 256 * 1024;

/// The receiver of one client's wake-ups.
pub(super) struct Subscriber {
    address: Address,
    pub(super) monitor: LinkMonitor,
    pace: Arc<Pace>,
    channel: String,
    listener: Mutex<Option<Weak<dyn Listener>>>,
    /// The connection, while it is up.
    subscription: Mutex<Weak<Subscription>>,
    /// The runtime that reads messages, if not the I/O thread.
    runtime: Option<Handle>,
    /// The round trips that the connection for commands has measured.
    trip: Arc<Trip>,
    first: Mutex<Option<Result<(), StoreError>>>,
    changed: Notify,
}

impl Subscriber {
    pub(super) fn new(
        address: Address,
        pace: Arc<Pace>,
        client: &str,
        runtime: Option<Handle>,
        trip: Arc<Trip>,
    ) -> Arc<Self> {
        Arc::new(Self {
            address,
            monitor: LinkMonitor::new("wake-ups"),
            pace,
            channel: format!("{}{client}", keys::CHANNEL),
            listener: Mutex::default(),
            subscription: Mutex::new(Weak::new()),
            runtime,
            trip,
            first: Mutex::default(),
            changed: Notify::new(),
        })
    }

    pub(super) fn listen(&self, listener: Weak<dyn Listener>) {
        *lock(&self.listener) = Some(listener);
    }

    /// Resolves when the first attempt to subscribe has ended.
    pub(super) async fn first_attempt(&self) -> Result<(), StoreError> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(result) = lock(&self.first).clone() {
                return result;
            }
            changed.await;
        }
    }

    /// Subscribes, and again after each loss; never returns. Runs on the I/O thread.
    pub(super) async fn supervise(self: Arc<Self>) {
        let down_on_drop = DownOnDrop(self);
        let subscriber = &down_on_drop.0;
        let mut outage = Outage::default();
        loop {
            let why = subscriber.serve(&mut outage).await;
            subscriber.monitor.down(why);
            subscriber.pace.back_off(&mut outage).await;
        }
    }

    /// Subscribes, and delivers messages until the connection is lost. Returns why it was lost, or could not be
    /// established.
    async fn serve(self: &Arc<Self>, outage: &mut Outage) -> StoreError {
        // Subscribed before the master is located, so that no change is missed.
        let moved = self.pace.moved();
        let subscribed = self.connect().await;
        let is_first = self.note_first(subscribed.as_ref().map(drop).map_err(Clone::clone));
        let (endpoint, dialogue) = match subscribed {
            Ok(subscribed) => subscribed,
            Err(error) => return error,
        };
        outage.end();
        self.monitor.up();
        self.pace.want();
        if !is_first {
            self.wake(Wakeup::Missed);
        }
        let why = tokio::select! {
            why = self.receive(dialogue) => why,
            () = moved => wire::MOVED.to_owned(),
        };
        StoreError::refused(format!("lost the connection to {endpoint}: {why}"))
    }

    /// Subscribes at the master, in time.
    async fn connect(&self) -> Result<(Endpoint, Dialogue), StoreError> {
        let endpoint = self.address.master.locate(&self.pace).await?;
        let slow = |_| StoreError::refused(format!("{endpoint} was silent for {CONNECT_TIME:?}"));
        let subscribing = tokio::time::timeout(CONNECT_TIME, self.subscribe(&endpoint));
        let dialogue = subscribing.await.map_err(slow)??;
        Ok((endpoint, dialogue))
    }

    async fn subscribe(&self, endpoint: &Endpoint) -> Result<Dialogue, StoreError> {
        let mut dialogue = Dialogue::open(endpoint, LARGEST).await?;
        for command in self.address.greeting() {
            expect(dialogue.request(&command).await?, endpoint, "log in to")?;
        }
        for question in role::questions() {
            if role::is_master(&dialogue.request(&question).await?, endpoint)? {
                break;
            }
        }
        let subscribe = Command::new("SUBSCRIBE").arg(&self.channel);
        let confirmed = expect(dialogue.request(&subscribe).await?, endpoint, "subscribe on")?;
        match kind(&confirmed) {
            Some("subscribe") => Ok(dialogue),
            _ => Err(StoreError::refused(format!("{endpoint} does not confirm a subscription"))),
        }
    }

    /// Delivers messages until the connection is lost; returns why.
    async fn receive(self: &Arc<Self>, dialogue: Dialogue) -> String {
        let subscription = Arc::new(Subscription {
            reader: Reader::new(dialogue.stream, dialogue.inbox),
            subscriber: self.clone(),
            received: AtomicU64::new(0),
        });
        if let Some(runtime) = &self.runtime {
            // If that fails, the I/O thread reads.
            let _ = reader::read_on(&subscription, runtime);
        }
        *lock(&self.subscription) = Arc::downgrade(&subscription);
        let _end_on_drop = EndOnDrop(&subscription);
        tokio::select! {
            loss = reader::receive(&*subscription) => loss.why,
            why = subscription.check() => why,
        }
    }

    /// To be called by a thread that waits for a wake-up: it reads the messages when it parks.
    pub(super) fn await_wakeup(&self) {
        let subscription = lock(&self.subscription).upgrade();
        subscription.iter().for_each(reader::await_arrival);
    }

    /// Delivers a message. Returns false for a reply that is neither a message nor the answer to a PING.
    fn deliver(&self, reply: &Reply) -> bool {
        match (kind(reply), reply.array()) {
            (Some("message"), Some([_, _, message])) => {
                match message.text().and_then(read) {
                    Some(wakeup) => self.wake(wakeup),
                    None => telemetry::not_understood(),
                }
                true
            }
            (kind, _) => kind == Some("pong"),
        }
    }

    fn note_first(&self, result: Result<(), StoreError>) -> bool {
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
            // It wakes tasks of foreign executors.
            foreign::call(|| listener.wake(wakeup));
        }
    }
}

/// However the supervisor ends, even by a panic: the subscription is reported as down.
struct DownOnDrop(Arc<Subscriber>);

impl Drop for DownOnDrop {
    fn drop(&mut self) {
        let why = StoreError::refused("the client's I/O thread has ended");
        self.0.note_first(Err(why.clone()));
        self.0.monitor.down(why);
    }
}

/// The kind of a pushed message.
fn kind(reply: &Reply) -> Option<&str> {
    reply.array()?.first()?.text()
}

/// A subscription that is up.
struct Subscription {
    reader: Reader,
    subscriber: Arc<Subscriber>,
    /// The number of received messages.
    received: AtomicU64,
}

impl Subscription {
    /// Checks that the connection is alive, and that a thread or task reads it; returns when it is dead, with the
    /// reason.
    async fn check(&self) -> String {
        let (mut received, mut silence, mut is_pinged) = (0, Duration::ZERO, false);
        loop {
            pause(CHECK_EVERY).await;
            self.reader.check(self.reader.stream.is_readable());
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
                if let Err(error) =
                    dialogue::write(&self.reader.stream, &Command::new("PING")).await
                {
                    return error.to_string();
                }
            }
        }
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

/// Returns a reply, unless it is an error.
fn expect(reply: Reply, endpoint: &Endpoint, purpose: &str) -> Result<Reply, StoreError> {
    let Some(error) = errors::error_in(&reply) else { return Ok(reply) };
    Err(errors::of_greeting(format!("could not {purpose} {endpoint}: {error}"), error))
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
