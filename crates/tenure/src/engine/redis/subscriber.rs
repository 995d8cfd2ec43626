//! Hearing wake-ups: one channel per client, on a connection of its own.
//!
//! A connection that was lost may have taken messages with it: after connecting again, everyone is
//! told to ask (I7). Silence is told from deafness by a PING now and then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::address::{Address, Endpoint};
use super::dialogue::{self, Dialogue};
use super::pace::{Outage, Pace, pause};
use super::reader::{self, LOOK_EVERY, Loss, Reader, Received};
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

/// How often to check that the server still speaks to us.
const PING_EVERY: Duration = Duration::from_secs(3);

/// What a message may cost in memory: many times the longest, which has a lock's name in it.
const LARGEST: usize = 256 * 1024;

/// The ear of one client.
pub(super) struct Subscriber {
    address: Address,
    pub(super) monitor: LinkMonitor,
    pace: Arc<Pace>,
    channel: String,
    listener: Mutex<Option<Weak<dyn Listener>>>,
    /// The connection, while it is up.
    hearing: Mutex<Weak<Hearing>>,
    /// Where messages are read, if not on the I/O thread.
    runtime: Option<Handle>,
    /// How far away the server is, as those know who ask it more often.
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
            hearing: Mutex::new(Weak::new()),
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

    /// Keeps the subscription up, for ever. Runs on the I/O thread.
    pub(super) async fn keep_up(self: Arc<Self>) {
        let keeper = Keeper(self);
        let subscriber = &keeper.0;
        let mut outage = Outage::default();
        loop {
            let why = subscriber.serve(&mut outage).await;
            subscriber.monitor.down(why);
            subscriber.pace.rest(&mut outage).await;
        }
    }

    /// Subscribes, and passes messages on until the connection is lost; why it was, or could not be
    /// made.
    async fn serve(self: &Arc<Self>, outage: &mut Outage) -> StoreError {
        // Before the master is located: no change of it is missed.
        let moved = self.pace.moved();
        let located = self.address.master.locate().await;
        let subscribed = match &located {
            Ok(place) => {
                let slow =
                    |_| StoreError::refused(format!("{place} was silent for {CONNECT_TIME:?}"));
                let subscribing = tokio::time::timeout(CONNECT_TIME, self.subscribe(place));
                subscribing.await.map_err(slow).and_then(|result| result)
            }
            Err(error) => Err(error.clone()),
        };
        let is_first = self.note_first(subscribed.as_ref().map(drop).map_err(Clone::clone));
        let receiver = match subscribed {
            Ok(receiver) => receiver,
            Err(trouble) => return trouble,
        };
        outage.end();
        self.monitor.up();
        self.pace.want();
        if !is_first {
            self.wake(Wakeup::Missed);
        }
        let why = tokio::select! {
            why = self.hear(receiver) => why,
            () = moved => wire::MOVED.to_owned(),
        };
        let place = located.as_ref().map_or(String::new(), Endpoint::to_string);
        StoreError::refused(format!("lost the connection to {place}: {why}"))
    }

    async fn subscribe(&self, place: &Endpoint) -> Result<Dialogue, StoreError> {
        let mut receiver = Dialogue::open(place, LARGEST).await?;
        for command in self.address.greeting() {
            expect(receiver.ask(&command).await?, place, "log in")?;
        }
        for question in role::questions() {
            if role::is_master(&receiver.ask(&question).await?, place)? {
                break;
            }
        }
        let subscribe = Command::new("SUBSCRIBE").arg(&self.channel);
        let confirmed = expect(receiver.ask(&subscribe).await?, place, "listen")?;
        match kind(&confirmed) {
            Some("subscribe") => Ok(receiver),
            _ => Err(StoreError::refused(format!("{place} does not confirm a subscription"))),
        }
    }

    /// Passes messages on until the connection is lost; why it was.
    async fn hear(self: &Arc<Self>, receiver: Dialogue) -> String {
        let hearing = Arc::new(Hearing {
            reader: Reader::new(receiver.stream, receiver.inbox),
            subscriber: self.clone(),
            heard: AtomicU64::new(0),
        });
        if let Some(runtime) = &self.runtime {
            // Refused, the I/O thread reads.
            let _ = reader::read_on(&hearing, runtime);
        }
        *lock(&self.hearing) = Arc::downgrade(&hearing);
        let _ending = Ending(&hearing);
        tokio::select! {
            loss = reader::receive(&*hearing) => loss.why,
            why = hearing.check() => why,
        }
    }

    /// To be called by whoever waits for a wake-up: this thread reads them, if it is about to wait.
    pub(super) fn await_wakeup(&self) {
        let hearing = lock(&self.hearing).upgrade();
        hearing.iter().for_each(reader::await_arrival);
    }

    /// Whether it was a message, or the answer to a PING: nothing else belongs here.
    fn notify(&self, reply: &Reply) -> bool {
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
            // It wakes the tasks of foreign executors.
            foreign::call(|| listener.wake(wakeup));
        }
    }
}

/// Whatever ends the task that keeps the subscription up: it is known to be down.
struct Keeper(Arc<Subscriber>);

impl Drop for Keeper {
    fn drop(&mut self) {
        let why = StoreError::refused("the client's I/O thread has ended");
        self.0.note_first(Err(why.clone()));
        self.0.monitor.down(why);
    }
}

/// What kind of push this is.
fn kind(reply: &Reply) -> Option<&str> {
    reply.array()?.first()?.text()
}

/// A subscription that is up.
struct Hearing {
    reader: Reader,
    subscriber: Arc<Subscriber>,
    /// How many messages have come.
    heard: AtomicU64,
}

impl Hearing {
    /// Makes sure that the server still speaks to us; why not. And that somebody reads what it says.
    async fn check(&self) -> String {
        let (mut heard, mut silence, mut is_asked) = (0, Duration::ZERO, false);
        loop {
            pause(LOOK_EVERY).await;
            self.reader.look(self.reader.stream.is_readable());
            silence += LOOK_EVERY;
            let before = std::mem::replace(&mut heard, self.heard.load(Ordering::Relaxed));
            if heard != before {
                (silence, is_asked) = (Duration::ZERO, false);
            }
            let time = self.subscriber.trip.response_time();
            if is_asked && silence >= PING_EVERY + time {
                return format!("no answer within {time:?}");
            }
            if !is_asked && silence >= PING_EVERY {
                is_asked = true;
                if let Err(trouble) =
                    dialogue::send(&self.reader.stream, &Command::new("PING")).await
                {
                    return trouble.to_string();
                }
            }
        }
    }
}

impl Received for Hearing {
    fn reader(&self) -> &Reader {
        &self.reader
    }

    fn deliver(&self, reply: Reply) -> Result<(), Loss> {
        self.heard.fetch_add(1, Ordering::Relaxed);
        if self.subscriber.notify(&reply) {
            return Ok(());
        }
        let what = errors::error_in(&reply).unwrap_or("something");
        Err(Loss::new(format!("the server said without being asked: {what}")))
    }

    /// A message may come at any moment.
    fn is_awaited(&self) -> bool {
        true
    }
}

/// However hearing ends: a task that reads ends, too.
struct Ending<'a>(&'a Hearing);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.reader.end();
    }
}

/// A reply that is no error.
fn expect(reply: Reply, place: &Endpoint, what_for: &str) -> Result<Reply, StoreError> {
    let Some(error) = errors::error_in(&reply) else { return Ok(reply) };
    Err(errors::of_greeting(format!("could not {what_for} to {place}: {error}"), error))
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
