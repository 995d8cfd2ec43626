//! The receiver of wake-ups: one channel per client, on a connection of its own; in a cluster also one in each slot in
//! which the client waits, and in Redisson's format one for each lock that it waits for ([`topics`](super::topics)).
//!
//! Messages may be lost with a connection: after a reconnect, all waiters are notified to poll (I7). A PING from time
//! to time distinguishes a quiet channel from a dead connection.

mod subscription;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, Weak};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use self::subscription::Subscription;
use super::address::{Address, Endpoint, Master};
use super::cluster::missed_in;
use super::dialogue::Dialogue;
use super::messages::read;
use super::node::Setup;
use super::pace::{Outage, Pace};
use super::protocol::{self, Protocol};
use super::resp::{Command, Reply};
use super::stream::CONNECT_TIME;
use super::topics::{Scope, Topic, Topics};
use super::trip::Trip;
use super::wakeups::Wakeups;
use super::wire;
use super::{errors, reader, role};
use crate::engine::Wakeup;
use crate::engine::link_monitor::LinkMonitor;
use crate::error::StoreError;
use crate::sync::lock;
use crate::telemetry;

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
    protocol: Protocol,
    wakeups: Arc<Wakeups>,
    scope: Scope,
    /// The subscriptions to slots, if the server is a node of a cluster, or to single locks.
    pub(super) topics: Topics,
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
            protocol: setup.protocol,
            wakeups: setup.wakeups.clone(),
            scope,
            topics: Topics::default(),
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
            subscriber.topics.lost();
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
        let channel = self.protocol.first_channel(&self.client);
        let subscribe = Command::new("SUBSCRIBE").arg(channel);
        let confirmed = expect(dialogue.request(&subscribe).await?, endpoint, "subscribe on")?;
        match kind(&confirmed) {
            Some("subscribe") => Ok(dialogue),
            _ => Err(StoreError::refused(format!("{endpoint} does not confirm a subscription"))),
        }
    }

    /// Delivers messages until the connection is lost; returns why.
    async fn receive(self: &Arc<Self>, dialogue: Dialogue) -> String {
        let subscription = Arc::new(Subscription::new(dialogue, self.clone()));
        if let Some(runtime) = &self.runtime {
            // If that fails, the I/O thread reads.
            let _ = reader::read_on(&subscription, runtime);
        }
        *lock(&self.subscription) = Arc::downgrade(&subscription);
        subscription.serve().await
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
            (Some("message" | "smessage"), Some(channel), message) => {
                self.receive_message(channel, message);
                true
            }
            (Some("subscribe" | "ssubscribe"), Some(channel), _) => {
                let confirmed = self.topics.confirmed(channel);
                confirmed.into_iter().for_each(|topics| self.missed(&topics));
                true
            }
            (Some("unsubscribe" | "sunsubscribe"), Some(channel), _) => {
                self.topics.ended(channel).into_iter().for_each(|topic| self.unsubscribed(&topic));
                true
            }
            (None, ..) => errors::error_in(reply).is_some_and(|error| self.refused(error)),
            (kind, ..) => kind == Some("pong"),
        }
    }

    /// Delivers a message. On the channel of a lock in Redisson's format it says that permits are free, to all waiters.
    fn receive_message(&self, channel: &str, message: Option<&str>) {
        if self.protocol.is_redisson() && channel != protocol::LOST {
            let names = protocol::names_of_channel(channel).into_iter();
            return names.for_each(|name| self.wakeups.wake(Wakeup::Freed { name }));
        }
        match message.and_then(read) {
            Some(wakeup) => self.wake(wakeup),
            None => telemetry::not_understood(),
        }
    }

    /// Messages on these channels may have been missed.
    fn missed(&self, topics: &BTreeSet<Topic>) {
        if !self.protocol.is_redisson() {
            let slots = topics.iter().map(|topic| topic.slot).collect();
            return self.wakeups.wake(missed_in(self.protocol, slots));
        }
        let names = topics.iter().flat_map(|topic| protocol::names_of_channel(&topic.channel));
        names.for_each(|name| self.wakeups.wake(Wakeup::Freed { name }));
    }

    /// Delivers a wake-up. A node of a cluster may have been replaced before it granted the lock (I1): if the others do not
    /// confirm that it is a primary, the waiter asks. So it does if Sentinels have not been asked for long.
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
            (Master::Named(sentinels), Wakeup::Granted { name, entry, .. })
                if sentinels.was_stopped() =>
            {
                self.wakeups.wake(Wakeup::Sooner { name, entry });
            }
            (_, wakeup) => self.wakeups.wake(wakeup),
        }
    }

    /// A subscription was refused. Returns false if none was requested.
    fn refused(&self, error: &str) -> bool {
        let Some(refused) = self.topics.refused() else { return false };
        match refused {
            Some(topic) if errors::is_passing(error) => self.unsubscribed(&topic),
            // For example without the right to subscribe: waiters poll, seldom.
            Some(_) => telemetry::not_subscribed(error),
            None => {}
        }
        true
    }

    /// The wake-ups of a channel do not arrive any more.
    fn unsubscribed(&self, topic: &Topic) {
        self.scope.unsubscribed(topic);
        self.missed(&BTreeSet::from([topic.clone()]));
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
        self.0.topics.lost();
        self.0.note_first(Err(why.clone()));
        self.0.monitor.down(why);
    }
}

/// The kind of a pushed message.
fn kind(reply: &Reply) -> Option<&str> {
    reply.array()?.first()?.text()
}

/// Returns a reply, unless it is an error.
fn expect(reply: Reply, endpoint: &Endpoint, purpose: &str) -> Result<Reply, StoreError> {
    let Some(error) = errors::error_in(&reply) else { return Ok(reply) };
    Err(errors::of_greeting(format!("could not {purpose} {endpoint}: {error}"), error))
}
