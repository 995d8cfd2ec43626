//! What `bench/peers/README.md` asks of a program, for the programs that are written in Rust: the options, the
//! callers, and the line with the results. A program adds the lock.

mod options;
mod report;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Runtime;
use tokio::task::{JoinSet, LocalSet};

pub use options::{Options, Work};
pub use report::Section;

/// One caller of a lock library.
pub trait Caller: 'static {
    /// A lock that is held.
    type Guard;

    /// Waits for the lock with this name.
    fn acquire(&self, name: &str) -> impl Future<Output = Self::Guard>;

    /// Gives it back, and waits for the answer.
    fn release(&self, guard: Self::Guard) -> impl Future<Output = ()>;
}

/// A runtime of one thread, which is what these clients are fastest on.
pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Warms up, waits for the start, does the work with as many callers as the options say, and prints the results.
pub fn run<C: Caller>(
    runtime: &Runtime,
    version: &str,
    options: &Options,
    caller: impl Fn(usize) -> C,
) {
    let callers = |options: &Options| {
        let all = (0..options.callers).map(&caller);
        let sections = LocalSet::new().block_on(runtime, work(options, all));
        report::ended(now(), sections)
    };
    callers(&options.warming());
    report::ready();
    let begin = now();
    let ended = callers(options);
    ended.print(version, begin);
}

async fn work<C: Caller>(options: &Options, callers: impl Iterator<Item = C>) -> Vec<Section> {
    let end = now() + options.nanos();
    let next = Rc::new(Cell::new(0));
    let mut tasks = JoinSet::new();
    for (number, caller) in callers.enumerate() {
        let (options, next) = (options.clone(), next.clone());
        tasks.spawn_local(async move {
            let mut sections = Vec::new();
            while let Some(name) = options.name(number, &next, now() >= end) {
                let asked = now();
                let guard = caller.acquire(&name).await;
                let acquired = now();
                pass(options.section);
                let releasing = now();
                caller.release(guard).await;
                sections.push(Section { asked, acquired, releasing, released: now() });
                pass(options.pause);
            }
            sections
        });
    }
    tasks.join_all().await.concat()
}

/// Lets time pass. It blocks the thread: a timer of tokio is up to a millisecond late, and only one caller of a process has sections that take
/// time.
fn pass(time: Duration) {
    if !time.is_zero() {
        std::thread::sleep(time);
    }
}

/// Nanoseconds of the clock that all processes of a machine share.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
