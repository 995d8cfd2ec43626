//! The receiver of wake-ups: one channel per client, on a connection of its own; in a cluster also one in each slot in
//! which the client waits ([`shards`](super::shards)).
//!
//! Messages may be lost with a connection: after a reconnect, all waiters are notified to poll (I7). A PING from time
//! to time distinguishes a quiet channel from a dead connection.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::address::{Address, Endpoint, Master};
use super::cluster::missed_in;
use super::dialogue::{self, Dialogue};
use super::node::Setup;
use super::pace::{Outage, Pace, pause};
use super::reader::{self, CHECK_EVERY, Loss, Reader, Received};
use super::resp::{Command, Reply};
use super::shards::{Scope, Shards};
use super::stream::CONNECT_TIME;
use super::trip::Trip;
use super::wakeups::Wakeups;
use super::wire;
use super::{errors, keys, role};
use crate::clock;
use crate::core::fence::Fence;
use crate::core::moment::Moment;
use crate::engine::link_monitor::LinkMonitor;
use crate::engine::{Grant, Wakeup};
use crate::error::StoreError;
use crate::owner::Entry;
use crate::sync::lock;
use crate::telemetry;

/// After how much silence the connection is checked with a PING.
const PING_EVERY: Duration = Duration::from_secs(3);

/// The memory that a message may take: many times the longest, which contains a lock's name.
const LARGEST: usize = 256 * 1024;

/// What a server before Redis 7 cannot do.
const SHARDED: &str = "use the channels in slots, which Redis 7 and Valkey have, of";

/// The receiver of one client's wake-ups.
pub(super) struct Subscriber {
    address: Address,
    pub(super) monitor: LinkMonitor,
    pace: Arc<Pace>,
    client: Arc<str>,
    wakeups: Arc<Wakeups>,
    scope: Scope,
    /// The subscriptions to slots, if the server is a node of a cluster.
    pub(super) shards: Shards,
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
        setup: &Setup,
        trip: Arc<Trip>,
        scope: Scope,
    ) -> Arc<Self> {
        Arc::new(Self {
            address,
            monitor: LinkMonitor::new("wake-ups"),
            pace,
            client: setup.client.clone(),
            wakeups: setup.wakeups.clone(),
            scope,
            shards: Shards::default(),
            subscription: Mutex::new(Weak::new()),
            runtime: setup.runtime.clone(),
            trip,
            first: Mutex::default(),
            changed: Notify::new(),
        })
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
            subscriber.shards.lost();
            if subscriber.monitor.down(why) {
                subscriber.pace.report_lost();
            }
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
            self.wakeups.wake(self.scope.missed());
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
        if matches!(self.scope, Scope::Node(..)) {
            let asked = Command::new("PUBSUB").arg("SHARDNUMSUB");
            expect(dialogue.request(&asked).await?, endpoint, SHARDED)?;
        }
        let channel = format!("{}{}", keys::CHANNEL, self.client);
        let subscribe = Command::new("SUBSCRIBE").arg(channel);
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
            writing: tokio::sync::Mutex::new(()),
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
            why = subscription.subscribe_to_slots() => why,
        }
    }

    /// To be called by a thread that waits for a wake-up: it reads the messages when it parks.
    pub(super) fn await_wakeup(&self) {
        let subscription = lock(&self.subscription).upgrade();
        subscription.iter().for_each(reader::await_arrival);
    }

    /// Delivers a message. Returns false for a reply that was neither expected nor is a message.
    fn deliver(&self, reply: &Reply) -> bool {
        let text = |at: usize| reply.array()?.get(at)?.text();
        match (kind(reply), text(1), text(2)) {
            (Some("message" | "smessage"), _, message) => {
                match message.and_then(read) {
                    Some(wakeup) => self.wake(wakeup),
                    None => telemetry::not_understood(),
                }
                true
            }
            (Some("ssubscribe"), Some(channel), _) => {
                let confirmed = self.shards.confirmed(channel);
                confirmed.into_iter().for_each(|slots| self.wakeups.wake(missed_in(slots)));
                true
            }
            (Some("sunsubscribe"), Some(channel), _) => {
                self.shards.ended(channel).into_iter().for_each(|slot| self.unsubscribed(slot));
                true
            }
            (None, ..) => errors::error_in(reply).is_some_and(|error| self.refused(error)),
            (kind, ..) => kind == Some("pong"),
        }
    }

    /// Delivers a wake-up. A node of a cluster may have been replaced before it granted the lock (I1): if the others do not
    /// confirm that it is a primary, the waiter asks.
    fn wake(&self, wakeup: Wakeup) {
        match (&self.address.master, wakeup) {
            (Master::Member(node), Wakeup::Granted { name, entry, grant }) => {
                let wakeups = self.wakeups.clone();
                node.confirm_message(self.trip.fastest(), move |is_confirmed| {
                    wakeups.wake(match is_confirmed {
                        true => Wakeup::Granted { name, entry, grant },
                        false => Wakeup::Sooner { name, entry },
                    });
                });
            }
            (_, wakeup) => self.wakeups.wake(wakeup),
        }
    }

    /// A subscription was refused. Returns false if none was requested.
    fn refused(&self, error: &str) -> bool {
        let Some(refused) = self.shards.refused() else { return false };
        match refused {
            Some(slot) if errors::is_passing(error) => self.unsubscribed(slot),
            // For example without the right to subscribe: waiters poll, seldom.
            Some(_) => telemetry::not_subscribed(error),
            None => {}
        }
        true
    }

    /// The wake-ups of a slot do not arrive any more.
    fn unsubscribed(&self, slot: u16) {
        self.scope.unsubscribed(slot);
        self.wakeups.wake(missed_in(BTreeSet::from([slot])));
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
}

/// However the supervisor ends, even by a panic: the subscription is reported as down.
struct DownOnDrop(Arc<Subscriber>);

impl Drop for DownOnDrop {
    fn drop(&mut self) {
        let why = StoreError::refused("the client's I/O thread has ended");
        self.0.shards.lost();
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
    /// One command is written at a time.
    writing: tokio::sync::Mutex<()>,
}

impl Subscription {
    /// Checks that the connection is alive, and that a thread or task reads it; returns when it is dead, with the
    /// reason.
    async fn check(&self) -> String {
        let (mut received, mut silence, mut is_pinged) = (0, Duration::ZERO, false);
        loop {
            pause(CHECK_EVERY).await;
            self.reader.check(self.reader.stream.is_readable());
            self.subscriber.shards.sweep(clock::now());
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

    /// Subscribes to the slots in which this client waits; returns when the connection is dead, with the reason.
    async fn subscribe_to_slots(&self) -> String {
        let Subscriber { shards, client, .. } = &*self.subscriber;
        loop {
            for command in shards.commands(client) {
                if let Err(error) = self.write(&command).await {
                    return error.to_string();
                }
            }
            shards.changed.notified().await;
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
