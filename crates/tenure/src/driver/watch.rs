//! Futures that wait for one event, and are all woken by it: the loss of a lock, or the end of all
//! background tasks.
//!
//! Wakers are foreign code: they are cloned, woken and dropped while no mutex is held, and if one panics
//! the others are still woken.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use crate::sync::lock;
use crate::{foreign, fork};

/// The tasks that wait for one event.
#[derive(Default)]
pub(super) struct Watch {
    watchers: Mutex<Watchers>,
}

#[derive(Default)]
struct Watchers {
    wakers: HashMap<u64, Waker>,
    last_id: u64,
}

impl Watch {
    /// Wakes all waiting tasks. The caller has made their condition true.
    pub(super) fn announce(&self) {
        let wakers = std::mem::take(&mut lock(&self.watchers).wakers);
        foreign::wake_all(wakers.into_values());
    }

    /// Resolves when `check` returns a value. It is called at every poll, and again after the waker is
    /// registered.
    pub(super) fn until<T, C: Fn() -> Option<T>>(&self, check: C) -> Watching<'_, C> {
        Watching { watch: self, check, id: None, forks: fork::count() }
    }

    fn insert(&self, id: Option<u64>, waker: Waker) -> (u64, Option<Waker>) {
        let mut watchers = lock(&self.watchers);
        let id = id.unwrap_or_else(|| {
            watchers.last_id += 1;
            watchers.last_id
        });
        let old = watchers.wakers.insert(id, waker);
        (id, old)
    }

    fn remove(&self, id: u64) -> Option<Waker> {
        lock(&self.watchers).wakers.remove(&id)
    }
}

/// Waits for an event.
pub(super) struct Watching<'a, C> {
    watch: &'a Watch,
    check: C,
    id: Option<u64>,
    /// How often the process had been forked: in a child, the mutex may be locked forever.
    forks: u64,
}

// Nothing in it is pinned.
impl<C> Unpin for Watching<'_, C> {}

impl<T, C: Fn() -> Option<T>> Future for Watching<'_, C> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if let Some(found) = (self.check)() {
            return Poll::Ready(found);
        }
        let (id, old) = self.watch.insert(self.id, context.waker().clone());
        self.id = Some(id);
        drop(old);
        // Either `announce` sees the waker, or this check sees the event: both lock the list.
        (self.check)().map_or(Poll::Pending, Poll::Ready)
    }
}

impl<C> Drop for Watching<'_, C> {
    fn drop(&mut self) {
        if self.forks == fork::count() {
            let waker = self.id.and_then(|id| self.watch.remove(id));
            drop(waker);
        }
    }
}
