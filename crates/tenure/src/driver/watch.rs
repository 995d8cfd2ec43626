//! Futures that wait for one event, and are all woken by it: the loss of a lock, or the end of all
//! work in the background.
//!
//! Wakers are foreign code: they are cloned, woken and dropped while nothing is locked, and the panic
//! of one keeps no other from being woken.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use crate::sync::lock;
use crate::{foreign, fork};

/// Those who wait.
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
    /// Wakes all who wait. The caller has made true what they wait for.
    pub(super) fn announce(&self) {
        let wakers = std::mem::take(&mut lock(&self.watchers).wakers);
        foreign::wake_all(wakers.into_values());
    }

    /// Resolves with what `look` finds. It looks at every poll, and after it will be woken.
    pub(super) fn until<T, L: Fn() -> Option<T>>(&self, look: L) -> Watching<'_, L> {
        Watching { watch: self, look, id: None, forks: fork::count() }
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
pub(super) struct Watching<'a, L> {
    watch: &'a Watch,
    look: L,
    id: Option<u64>,
    /// How often the process had been forked: in a child, the list may be locked for ever.
    forks: u64,
}

// Nothing in it is pinned.
impl<L> Unpin for Watching<'_, L> {}

impl<T, L: Fn() -> Option<T>> Future for Watching<'_, L> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if let Some(found) = (self.look)() {
            return Poll::Ready(found);
        }
        let (id, old) = self.watch.insert(self.id, context.waker().clone());
        self.id = Some(id);
        drop(old);
        // Either the announcement sees the waker, or we see what is announced: both lock the list.
        (self.look)().map_or(Poll::Pending, Poll::Ready)
    }
}

impl<L> Drop for Watching<'_, L> {
    fn drop(&mut self) {
        if self.forks == fork::count() {
            let waker = self.id.and_then(|id| self.watch.remove(id));
            drop(waker);
        }
    }
}
