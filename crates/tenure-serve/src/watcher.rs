//! Reads the store, once for all viewers, and sends them what has changed.
//!
//! A reading is a list of all locks; `difference` compares it with the one before, and so knows what has happened in between.
//! What is undone between two readings is not seen. Without viewers the store is read rarely, and always less than a fifth of
//! the time.

mod difference;
mod health;
mod history;
mod viewer;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tenure::{Error, ForceRecord, LockInfo, LockName, Tenure};
use tokio::sync::{Notify, broadcast, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::clock::{now_ms, pause};
use crate::door::lists::Lists;
use crate::problem::Problem;
use crate::server::Server;
use crate::shape;
use crate::stream::{event, frame};
use difference::Difference;
use health::Health;
use history::{Happened, History};
use viewer::Viewers;

/// How many locks are read at most.
const MOST_LOCKS: usize = 10_000;

/// The pause between two readings, with viewers and without.
const WATCHED: Duration = Duration::from_millis(250);
const UNWATCHED: Duration = Duration::from_secs(5);

/// The pause is this many times as long as the reading took.
const SHARE: u32 = 4;

/// How many messages a viewer may be behind. After more it gets all locks again.
const BEHIND: usize = 32;

/// How many locks that became free are asked at a time whether that was forced.
const ASKED_AT_ONCE: usize = 256;

/// The reader of the store.
pub(crate) struct Watcher {
    state: Mutex<State>,
    feed: broadcast::Sender<Message>,
    /// How many readings there were.
    readings: watch::Sender<u64>,
    viewers: Mutex<Viewers>,
    /// A viewer has come.
    arrived: Notify,
}

#[derive(Default)]
struct State {
    locks: BTreeMap<String, Seen>,
    more: bool,
    at_ms: u64,
    read_at: Option<Instant>,
    /// All locks, as a viewer gets them first; none until one asks.
    snapshot: Option<Bytes>,
    history: History,
    health: Health,
}

/// A lock, and when its leases end.
struct Seen {
    info: LockInfo,
    at_ms: u64,
}

/// What viewers are sent.
#[derive(Clone)]
enum Message {
    Change(Bytes),
    Lock(LockName, Bytes),
    Happened(Arc<Happened>),
}

/// A list of all locks, and what else is asked at the same time.
struct Reading {
    locks: Vec<LockInfo>,
    at_ms: u64,
    trip: Duration,
    took: Duration,
}

impl Reading {
    /// There are more locks than were read.
    fn is_cut(&self) -> bool {
        self.locks.len() > MOST_LOCKS
    }
}

impl Watcher {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            feed: broadcast::channel(BEHIND).0,
            readings: watch::Sender::new(0),
            viewers: Mutex::default(),
            arrived: Notify::new(),
        })
    }

    /// Reads the store for as long as the server lives, on a thread of its own: comparing and writing 10,000 locks must not delay
    /// a request.
    pub(crate) fn start(self: Arc<Self>, server: Server) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = self.run(&server) => {}
                    () = server.stopped() => {}
                }
            });
        };
        std::thread::Builder::new().name("tenure-watcher".into()).spawn(run).map(drop)
    }

    async fn run(&self, server: &Server) {
        loop {
            let started = Instant::now();
            let is_watched = self.viewers().count > 0;
            let is_read = self.read_once(server, is_watched).await;
            let least = if is_watched { WATCHED } else { UNWATCHED };
            // A store that does not answer is spared nothing by a pause, and its return is to be noticed.
            let rest = if is_read { least.max(started.elapsed() * SHARE) } else { least };
            tokio::select! {
                () = pause(rest) => {}
                // The first viewer does not wait.
                () = self.arrived.notified(), if !is_watched => {}
            }
        }
    }

    /// False if the store could not be read.
    async fn read_once(&self, server: &Server, is_watched: bool) -> bool {
        let tenure = match server.watching().await {
            Ok(tenure) => tenure,
            Err(why) => return self.fail(&why),
        };
        match read(tenure).await {
            Ok(reading) => self.apply(tenure, reading).await,
            Err(error) => return self.fail(&error.to_string()),
        }
        if is_watched {
            self.look_at_single_locks(tenure).await;
        }
        self.examine(tenure, is_watched).await;
        true
    }

    /// Compares a reading with the one before, and sends what has changed.
    async fn apply(&self, tenure: &Tenure, reading: Reading) {
        let difference = {
            let before = self.state();
            Difference::between(&before.locks, before.more, &reading)
        };
        let forced = forced(tenure, &difference).await;
        let mut change = difference.to_json();
        let more = reading.is_cut();
        change["at_ms"] = reading.at_ms.into();
        change["more"] = more.into();
        let at_ms = reading.at_ms;
        let mut state = self.state();
        state.health.succeeded(&reading);
        change["health"] = state.health.pulse();
        // What the first reading shows has happened before.
        let happened = match state.read_at.replace(Instant::now()) {
            None => Vec::new(),
            Some(_) => state.history.add(&difference, &forced, at_ms),
        };
        state.snapshot = None;
        (state.more, state.at_ms) = (more, at_ms);
        let seen = reading.locks.into_iter().take(MOST_LOCKS);
        let seen = seen.map(|info| (info.name.as_str().to_owned(), Seen { info, at_ms }));
        state.locks = seen.collect();
        let _ = self.feed.send(Message::Change(frame("change", None, &change)));
        for event in happened {
            let _ = self.feed.send(Message::Happened(event));
        }
        drop(state);
        self.readings.send_modify(|count| *count += 1);
    }

    /// The store could not be read, which is false. What was read before stays, and is shown as old.
    fn fail(&self, why: &str) -> bool {
        let mut state = self.state();
        state.health.failed(why);
        state.snapshot = None;
        let change = json!({ "at_ms": now_ms(), "health": state.health.pulse() });
        let _ = self.feed.send(Message::Change(frame("change", None, &change)));
        drop(state);
        self.readings.send_modify(|count| *count += 1);
        false
    }

    /// Sends the locks that viewers look at, with their queues.
    async fn look_at_single_locks(&self, tenure: &Tenure) {
        let names = self.viewers().next_locks();
        for name in names {
            if let Some(data) = self.page(tenure, &name).await {
                let _ = self.feed.send(Message::Lock(name, frame("lock", None, &data)));
            }
        }
    }

    /// One lock by itself. One that cannot be read is in the list of all, with the reason; without a list, the store is down.
    async fn page(&self, tenure: &Tenure, name: &LockName) -> Option<Value> {
        let info = match tenure.lock(name.clone()).inspect().await {
            Ok(info) => info,
            Err(_) => {
                let state = self.state();
                let seen = state.locks.get(name.as_str());
                seen.filter(|seen| seen.info.error.is_some())?.info.clone()
            }
        };
        Some(self.page_of(&info))
    }

    /// One lock, with its queue and what has happened to it.
    fn page_of(&self, info: &LockInfo) -> Value {
        let history = self.state().history.of(info.name.as_str());
        json!({ "at_ms": now_ms(), "lock": shape::lock(info), "history": history })
    }

    /// Examines the store from time to time, as `tenure doctor` does.
    async fn examine(&self, tenure: &Tenure, is_watched: bool) {
        let due = self.state().health.due(is_watched);
        if due.findings {
            let findings = tenure.checkup().await;
            self.state().health.found(findings);
        }
        if due.topology {
            let topology = tenure.topology().await.ok();
            self.state().health.located(topology);
        }
        if due.findings || due.topology {
            let mut state = self.state();
            state.snapshot = None;
            let data = state.health.to_json();
            let _ = self.feed.send(Message::Change(frame("health", None, &data)));
        }
    }

    /// The health of the store.
    pub(crate) fn health(&self) -> Value {
        self.state().health.to_json()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn viewers(&self) -> MutexGuard<'_, Viewers> {
        self.viewers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// All locks, as an event. Viewers of one reading share it; what they have not read yet has a bound, as other lists do.
    fn snapshot(&mut self, lists: &Lists) -> Result<Bytes, Problem> {
        if let Some(snapshot) = &self.snapshot {
            return Ok(snapshot.clone());
        }
        let locks: Vec<_> = self.locks.values().map(|seen| difference::row(&seen.info)).collect();
        let data = json!({
            "at_ms": self.at_ms,
            "locks": locks,
            "more": self.more,
            "health": self.health.to_json(),
        });
        let snapshot = lists.hold(event("snapshot", None, &data))?;
        self.snapshot = Some(snapshot.clone());
        Ok(snapshot)
    }
}

async fn read(tenure: &Tenure) -> Result<Reading, Error> {
    let started = Instant::now();
    // A lock that does not exist: one round trip, which leaves nothing.
    tenure.lock("tenure-serve/round-trip").inspect().await?;
    let trip = started.elapsed();
    let started = Instant::now();
    let locks = tenure.list("", MOST_LOCKS + 1).await?;
    Ok(Reading { locks, at_ms: now_ms(), trip, took: started.elapsed() })
}

/// The records of forced releases among the locks whose holders have gone.
async fn forced(tenure: &Tenure, difference: &Difference) -> Vec<ForceRecord> {
    let mut records = Vec::new();
    let mut asking = JoinSet::new();
    for name in difference.ended_early() {
        if asking.len() >= ASKED_AT_ONCE {
            records.extend(asking.join_next().await.and_then(Result::ok).flatten());
        }
        let lock = tenure.lock(name);
        asking.spawn(async move { lock.inspect().await.ok()?.forced });
    }
    records.extend(asking.join_all().await.into_iter().flatten());
    records
}
