//! What a simulation replaces for the code that runs in it: clocks, random numbers and threads.
//!
//! All of a simulation runs on one thread, so it is found there. On every other thread there is none, and nothing is replaced.

use std::cell::RefCell;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::time::Instant;

use crate::core::moment::Moment;

/// What the steady clock shows when a simulation begins.
const BOOTED: Duration = Duration::from_secs(1_000_000);

/// What the calendar shows then.
pub(super) const CALENDAR: Duration = Duration::from_secs(1_800_000_000);

struct Ambient {
    started: Instant,
    runtime: Handle,
    random: fastrand::Rng,
    step: Duration,
}

/// The step in which time passes. The timers of the runtime distinguish milliseconds.
const STEP: Duration = Duration::from_millis(2);

thread_local! {
    static AMBIENT: RefCell<Option<Ambient>> = const { RefCell::new(None) };
}

/// Runs a future with simulated time: it passes only while all tasks wait.
///
/// The seed determines all random numbers. What it does not determine is the order of events at the same moment: `select!`
/// and the maps of the standard library choose at random.
pub(super) fn simulate<F: Future>(seed: u64, future: F) -> F::Output {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime for the simulation");
    runtime.block_on(async {
        let (started, random) = (Instant::now(), fastrand::Rng::with_seed(seed));
        let runtime = Handle::current();
        AMBIENT.set(Some(Ambient { started, runtime, random, step: STEP }));
        let _end = End;
        tokio::spawn(tick());
        future.await
    })
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        AMBIENT.set(None);
    }
}

/// Bytes in a socket do not keep the time from passing. So it passes in small steps.
#[expect(clippy::disallowed_methods, reason = "the step of the simulated time")]
async fn tick() {
    loop {
        tokio::time::sleep(read(|ambient| ambient.step).unwrap_or(STEP)).await;
    }
}

/// From now on, time passes in larger steps: little happens, and it may happen late.
pub(super) fn coarsen(step: Duration) {
    read(|ambient| ambient.step = step);
}

fn read<T>(read: impl FnOnce(&mut Ambient) -> T) -> Option<T> {
    AMBIENT.try_with(|ambient| ambient.borrow_mut().as_mut().map(read)).ok().flatten()
}

fn since(start: Duration, ambient: &Ambient) -> Moment {
    Moment::ZERO + start + ambient.started.elapsed()
}

/// The simulated steady clock.
pub(crate) fn now() -> Option<Moment> {
    read(|ambient| since(BOOTED, ambient))
}

/// The simulated calendar.
pub(crate) fn wall() -> Option<Moment> {
    read(|ambient| since(CALENDAR, ambient))
}

/// Random bits of the simulation.
pub(crate) fn random_bits() -> Option<u128> {
    read(|ambient| ambient.random.u128(..))
}

/// The runtime that does the work of all threads.
pub(crate) fn runtime() -> Option<Handle> {
    read(|ambient| ambient.runtime.clone())
}
