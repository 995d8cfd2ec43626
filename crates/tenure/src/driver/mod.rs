//! The driver: waiting, renewing and cleaning up, once for every engine.
//!
//! - [`wait`]: one acquire, from the first attempt to the guard; [`flight`] is one attempt.
//! - [`serve`]: what waiters ask the store, and how they handle its answers; [`wait_group`] keeps
//!   them, [`pass`] is the local hand-over between them.
//! - [`reentry`] counts further entries of an owner, [`sharing`] lets readers share a hold.
//! - [`held`]: a hold; [`holding`] is where it begins; [`watchdog`]: renewals, and losses.
//! - [`confirmation`]: replicas have a hold before its guard is given out, where that is asked for.
//! - [`release`]: every path that releases; [`undo`]: acquires that are not wanted any more.
//! - [`background`]: work without a caller; [`alarm`]: timers for callers.
//! - [`agenda`]: all timers of the driver and its callers; [`watch`] wakes the waiters of an event.
//! - [`trampoline`]: callbacks become events, so that they do not nest.
//! - [`gate`]: the engine, which a forked child cannot reach.
//!
//! The driver owns one thread with a small runtime, which does nothing else. So renewals continue while
//! the caller's executor is blocked (I9), callers may use any executor or none, and clean-up does
//! not depend on a caller's future being polled (I8).
//!
//! Lock order. The wait groups, shared reads, re-entries and the agenda each own a mutex, which only
//! their own methods take:
//!
//! - wait groups before agenda;
//! - shared reads before re-entries;
//! - never the other way round, and no other two together.
//!
//! While any of them is held, no engine is called, no guard is dropped and no foreign code runs: no
//! caller's waker is cloned, woken or dropped. The agenda's bell wakes the driver's own thread only.
//!
//! Panics: a panic in foreign code is caught where that code is called. A panic in the engine or in the
//! driver leaves the driver in an unknown state, and ends it: its holds are lost, its waiters get an
//! error, and so does every later call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::client::Fallback;
use crate::clock;
use crate::core::backoff::Backoff;
use crate::core::moment::Moment;
use crate::engine::{Engine, Health, Listener, Wakeup};
use crate::error::{Error, WhyLost};
use crate::events::EventSink;
use crate::foreign;
use crate::fork::Process;
use crate::thread::Home;

mod agenda;
mod alarm;
mod background;
mod confirmation;
mod flight;
mod gate;
mod held;
mod holding;
mod pass;
mod pause;
mod reentry;
mod release;
mod serve;
mod sharing;
mod spec;
mod trampoline;
mod undo;
mod wait;
mod wait_group;
mod watch;
mod watchdog;

use agenda::Agenda;
use background::Background;
pub(crate) use confirmation::no_replicas;
use gate::Gate;
pub(crate) use held::Held;
use pause::Returns;
use reentry::Reentries;
use sharing::SharedReads;
pub(crate) use spec::{Identity, Replication, Spec};
use trampoline::Event;
use wait_group::WaitGroups;

/// Timers run on a clock that does not count suspend. Waking at least this often bounds how long a loss
/// during suspend goes unreported; `is_lost` sees it at once.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The store considers a waiter dead that has not asked again for this long. A waiter asks three times
/// in that time.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The minimum claim lease, in round trips: one is for the grant and its confirmation, the others for a
/// slow waiter.
const CLAIM_TRIPS: u32 = 40;

/// The maximum claim lease, whatever the round trip.
const LONGEST_CLAIM: Duration = Duration::from_secs(10);

/// How long errors of the store are retried before they are reported.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// The backoff after an error of the store.
const AFTER_ERROR: Backoff =
    Backoff::jitter(Duration::from_millis(20), Duration::from_millis(1000));

/// How a driver works.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How long errors of the store are retried before they are reported.
    pub(crate) patience: Duration,
    /// The fallback that it is, if it is used because the store cannot be reached.
    pub(crate) fallback: Option<Fallback>,
    /// Who learns what happens.
    pub(crate) events: Arc<EventSink>,
    /// A lock that is held for longer than this is logged.
    pub(crate) warn_held_after: Option<Duration>,
}

/// One engine, and everything this process does with it.
pub(crate) struct Driver {
    this: Weak<Self>,
    pub(crate) engine: Gate,
    /// The claim lease, if the engine has one.
    claim: Option<Duration>,
    settings: Settings,
    process: Process,
    /// A panic has ended the driver.
    has_ended: AtomicBool,
    agenda: Agenda,
    groups: WaitGroups,
    reentries: Reentries,
    shared_reads: SharedReads,
    background: Background,
    returns: Returns,
    spawner: Handle,
}

impl Driver {
    /// Starts the driver's thread.
    pub(crate) fn start(engine: Box<dyn Engine>, settings: Settings) -> Result<Arc<Self>, Error> {
        let failed = |source| Error::Thread { source: Arc::new(source) };
        let home = Home::with_time().map_err(failed)?;
        let process = Process::this();
        let driver = Arc::new_cyclic(|this| Self {
            this: this.clone(),
            claim: engine.capabilities().claim,
            engine: Gate::new(engine, process),
            settings,
            process,
            has_ended: AtomicBool::new(false),
            agenda: Agenda::default(),
            groups: WaitGroups::default(),
            reentries: Reentries::default(),
            shared_reads: SharedReads::default(),
            background: Background::default(),
            returns: Returns::default(),
            spawner: home.handle(),
        });
        driver.engine.listen(driver.this.clone());
        let run = run(Arc::downgrade(&driver), driver.agenda.bell());
        home.run("tenure-driver", run).map_err(failed)?;
        Ok(driver)
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The fallback that it is, if it is used because the store cannot be reached.
    pub(crate) fn fallback(&self) -> Option<Fallback> {
        self.settings.fallback
    }

    /// Whether this is a forked child's copy: it has no thread, its mutexes may be locked forever, and the
    /// holds are its parent's.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process.is_left()
    }

    /// An error in a forked child.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.process.is_left() { Err(Error::Forked) } else { Ok(()) }
    }

    /// An error in a forked child, and after the driver has ended.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.check_process()?;
        if self.has_ended() { Err(Error::Ended) } else { Ok(()) }
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// How many locks are held.
    pub(crate) fn held_count(&self) -> usize {
        self.agenda.holds().len()
    }

    /// The state of the connections to the store, and of the driver itself.
    pub(crate) fn health(&self) -> Health {
        if self.has_ended() { Health::down("driver", &Error::Ended) } else { self.engine.health() }
    }

    /// Ends the driver after a panic: nothing is renewed and no waiter is served any more, so every
    /// holder and waiter is notified.
    fn end(self: &Arc<Self>) {
        if self.has_ended.swap(true, Ordering::AcqRel) {
            return;
        }
        let all = self.agenda.take_all();
        for held in all.holds {
            foreign::call(|| self.lose(&held, WhyLost::Ended, false));
        }
        foreign::wake_all(all.wakers);
        // This calls the engine, which may have caused the panic.
        foreign::call(|| self.close_all_groups());
        self.background.idle.announce();
        // The thread sees the flag, and ends.
        self.agenda.ring();
    }

    /// The claim lease: at least [`CLAIM_TRIPS`] round trips, within bounds.
    fn claim(&self) -> Option<Duration> {
        let far = (self.engine.round_trip() * CLAIM_TRIPS).min(LONGEST_CLAIM);
        self.claim.map(|claim| claim.max(far))
    }

    /// Handles everything that is due, and returns when to wake next.
    fn turn(self: &Arc<Self>) -> Option<Moment> {
        let now = clock::now();
        let due = self.agenda.take_due(now);
        foreign::wake_all(due.wakers);
        // First: a loss must be reported in time, and a request to the store may take a while (I9).
        self.tend(due.holds, now);
        due.groups.into_iter().for_each(|group| self.ask(group));
        self.agenda.plan(clock::now() + LONGEST_SLEEP)
    }
}

/// The driver's thread: until the last client, guard and clean-up task are dropped.
#[expect(clippy::disallowed_methods, reason = "the driver's only sleep: the agenda has its timers")]
async fn run(driver: Weak<Driver>, bell: Arc<Notify>) {
    let _ending = Ending(driver.clone());
    while let Some(driver) = driver.upgrade().filter(|driver| !driver.has_ended()) {
        let Some(next) = foreign::call(|| driver.turn()) else { return };
        drop(driver);
        match next {
            None => bell.notified().await,
            Some(at) => {
                let delay = at.since(clock::now());
                tokio::select! {
                    () = bell.notified() => {}
                    () = tokio::time::sleep(delay) => {}
                }
            }
        }
    }
}

/// Ends the driver when its thread ends, however it ends.
struct Ending(Weak<Driver>);

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(driver) = self.0.upgrade() {
            driver.end();
        }
    }
}

impl Driver {
    /// Handles a wake-up of the engine.
    fn woken(self: &Arc<Self>, wakeup: Wakeup) {
        match wakeup {
            Wakeup::Granted { entry, grant, .. } => self.granted(entry, grant),
            Wakeup::Lost { name, owner } => self.taken_away(&name, owner),
            Wakeup::Sooner { entry, .. } => self.ask_as(entry),
            Wakeup::Freed { name } => self.freed(&name),
            Wakeup::Missed => self.resync(|_| true),
            Wakeup::MissedIn(part) => self.resync(|name| part.contains(name)),
            Wakeup::Returned => self.retry_all(),
        }
    }
}

impl Listener for Driver {
    fn wake(&self, wakeup: Wakeup) {
        if let Some(driver) = self.this.upgrade() {
            driver.react(Event::Wakeup(wakeup));
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.process.is_left() {
            // Their contents belong to threads that this process does not have.
            std::mem::forget(std::mem::take(&mut self.agenda));
            std::mem::forget(std::mem::take(&mut self.groups));
            std::mem::forget(std::mem::take(&mut self.reentries));
            std::mem::forget(std::mem::take(&mut self.shared_reads));
            std::mem::forget(std::mem::take(&mut self.background));
            std::mem::forget(std::mem::take(&mut self.returns));
            return;
        }
        // The thread wakes, fails to upgrade its reference, and ends.
        self.agenda.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::MemoryEngine;

    #[test]
    fn the_thread_ends_with_its_driver() {
        let engine = Box::new(MemoryEngine::new());
        let settings = Settings {
            patience: PATIENCE,
            fallback: None,
            events: Arc::default(),
            warn_held_after: None,
        };
        let driver = Driver::start(engine, settings).unwrap();
        let bell = Arc::downgrade(&driver.agenda.bell());
        drop(driver);
        // The thread has the other reference to the bell.
        while bell.strong_count() > 0 {
            std::thread::yield_now();
        }
    }
}
