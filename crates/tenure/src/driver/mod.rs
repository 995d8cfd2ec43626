//! The driver: all waiting, renewing and cleaning up, once for every engine.
//!
//! - [`wait`]: one acquire, from the first attempt to the guard; [`flight`] is one attempt.
//! - [`serve`]: what waiters ask the store, and what they do with its answers; [`line`] keeps the
//!   list of them, [`pass`] is the local hand-over between them, [`sharing`] lets readers share.
//! - [`watchdog`]: renewals, and noticing a loss in time.
//! - [`release`]: letting go, in every path.
//! - [`agenda`]: what is due when; [`watch`] wakes those who wait for an event.
//! - [`trampoline`]: what calls back does not call deeper.
//! - [`gate`]: the engine, which a forked child cannot reach.
//!
//! It owns one thread with a small runtime, which does nothing but this. So renewals go on while
//! the caller's executor is blocked (I9), callers may use any executor or none, and clean-up does
//! not depend on anyone's future being polled (I8).
//!
//! Locking: `lines` may be held while taking `agenda`, and `readers` while taking `reentries`, never
//! the other way round. While any is held, no engine is called, no guard is dropped, and no foreign
//! code runs: no waker is cloned, woken or dropped.
//!
//! Panics: one in foreign code ends where it is called. One in the engine or in the driver leaves the
//! driver in doubt, and ends it: what it holds is lost, those who wait get an error, and so does
//! everything after.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::clock;
use crate::core::backoff::Backoff;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::engine::{Acquired, Answer, CancelRequest, Engine, Health, Listener, Wakeup};
use crate::error::{Error, Trouble, WhyLost};
use crate::fork::Process;
use crate::owner::Entry;
use crate::sync::lock;
use crate::{foreign, thread};

mod agenda;
mod flight;
mod gate;
mod held;
mod line;
mod pass;
mod reentry;
mod release;
mod serve;
mod sharing;
mod spec;
mod trampoline;
mod wait;
mod watch;
mod watchdog;

use agenda::{Agenda, TimerKey};
use gate::Gate;
pub(crate) use held::Held;
use line::Lines;
use reentry::Reentries;
pub use release::Released;
use sharing::Readers;
pub(crate) use spec::{Identity, Spec};
use trampoline::Event;
pub use wait::Wait;
use watch::Watch;

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
    pub(crate) engine: Gate,
    /// The lease of a hand-over, where the engine has one.
    claim: Option<Duration>,
    /// True for the local lock that stands in when the store cannot be reached.
    pub(crate) is_fallback: bool,
    patience: Duration,
    process: Process,
    /// Its thread has ended by a panic.
    has_ended: AtomicBool,
    /// Losses that met no hold. One may have come before its hold was there.
    strays: AtomicU64,
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
        let failed = |source| Error::Thread { source: Arc::new(source) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(failed)?;
        let process = Process::this();
        let driver = Arc::new_cyclic(|this| Self {
            this: this.clone(),
            claim: engine.capabilities().claim,
            engine: Gate::new(engine, process),
            is_fallback,
            patience,
            process,
            has_ended: AtomicBool::new(false),
            strays: AtomicU64::new(0),
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

    /// Whether this is a forked child's copy of it: the thread is not there, its mutexes may be locked
    /// for ever, and the locks are not its.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process.is_left()
    }

    /// Refuses to work in a forked child.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        if self.process.is_surely_left() { Err(Error::Forked) } else { Ok(()) }
    }

    /// Refuses to work where nothing can.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.check_process()?;
        if self.has_ended() { Err(Error::Ended) } else { Ok(()) }
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// How the connections to the store are, and the driver itself.
    pub(crate) fn health(&self) -> Health {
        if self.has_ended() { Health::down("driver", &Error::Ended) } else { self.engine.health() }
    }

    /// Its thread has ended, or may have left something undone: nothing is renewed and nobody is
    /// served any more, and whoever relies on it must know.
    fn end(self: &Arc<Self>) {
        if self.has_ended.swap(true, Ordering::AcqRel) {
            return;
        }
        let (holds, wakers) = lock(&self.agenda).take_all();
        for held in holds {
            foreign::call(|| self.lose(&held, WhyLost::Ended));
        }
        foreign::wake_all(wakers);
        // It takes leave of the engine, which may be what has panicked.
        foreign::call(|| self.close_all_lines());
        self.background.idle.announce();
        // The thread looks, and ends.
        self.bell.notify_one();
    }

    /// Runs a future on the driver's thread, whatever becomes of the caller (I8).
    pub(crate) fn spawn(self: &Arc<Self>, future: impl Future<Output = ()> + Send + 'static) {
        let running = Running::new(self);
        self.spawner.spawn(async move {
            let mut future = pin!(future);
            let finished = poll_fn(|context| {
                let polled = foreign::call(|| future.as_mut().poll(context));
                polled.map_or(Poll::Ready(false), |polled| polled.map(|()| true))
            });
            if !finished.await {
                running.driver.end();
            }
            drop(running);
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
        let Background { running, idle } = &self.background;
        idle.until(|| (running.load(Ordering::SeqCst) == 0).then_some(())).await;
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
        self.spawn(async move { driver.keep_cancelling(request, first).await });
    }

    /// Undoes what an acquire may have done that was not answered, if that can be undone.
    fn undo(self: &Arc<Self>, spec: &Spec, entry: Entry) {
        if !spec.is_count() {
            self.abandon(spec.name.clone(), entry);
        }
    }

    /// Undoes an acquire that is on its way. The engine keeps the order, so that the cancel can follow
    /// at once, and whatever this client does next comes behind both.
    fn undo_after(self: &Arc<Self>, answer: Answer<Acquired>, spec: &Spec, entry: Entry) {
        if self.is_inherited() {
            return std::mem::forget(answer);
        }
        let Err(later) = answer.into_now() else { return self.undo(spec, entry) };
        if spec.is_count() {
            return;
        }
        let request = CancelRequest { name: spec.name.clone(), entry };
        let cancel = self.engine.cancel(request.clone());
        let driver = self.clone();
        self.spawn(async move {
            let _ = later.await;
            driver.keep_cancelling(request, cancel).await;
        });
    }

    async fn keep_cancelling(&self, request: CancelRequest, first: Answer<()>) {
        // By then the lease or the heartbeat has ended in the store.
        let until = clock::now() + crate::Lease::MAX.duration();
        let again = || self.engine.cancel(request.clone());
        let _ = self.persist(first, again, until).await;
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
        foreign::wake_all(due.wakers);
        // First: a loss must be told in time, and a question to the store may take a while (I9).
        self.tend(due.holds, now);
        due.lines.into_iter().for_each(|line| self.ask(line));
        lock(&self.agenda).plan(clock::now() + LONGEST_SLEEP)
    }
}

/// The driver's thread: until the last client, guard and clean-up are gone.
#[expect(clippy::disallowed_methods, reason = "the one place that sleeps")]
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

/// The end of the thread, however it comes.
struct Ending(Weak<Driver>);

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(driver) = self.0.upgrade() {
            driver.end();
        }
    }
}

impl Driver {
    /// The engine says something.
    fn woken(self: &Arc<Self>, wakeup: Wakeup) {
        match wakeup {
            Wakeup::Granted { entry, grant, .. } => self.granted(entry, grant),
            Wakeup::Lost { name, owner } => self.taken_away(&name, owner),
            Wakeup::Sooner { entry, .. } => self.ask_as(entry),
            Wakeup::Missed => self.look_again(),
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
            // What is in there belongs to threads that are not here.
            std::mem::forget(std::mem::take(&mut self.agenda));
            std::mem::forget(std::mem::take(&mut self.lines));
            std::mem::forget(std::mem::take(&mut self.reentries));
            std::mem::forget(std::mem::take(&mut self.readers));
            std::mem::forget(std::mem::take(&mut self.background));
            return;
        }
        // The thread wakes, finds the driver gone, and ends.
        self.bell.notify_one();
    }
}

/// Work that goes on without a caller.
#[derive(Default)]
struct Background {
    running: AtomicUsize,
    idle: Watch,
}

/// One piece of it, until it is done, or dropped with the thread.
struct Running {
    driver: Arc<Driver>,
}

impl Running {
    fn new(driver: &Arc<Driver>) -> Self {
        driver.background.running.fetch_add(1, Ordering::SeqCst);
        Self { driver: driver.clone() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Background { running, idle } = &self.driver.background;
        if running.fetch_sub(1, Ordering::SeqCst) == 1 {
            idle.announce();
        }
    }
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
        if clock::now() >= self.at || self.driver.has_ended() {
            return Poll::Ready(());
        }
        // Cloned before, and dropped after the lock: wakers are foreign code.
        let waker = context.waker().clone();
        let mut agenda = lock(&self.driver.agenda);
        let (key, must_tell, old) = agenda.wake_at(self.key, self.at, waker);
        drop(agenda);
        self.key = Some(key);
        drop(old);
        if must_tell {
            self.driver.bell.notify_one();
        }
        // It may have ended before it could see this timer.
        if self.driver.has_ended() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key
            && !self.driver.is_inherited()
        {
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
