//! Clients that take locks while something happens to the cluster, and a check of what they saw.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::{Error, Fence, Tenure};
use tokio::task::JoinSet;

use super::fixture::{now, pass};

/// What is known about one name.
#[derive(Default)]
struct Seen {
    inside: AtomicU32,
    last: Mutex<Option<Fence>>,
}

/// Tasks that take locks until they are stopped.
pub(crate) struct Load {
    tasks: JoinSet<()>,
    state: Arc<State>,
}

struct State {
    names: HashMap<String, Seen>,
    is_over: AtomicBool,
    sections: AtomicU64,
    failures: AtomicU64,
    longest: AtomicU64,
    /// Two holders at once are a failure, unless the later one knows that its lock is lost.
    overlaps: AtomicU64,
}

/// What the clients saw.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) sections: u64,
    /// Attempts that ended with an error.
    pub(crate) failures: u64,
    /// Two holders at once, neither of whom knew of a loss.
    pub(crate) overlaps: u64,
    pub(crate) longest_wait: Duration,
}

impl Load {
    /// Starts `each` tasks per client and name.
    pub(crate) fn start(clients: &[Tenure], names: &[String], each: usize) -> Self {
        let state = Arc::new(State {
            names: names.iter().map(|name| (name.clone(), Seen::default())).collect(),
            is_over: AtomicBool::new(false),
            sections: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            longest: AtomicU64::new(0),
            overlaps: AtomicU64::new(0),
        });
        let mut tasks = JoinSet::new();
        for client in clients {
            for name in names {
                for _ in 0..each {
                    tasks.spawn(work(client.clone(), name.clone(), state.clone()));
                }
            }
        }
        Self { tasks, state }
    }

    /// Waits until some more sections were entered.
    pub(crate) async fn more(&self, sections: u64) {
        let goal = self.state.sections.load(Ordering::Relaxed) + sections;
        super::fixture::until("the clients go on", async || {
            self.state.sections.load(Ordering::Relaxed) >= goal
        })
        .await;
    }

    pub(crate) async fn stop(mut self) -> Report {
        self.state.is_over.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        let read = |value: &AtomicU64| value.load(Ordering::Relaxed);
        Report {
            sections: read(&self.state.sections),
            failures: read(&self.state.failures),
            overlaps: read(&self.state.overlaps),
            longest_wait: Duration::from_micros(read(&self.state.longest)),
        }
    }
}

async fn work(client: Tenure, name: String, state: Arc<State>) {
    while !state.is_over.load(Ordering::Relaxed) {
        let asked = now();
        let guard = match client.lock(&name).fair().acquire().await {
            Ok(guard) => guard,
            Err(Error::Unreachable { .. } | Error::Unknown { .. }) => {
                state.failures.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            Err(error) => panic!("{name}: {error}"),
        };
        let waited = u64::try_from(asked.elapsed().as_micros()).unwrap();
        state.longest.fetch_max(waited, Ordering::Relaxed);
        let seen = &state.names[&name];
        let others = seen.inside.fetch_add(1, Ordering::SeqCst);
        check_fence(seen, &guard);
        pass(Duration::from_micros(200)).await;
        let overlap = others > 0 && !guard.is_lost();
        state.overlaps.fetch_add(u64::from(overlap), Ordering::Relaxed);
        seen.inside.fetch_sub(1, Ordering::SeqCst);
        state.sections.fetch_add(1, Ordering::Relaxed);
        if guard.release().await.is_err() {
            state.failures.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// I4: fences grow, whatever happens. A holder that was delayed on its way here, and has lost its lock meanwhile, is late.
fn check_fence(seen: &Seen, guard: &tenure::Guard) {
    let mut last = seen.last.lock().unwrap();
    let is_later = last.is_none_or(|last| guard.fence() > last);
    assert!(is_later || guard.is_lost(), "{:?} after {last:?}", guard.fence());
    *last = Some(guard.fence()).max(*last);
}
