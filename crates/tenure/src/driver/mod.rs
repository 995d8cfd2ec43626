//! The driver: all waiting, renewing and cleaning up, once for every engine.
//!
//! - [`wait`]: one acquire, from the first attempt to the guard; [`flight`] is one attempt.
//! - [`serve`]: what waiters ask the store, and what they do with its answers; [`line`] keeps the
//!   list of them, [`pass`] is the local hand-over between them, [`sharing`] lets readers share.
//! - [`watchdog`]: renewals, and noticing a loss in time.
//! - [`release`]: letting go, in every path.
//! - [`agenda`]: what is due when.
//!
//! It owns one thread with a small runtime, which does nothing but this. So renewals go on while
//! the caller's executor is blocked (I9), callers may use any executor or none, and clean-up does
//! not depend on anyone's future being polled (I8).
//!
//! Locking: `lines` may be held while taking `agenda`, and `readers` while taking `reentries`, never
//! the other way round, and no engine is called and no guard dropped while any is held.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::clock;
use crate::core::backoff::Backoff;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::engine::{Answer, CancelRequest, Engine, Listener, Wakeup};
use crate::error::{Error, Trouble};
use crate::owner::Entry;
use crate::sync::lock;
use crate::thread;

mod agenda;
mod flight;
mod held;
mod line;
mod pass;
mod reentry;
mod release;
mod serve;
mod sharing;
mod spec;
mod wait;
mod watchdog;

use agenda::{Agenda, Timer, TimerKey};
pub(crate) use held::Held;
use line::Lines;
use reentry::Reentries;
pub use release::Released;
use sharing::Readers;
pub(crate) use spec::{Identity, Spec};
pub use wait::Wait;

/// Timers run on a clock that stands still while the machine is suspended. Looking up at least
/// this often bounds how long a loss during suspend goes unannounced; `is_lost` sees it at once.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// A waiter that has not asked again for this long is taken for dead by the store. It asks three
/// times in that time.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// How long trouble with the store is endured before it is reported.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// How soon to ask again after trouble with the store.
const AFTER_TROUBLE: Backoff =
    Backoff::jitter(Duration::from_millis(20), Duration::from_millis(1000));

/// One engine, and everything this process does with it.
pub(crate) struct Driver {
    this: Weak<Self>,
    pub(crate) engine: Box<dyn Engine>,
    /// True for the local lock that stands in when the store cannot be reached.
    pub(crate) is_fallback: bool,
    patience: Duration,
    process: u32,
    agenda: Mutex<Agenda>,
    lines: Mutex<Lines>,
    reentries: Mutex<Reentries>,
    readers: Mutex<Readers>,
    bell: Arc<Notify>,
    background: Background,
    spawner: Handle,
}

impl Driver {
    /// Starts the driver's thread.
    pub(crate) fn start(
        engine: Box<dyn Engine>,
        patience: Duration,
        is_fallback: bool,
    ) -> Result<Arc<Self>, Error> {
        Self::start_in(std::process::id(), engine, patience, is_fallback)
    }

    fn start_in(
        process: u32,
        engine: Box<dyn Engine>,
        patience: Duration,
        is_fallback: bool,
    ) -> Result<Arc<Self>, Error> {
        let failed = |source| Error::Thread { source: Arc::new(source) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(failed)?;
        let driver = Arc::new_cyclic(|this| Self {
            this: this.clone(),
            engine,
            is_fallback,
            patience,
            process,
            agenda: Mutex::default(),
            lines: Mutex::default(),
            reentries: Mutex::default(),
            readers: Mutex::default(),
            bell: Arc::default(),
            background: Background::default(),
            spawner: runtime.handle().clone(),
        });
        driver.engine.listen(driver.this.clone());
        let run = run(Arc::downgrade(&driver), driver.bell.clone());
        thread::run("tenure-driver", runtime, run).map_err(failed)?;
        Ok(driver)
    }

    /// Refuses to work in a forked child: the thread is not there, and the locks are not its.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if std::process::id() == self.process { Ok(()) } else { Err(Error::Forked) }
    }

    /// Runs a future on the driver's thread, whatever becomes of the caller (I8).
    pub(crate) fn spawn(self: &Arc<Self>, future: impl Future<Output = ()> + Send + 'static) {
        self.background.running.fetch_add(1, Ordering::AcqRel);
        let driver = self.clone();
        self.spawner.spawn(async move {
            future.await;
            if driver.background.running.fetch_sub(1, Ordering::AcqRel) == 1 {
                driver.background.idle.notify_waiters();
            }
        });
    }

    /// Resolves when nothing is left to clean up, or the time is over. True in the first case.
    pub(crate) async fn quiet_within(&self, time: Duration) -> bool {
        self.before(clock::now() + time, self.quiet()).await.is_some()
    }

    /// What a future gives before a moment; none when that comes first.
    async fn before<F: Future>(&self, end: Moment, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        let mut alarm = pin!(self.alarm(end));
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if end == Moment::NEVER => Poll::Pending,
            Poll::Pending => alarm.as_mut().poll(context).map(|()| None),
        })
        .await
    }

    async fn quiet(&self) {
        loop {
            let mut idle = pin!(self.background.idle.notified());
            idle.as_mut().enable();
            if self.background.running.load(Ordering::Acquire) == 0 {
                return;
            }
            idle.await;
        }
    }

    /// Resolves at a moment, on any executor.
    pub(crate) fn alarm(&self, at: Moment) -> Alarm<'_> {
        Alarm { driver: self, at, key: None }
    }

    /// Undoes an acquire that nobody wants any more, whether it waits or was granted (I6).
    fn abandon(self: &Arc<Self>, name: LockName, entry: Entry) {
        let request = CancelRequest { name, entry };
        let first = match self.engine.cancel(request.clone()).into_now() {
            Ok(Ok(())) => return,
            Ok(Err(trouble)) => Answer::now(Err(trouble)),
            Err(later) => later,
        };
        let driver = self.clone();
        self.spawn(async move {
            // By then the lease or the heartbeat has ended in the store.
            let until = clock::now() + crate::Lease::MAX.duration();
            let again = || driver.engine.cancel(request.clone());
            let _ = driver.persist(first, again, until).await;
        });
    }

    /// Sends an operation again until it is answered or the time is over. Operations are
    /// idempotent (I5), so this is always safe; once unanswered, it stays unknown (I6).
    async fn persist<T: Unpin>(
        &self,
        first: Answer<T>,
        mut again: impl FnMut() -> Answer<T>,
        until: Moment,
    ) -> Result<T, Trouble> {
        let mut delays = AFTER_TROUBLE.delays(clock::now().as_micros());
        let mut answer = first;
        let mut earlier: Option<Trouble> = None;
        loop {
            let trouble = match answer.await {
                Ok(outcome) => return Ok(outcome),
                Err(trouble) => trouble.after(earlier.as_ref()),
            };
            let next = clock::now() + delays.next();
            if next >= until {
                return Err(trouble);
            }
            earlier = Some(trouble);
            self.alarm(next).await;
            answer = again();
        }
    }

    /// Does what is due, and says when to come back.
    fn turn(self: &Arc<Self>) -> Option<Moment> {
        let now = clock::now();
        let due = lock(&self.agenda).take_due(now);
        due.wakers.into_iter().for_each(|waker| waker.wake());
        // First: a loss must be told in time, and a question to the store may take a while (I9).
        self.tend(due.holds, now);
        due.lines.into_iter().for_each(|line| self.ask(line));
        lock(&self.agenda).plan(clock::now() + LONGEST_SLEEP)
    }
}

/// The driver's thread: until the last client, guard and clean-up are gone.
#[expect(clippy::disallowed_methods, reason = "the one place that sleeps")]
async fn run(driver: Weak<Driver>, bell: Arc<Notify>) {
    while let Some(next) = driver.upgrade().map(|driver| driver.turn()) {
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

impl Listener for Driver {
    fn wake(&self, wakeup: Wakeup) {
        let Some(driver) = self.this.upgrade() else {
            return;
        };
        match wakeup {
            Wakeup::Granted { entry, grant, .. } => driver.granted(entry, grant),
            Wakeup::Lost { name, owner } => driver.taken_away(&name, owner),
            Wakeup::Sooner { entry, .. } => driver.ask_as(entry),
            Wakeup::Missed => driver.look_again(),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The thread wakes, finds the driver gone, and ends.
        self.bell.notify_one();
    }
}

/// Work that goes on without a caller.
#[derive(Default)]
struct Background {
    running: AtomicUsize,
    idle: Notify,
}

/// A timer for callers, on any executor.
pub(crate) struct Alarm<'a> {
    driver: &'a Driver,
    at: Moment,
    key: Option<TimerKey>,
}

impl Future for Alarm<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if clock::now() >= self.at {
            return Poll::Ready(());
        }
        let mut agenda = lock(&self.driver.agenda);
        if self.key.is_some_and(|key| agenda.rewake(key, context.waker())) {
            return Poll::Pending;
        }
        let (key, must_tell) = agenda.add(self.at, Timer::Wake(context.waker().clone()));
        drop(agenda);
        self.key = Some(key);
        if must_tell {
            self.driver.bell.notify_one();
        }
        Poll::Pending
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let timer = lock(&self.driver.agenda).remove(key);
            drop(timer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::MemoryEngine;

    #[test]
    fn a_forked_child_is_refused() {
        let of_parent = std::process::id() + 1;
        let engine = Box::new(MemoryEngine::new());
        let driver = Driver::start_in(of_parent, engine, PATIENCE, false).unwrap();
        assert!(matches!(driver.check_process(), Err(Error::Forked)));
    }

    #[test]
    fn the_thread_ends_with_its_driver() {
        let engine = Box::new(MemoryEngine::new());
        let driver = Driver::start(engine, PATIENCE, false).unwrap();
        let bell = Arc::downgrade(&driver.bell);
        drop(driver);
        // The thread has the other reference to the bell.
        while bell.strong_count() > 0 {
            std::thread::yield_now();
        }
    }
}
