//! What a store knows, counted.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use tenure::engine::LinkHealth;
use tenure::{Error, Kind, LockInfo, Tenure};
use tokio::time::Instant;

/// How many locks are asked for their waiters: those with the most.
const MOST_QUEUES: usize = 32;

/// The locks of a store, counted by prefix and kind.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) groups: BTreeMap<(String, &'static str), Group>,
    pub(super) unreadable: usize,
    /// There are more locks than were read.
    pub(super) is_truncated: bool,
    /// How long reading took.
    pub(super) time: Duration,
    pub(super) links: Vec<LinkHealth>,
}

/// Some locks.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Group {
    pub(super) locks: usize,
    pub(super) holders: usize,
    pub(super) waiters: usize,
    pub(super) oldest_hold: Duration,
    pub(super) oldest_wait: Duration,
}

impl Survey {
    pub(super) async fn of(
        tenure: &Tenure,
        prefixes: &[String],
        limit: usize,
    ) -> Result<Self, Error> {
        let started = Instant::now();
        let mut locks = tenure.list("", limit.saturating_add(1)).await?;
        let is_truncated = locks.len() > limit;
        locks.truncate(limit);
        locks.sort_by_key(|lock| std::cmp::Reverse(lock.waiting));
        let contended = locks.iter().take_while(|lock| lock.waiting > 0).take(MOST_QUEUES).count();
        for lock in &mut locks[..contended] {
            // A list has no waiters. A lock that became free meanwhile has none.
            if let Ok(inspected) = tenure.lock(lock.name.clone()).inspect().await {
                lock.waiters = inspected.waiters;
            }
        }
        let mut survey = Self { is_truncated, ..Self::default() };
        let now = now();
        locks.iter().for_each(|lock| survey.add(lock, prefixes, now));
        survey.time = started.elapsed();
        survey.links = tenure.health().links;
        Ok(survey)
    }

    fn add(&mut self, lock: &LockInfo, prefixes: &[String], now: SystemTime) {
        let Some(kind) = lock.kind else {
            self.unreadable += usize::from(lock.error.is_some());
            return;
        };
        let fitting = prefixes.iter().filter(|prefix| lock.name.as_str().starts_with(&***prefix));
        let prefix = fitting.max_by_key(|prefix| prefix.len()).cloned().unwrap_or_default();
        let group = self.groups.entry((prefix, label(kind))).or_default();
        let since = |at: SystemTime| now.duration_since(at).unwrap_or_default();
        group.locks += 1;
        group.holders += lock.holding;
        group.waiters += lock.waiting;
        let hold = lock.holders.iter().map(|holder| since(holder.since)).max().unwrap_or_default();
        let wait = lock.waiters.iter().map(|waiter| since(waiter.since)).max().unwrap_or_default();
        group.oldest_hold = group.oldest_hold.max(hold);
        group.oldest_wait = group.oldest_wait.max(wait);
    }
}

/// The label of a kind.
fn label(kind: Kind) -> &'static str {
    match kind {
        Kind::Mutex => "mutex",
        Kind::ReadWrite => "read_write",
        Kind::Semaphore => "semaphore",
        Kind::Latch => "latch",
        Kind::Barrier => "barrier",
        _ => "other",
    }
}

#[expect(clippy::disallowed_methods, reason = "holds and waits have calendar times")]
fn now() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn locks_are_counted_by_their_longest_prefix_and_kind() {
        let tenure = Tenure::memory().unwrap();
        let _orders = tenure.lock("orders/1").acquire().await.unwrap();
        let _urgent = tenure.lock("orders/urgent/2").acquire().await.unwrap();
        let _slots = tenure.semaphore("slots", 3).acquire().await.unwrap();
        let lock = tenure.lock("orders/1");
        let waiter = tokio::spawn(async move { lock.acquire().await.map(drop) });
        while tenure.lock("orders/1").inspect().await.unwrap().waiting == 0 {
            tokio::task::yield_now().await;
        }
        let prefixes = ["orders/".to_owned(), "orders/urgent/".to_owned()];
        let survey = Survey::of(&tenure, &prefixes, 10).await.unwrap();
        let counted = |prefix: &str, kind| {
            let group = &survey.groups[&(prefix.to_owned(), kind)];
            (group.locks, group.holders, group.waiters)
        };
        assert_eq!(counted("orders/", "mutex"), (1, 1, 1));
        assert_eq!(counted("orders/urgent/", "mutex"), (1, 1, 0));
        assert_eq!(counted("", "semaphore"), (1, 1, 0));
        assert!(!survey.is_truncated);
        assert!(Survey::of(&tenure, &[], 2).await.unwrap().is_truncated);
        waiter.abort();
    }
}
