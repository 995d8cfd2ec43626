//! Reads the store, once for all viewers, and sends them what has changed.
//!
//! A reading is a list of all locks; `difference` compares it with the one before, and so knows what has happened in between.
//! What is undone between two readings is not seen. Without viewers the store is read rarely, and always less than a fifth of
//! the time.

mod difference;
mod health;
mod history;
mod viewer;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tenure::{Error, ForceRecord, LockInfo, LockName, Tenure};
use tokio::sync::{Notify, broadcast, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

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

/// How many messages a viewer may be behind. After more it gets all locks again, or what it has missed from the history.
const BEHIND: usize = 32;

/// What viewers have not read yet of all changes may take so many bytes: by itself, so that one that is slow does not keep others
/// from lists.
const CHANGES: usize = 64 * 1024 * 1024;

/// How long single locks are asked for after a reading. A store that froze after it is to be shown as down by the next one.
const SINGLE: Duration = Duration::from_secs(5);

/// How many locks that became free are asked at a time whether that was forced.
const ASKED_AT_ONCE: usize = 256;

/// The reader of the store.
pub(crate) struct Watcher {
    state: Mutex<State>,
    feed: broadcast::Sender<Message>,
    /// By itself: however much happens, those that look at the page get their changes.
    happened: broadcast::Sender<Arc<Happened>>,
    changes: Lists,
    /// Held while all locks are written, once for all who ask meanwhile.
    writing: Mutex<()>,
    /// How many readings there were.
    readings: watch::Sender<u64>,
    viewers: Mutex<Viewers>,
    /// A viewer has come.
    arrived: Notify,
}

#[derive(Default)]
struct State {
    locks: Arc<BTreeMap<String, Seen>>,
    more: bool,
    at_ms: u64,
    read_at: Option<Instant>,
    /// All locks, as a viewer gets them first; none until one asks.
    snapshot: Option<Bytes>,
    /// How many changes there were, each of which needs another one.
    changes: u64,
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
    /// There was no room for a change: all locks are to be sent again.
    Missed,
    /// The locks that viewers look at.
    Locks(Arc<HashMap<LockName, Bytes>>),
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
            happened: broadcast::channel(BEHIND).0,
            changes: Lists::new(CHANGES),
            writing: Mutex::default(),
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
            let (before, was_cut) = {
                let state = self.state();
                (state.locks.clone(), state.more)
            };
            Difference::between(&before, was_cut, &reading)
        };
        let forced = forced(tenure, &difference).await;
        let mut change = difference.to_json();
        let (more, at_ms) = (reading.is_cut(), reading.at_ms);
        change["at_ms"] = at_ms.into();
        change["more"] = more.into();
        change["health"] = {
            let mut state = self.state();
            state.health.succeeded(&reading);
            state.health.pulse()
        };
        // Written before the state is locked: requests ask for it, too.
        let message = self.changes.hold(event("change", None, &change)).map(Message::Change);
        let seen = reading.locks.into_iter().take(MOST_LOCKS);
        let seen = seen.map(|info| (info.name.as_str().to_owned(), Seen { info, at_ms }));
        let locks = Arc::new(seen.collect());
        let mut state = self.state();
        // What the first reading shows has happened before.
        let happened = match state.read_at.replace(Instant::now()) {
            None => Vec::new(),
            Some(_) => state.history.add(&difference, &forced, at_ms),
        };
        state.changed();
        (state.more, state.at_ms) = (more, at_ms);
        let before = std::mem::replace(&mut state.locks, locks);
        let _ = self.feed.send(message.unwrap_or(Message::Missed));
        for event in happened {
            let _ = self.happened.send(event);
        }
        drop(state);
        drop(before);
        self.readings.send_modify(|count| *count += 1);
    }

    /// The store could not be read, which is false. What was read before stays, and is shown as old.
    fn fail(&self, why: &str) -> bool {
        let mut state = self.state();
        state.health.failed(why);
        state.changed();
        let change = json!({ "at_ms": now_ms(), "health": state.health.pulse() });
        let _ = self.feed.send(Message::Change(frame("change", None, &change)));
        drop(state);
        self.readings.send_modify(|count| *count += 1);
        false
    }

    /// Sends the locks that viewers look at, with their queues.
    async fn look_at_single_locks(&self, tenure: &Tenure) {
        let names = self.viewers().next_locks();
        let mut pages = HashMap::new();
        let ask = async {
            for name in names {
                // Those that are not asked in time have the first turn next time, and one that does not answer has not.
                self.viewers().last = Some(name.clone());
                let page = self.page(tenure, &name).await;
                pages.extend(page.map(|page| (name, frame("lock", None, &page))));
            }
        };
        let _ = timeout(SINGLE, ask).await;
        if !pages.is_empty() {
            let _ = self.feed.send(Message::Locks(Arc::new(pages)));
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
            state.changed();
            let data = state.health.to_json();
            let _ = self.feed.send(Message::Change(frame("health", None, &data)));
        }
    }

    /// The health of the store.
    pub(crate) fn health(&self) -> Value {
        self.state().health.to_json()
    }

    /// All locks, as an event. Viewers of one reading share it; what they have not read yet has a bound, as other lists do.
    fn snapshot(&self, lists: &Lists) -> Result<Bytes, Problem> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.state();
        if let Some(snapshot) = &state.snapshot {
            return Ok(snapshot.clone());
        }
        let (seen, changes) = (state.locks.clone(), state.changes);
        let (at_ms, more, health) = (state.at_ms, state.more, state.health.to_json());
        // Not written while the state is locked: requests ask for it, too.
        drop(state);
        let locks: Vec<_> = seen.values().map(|seen| difference::row(&seen.info)).collect();
        let data = json!({ "at_ms": at_ms, "locks": locks, "more": more, "health": health });
        let snapshot = lists.hold(event("snapshot", None, &data))?;
        let mut state = self.state();
        if state.changes == changes {
            state.snapshot = Some(snapshot.clone());
        }
        Ok(snapshot)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn viewers(&self) -> MutexGuard<'_, Viewers> {
        self.viewers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn changed(&mut self) {
        self.snapshot = None;
        self.changes += 1;
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

/// The records of forced releases among the locks whose holders have gone, as far as the store answers in time.
async fn forced(tenure: &Tenure, difference: &Difference) -> Vec<ForceRecord> {
    let mut records = Vec::new();
    let mut asking = JoinSet::new();
    let ask = async {
        for name in difference.without_former_holders() {
            if asking.len() >= ASKED_AT_ONCE {
                records.extend(asking.join_next().await.and_then(Result::ok).flatten());
            }
            let lock = tenure.lock(name);
            asking.spawn(async move { lock.inspect().await.ok()?.forced });
        }
        while let Some(answer) = asking.join_next().await {
            records.extend(answer.ok().flatten());
        }
    };
    let _ = timeout(SINGLE, ask).await;
    records
}
