//! The viewers: what one gets, and what it is counted for.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tenure::LockName;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::{Instant, timeout, timeout_at};

use super::history::Happened;
use super::{Message, Watcher};
use crate::server::Server;
use crate::stream::{Events, HEARTBEAT};

/// A reading that is older is not shown to a new viewer, unless there is no newer one soon.
const FRESH: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(3);

/// How many locks are read by themselves, after each reading of all.
const MOST_WATCHED: usize = 64;

/// How many events that a client has missed are taken from the history at a time.
const MISSED: usize = 256;

/// The viewers that there are.
#[derive(Default)]
pub(super) struct Viewers {
    pub(super) count: usize,
    /// The locks that viewers look at, and how many do.
    locks: BTreeMap<LockName, usize>,
    /// The last one of them that was read.
    pub(super) last: Option<LockName>,
}

impl Viewers {
    /// The locks to be read next: those behind the last one, and then from the first on, so that each has its turn.
    pub(super) fn next_locks(&self) -> Vec<LockName> {
        let is_later = |name: &&LockName| self.last.as_ref().is_none_or(|last| *name > last);
        let (later, earlier): (Vec<_>, Vec<_>) = self.locks.keys().partition(is_later);
        later.into_iter().chain(earlier).take(MOST_WATCHED).cloned().collect()
    }
}

impl Watcher {
    /// Sends all locks, and then what changes, until the viewer is gone.
    pub(crate) async fn follow_state(
        self: &Arc<Self>,
        server: &Server,
        events: &Events,
        lock: Option<LockName>,
    ) {
        let _viewer = Viewer::new(self, lock.clone());
        self.until_fresh().await;
        if let Some(name) = &lock {
            // A store that does not answer keeps no viewer from what was read before.
            let _ = timeout(PATIENCE, self.send_page(server, events, name)).await;
        }
        // Subscribed before the snapshot is taken: nothing is missed in between.
        let mut feed = self.feed.subscribe();
        let mut is_there = self.send_all(server, events).await;
        while is_there {
            let message = tokio::select! {
                message = timeout(HEARTBEAT, feed.recv()) => message,
                () = server.stopped() => return,
            };
            is_there = match message {
                Ok(Ok(Message::Change(frame))) => events.send_frame(frame).await,
                Ok(Ok(Message::Locks(pages))) => {
                    match lock.as_ref().and_then(|name| pages.get(name)) {
                        Some(frame) => events.send_frame(frame.clone()).await,
                        None => true,
                    }
                }
                Ok(Ok(Message::Missed) | Err(RecvError::Lagged(_))) => {
                    feed = self.feed.subscribe();
                    self.send_all(server, events).await
                }
                Ok(Err(RecvError::Closed)) => return,
                Err(_) => events.beat().await,
            };
        }
    }

    /// Sends what happens to locks, until the client is gone; first what it has missed since an event that it knows.
    pub(crate) async fn follow_events(
        self: &Arc<Self>,
        server: &Server,
        events: &Events,
        prefix: &str,
        last: Option<u64>,
    ) {
        let _viewer = Viewer::new(self, None);
        self.until_fresh().await;
        let (mut feed, sent) = self.join_events(last);
        // Whatever happens from here on is reported.
        if !events.beat().await {
            return;
        }
        let due = Instant::now() + HEARTBEAT;
        let mut reporter = Reporter { events, prefix, sent, due, is_there: true };
        // What it has missed is in the history.
        let mut is_behind = true;
        while reporter.is_there {
            if is_behind {
                is_behind = self.catch_up(&mut reporter).await;
                continue;
            }
            let message = tokio::select! {
                message = timeout_at(reporter.due, feed.recv()) => message,
                () = server.stopped() => return,
            };
            match message {
                Ok(Ok(event)) => reporter.report(&event).await,
                Ok(Err(RecvError::Lagged(_))) => is_behind = true,
                Ok(Err(RecvError::Closed)) => return,
                Err(_) => reporter.beat().await,
            }
        }
    }

    /// Reports some events of the history; false if there are none. Only some, because what a slow client has yet to read must not
    /// be kept for it alone.
    async fn catch_up(&self, reporter: &mut Reporter<'_>) -> bool {
        let missed = self.state().history.after(reporter.sent, MISSED);
        for event in &missed {
            reporter.report(event).await;
        }
        !missed.is_empty()
    }

    /// The events from now on, and the last one that the client knows: the newest, if it names none. Both are of one moment, because
    /// events are sent while the state is locked.
    fn join_events(&self, last: Option<u64>) -> (broadcast::Receiver<Arc<Happened>>, u64) {
        let state = self.state();
        let newest = state.history.newest();
        let known = match last {
            // An event that has not happened here: of another server, or of a clock that was set back.
            Some(id) if id > newest => 0,
            Some(id) => id,
            None => newest,
        };
        (self.happened.subscribe(), known)
    }

    /// Sends all locks. They are written on another thread, once for all viewers that ask at the same time. Where there is no
    /// room for them, the stream ends with the reason: the viewer asks again.
    async fn send_all(self: &Arc<Self>, server: &Server, events: &Events) -> bool {
        let mut turn = pin!(server.door().lists.turn());
        // Others may be waiting for a store that does not answer.
        let turn = loop {
            match timeout(HEARTBEAT, &mut turn).await {
                Ok(turn) => break turn,
                Err(_) if events.beat().await => {}
                Err(_) => return false,
            }
        };
        let (watcher, server) = (self.clone(), server.clone());
        let written = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            watcher.snapshot(&server.door().lists)
        });
        match written.await {
            Ok(Ok(snapshot)) => events.send_frame(snapshot).await,
            Ok(Err(problem)) => {
                events.send("refused", None, &problem.to_json()).await;
                false
            }
            Err(_) => false,
        }
    }

    /// One lock at once, before the next reading.
    async fn send_page(&self, server: &Server, events: &Events, name: &LockName) {
        let Ok(tenure) = server.tenure().await else { return };
        if let Some(page) = self.page(tenure, name).await {
            events.send("lock", None, &page).await;
        }
    }

    /// Waits until there is a reading that is not old.
    async fn until_fresh(&self) {
        let mut readings = self.readings.subscribe();
        let is_fresh = || {
            let read_at = self.state().read_at;
            read_at.is_some_and(|at: Instant| at.elapsed() < FRESH)
        };
        if !is_fresh() {
            let _ = timeout(PATIENCE, readings.changed()).await;
        }
    }
}

/// What a client is told of what happens.
struct Reporter<'a> {
    events: &'a Events,
    prefix: &'a str,
    /// The last event that it knows, or does not ask for.
    sent: u64,
    /// When it must be sent something, be it only a comment.
    due: Instant,
    is_there: bool,
}

impl Reporter<'_> {
    async fn report(&mut self, event: &Happened) {
        // What the history has filled a gap with is still in the channel.
        if event.id <= self.sent || !self.is_there {
            return;
        }
        self.sent = event.id;
        if event.name.starts_with(self.prefix) {
            self.due = Instant::now() + HEARTBEAT;
            self.is_there = self.events.send("lock", Some(event.id), &event.data).await;
        }
    }

    async fn beat(&mut self) {
        self.due = Instant::now() + HEARTBEAT;
        self.is_there = self.events.beat().await;
    }
}

/// A viewer that is counted.
struct Viewer {
    watcher: Arc<Watcher>,
    lock: Option<LockName>,
}

impl Viewer {
    fn new(watcher: &Arc<Watcher>, lock: Option<LockName>) -> Self {
        let mut viewers = watcher.viewers();
        viewers.count += 1;
        if let Some(lock) = &lock {
            *viewers.locks.entry(lock.clone()).or_default() += 1;
        }
        drop(viewers);
        watcher.arrived.notify_one();
        Self { watcher: watcher.clone(), lock }
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let mut viewers = self.watcher.viewers();
        viewers.count -= 1;
        if let Some(lock) = &self.lock
            && let Some(count) = viewers.locks.get_mut(lock)
        {
            *count -= 1;
            if *count == 0 {
                viewers.locks.remove(lock);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_watched_lock_has_its_turn() {
        let mut viewers = Viewers::default();
        let names = (0..150).map(|number| LockName::new(format!("lock/{number}")).unwrap());
        viewers.locks = names.map(|name| (name, 1)).collect();
        let mut read = BTreeSet::new();
        // Some of those that are next are not read in time.
        for _ in 0..5 {
            let next = viewers.next_locks();
            read.extend(next.iter().take(30).cloned());
            viewers.last = next.get(29).cloned();
        }
        assert_eq!(read.len(), 150);
        viewers.locks.retain(|name, _| name.as_str() == "lock/7");
        for _ in 0..2 {
            assert_eq!(viewers.next_locks().len(), 1);
        }
    }
}
