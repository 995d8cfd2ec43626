//! Waiting: what lines ask the store, and what they do with its answers and wake-ups.
//!
//! Wake-ups are hints (I7). A line asks again when the holder's lease ends, if it is among the
//! first, and on a slow heartbeat in any case; asking again returns the grant it missed.

use std::sync::Arc;
use std::time::Duration;

use super::trampoline::Event;
use super::wait_group::{Closed, Outage, Put, Ticket, WaitGroupId, WaitGroups};
use super::{AFTER_ERROR, Driver, HEARTBEAT, Spec, foreign};
use crate::clock;
use crate::core::lease::{self, ClockSync};
use crate::core::moment::Moment;
use crate::engine::{Acquired, Grant, Standing};
use crate::error::{Error, StoreError};
use crate::guard::Guard;
use crate::owner::Entry;
use crate::sync::lock;

/// How many at the head of the queue ask again when the holder's lease ends.
const FIRST_FEW: u32 = 3;

/// Over how many milliseconds the questions of the others are spread.
const LATER_BY: u64 = 500;

/// What was so when the store was asked.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) sent: Moment,
    /// How many wake-ups had met no line.
    early_wakeups: u64,
    /// How many losses had met no hold.
    pub(super) strays: u64,
}

impl Driver {
    /// To be called right before the store is asked.
    pub(super) fn about_to_ask(&self) -> Asked {
        let early_wakeups = lock(&self.groups).early_wakeups;
        let strays = self.strays();
        Asked { sent: clock::now(), early_wakeups, strays }
    }

    /// A place behind other tasks of this process that wait for the same lock.
    pub(super) fn join(self: &Arc<Self>, spec: &Spec) -> Option<Ticket> {
        let mut groups = lock(&self.groups);
        let id = groups.joinable(spec)?;
        Some(groups.add_task(self, id))
    }

    /// A place at the head of a new line, for an entry that the store has queued.
    pub(super) fn stand(
        self: &Arc<Self>,
        spec: &Arc<Spec>,
        entry: Entry,
        standing: Standing,
        asked: Asked,
    ) -> Ticket {
        let mut groups = lock(&self.groups);
        if let Some(id) = groups.joinable(spec) {
            // Another task was faster, and one place in the store's queue is enough.
            let place = groups.add_task(self, id);
            drop(groups);
            self.abandon(spec.name.clone(), entry);
            return place;
        }
        let clock_sync = ClockSync { sent: asked.sent, store: standing.at };
        let id = groups.open(spec, entry, clock_sync, asked.strays);
        let place = groups.add_task(self, id);
        let may_have_missed = groups.early_wakeups != asked.early_wakeups;
        self.schedule(&mut groups, id, self.ask_after(standing));
        drop(groups);
        if may_have_missed {
            self.ask(id);
        }
        if self.has_ended() {
            // The line may have come too late to be closed with the others.
            self.close_all_lines();
        }
        place
    }

    /// The store handed the lock over to an entry.
    pub(super) fn granted(self: &Arc<Self>, entry: Entry, grant: Grant) {
        let received = clock::now();
        let mut groups = lock(&self.groups);
        let id = groups.by_entry.get(&entry).copied();
        let Some((id, group)) = id.and_then(|id| Some((id, groups.by_id.get(&id)?))) else {
            // Early, or given up. Early: `stand` sees the count. Given up: a cancel is on its way.
            groups.early_wakeups += 1;
            return;
        };
        let reckoned = group.clock_sync.deadline(grant.at, grant.lease, received);
        let strays = group.strays;
        drop(groups);
        match reckoned {
            Some(deadline) if deadline > received => self.serve(entry, grant, deadline, strays),
            // This process was stopped for longer than the claim: the store has passed it over, and
            // a guard would be lost before anyone has it. Or the wake-up is older than what the store
            // last said, or its clock has jumped: only the store knows what is granted now (I2, I4).
            _ => self.ask(id),
        }
    }

    /// Asks for an entry, if a line stands under it.
    pub(super) fn ask_as(self: &Arc<Self>, entry: Entry) {
        let mut groups = lock(&self.groups);
        let id = groups.by_entry.get(&entry).copied();
        if id.is_none() {
            // It may be early, as a grant may be.
            groups.early_wakeups += 1;
        }
        drop(groups);
        id.into_iter().for_each(|id| self.ask(id));
    }

    /// Gives a grant to the first task of its line, once: the same grant may be told twice.
    fn serve(self: &Arc<Self>, entry: Entry, grant: Grant, deadline: Moment, strays: u64) {
        let mut groups = lock(&self.groups);
        let Some(id) = groups.by_entry.remove(&entry) else {
            return;
        };
        let Some(group) = groups.by_id.get_mut(&id) else {
            return;
        };
        group.entry = None;
        group.outage = None;
        let spec = group.spec.clone();
        drop(groups);
        let guard = self.hold(&spec, entry, grant, deadline, strays);
        // Without a taker it is dropped, and so released.
        drop(self.give(id, guard));
        self.rejoin(id);
    }

    /// Sends a guard to the first task of a line that still wants it, or gives it back.
    pub(super) fn give(&self, id: WaitGroupId, mut guard: Guard) -> Option<Guard> {
        loop {
            let next = lock(&self.groups).by_id.get_mut(&id).and_then(|it| it.tasks.pop_front());
            let Some((_, task)) = next else {
                return Some(guard);
            };
            // It is there before its receiver is woken: a waker that panics has it.
            match foreign::call(|| task.send(Ok(guard))) {
                Some(Err(Ok(unwanted))) => guard = unwanted,
                _ => return None,
            }
        }
    }

    /// After a grant: the line joins the store's queue again for those who remain.
    fn rejoin(self: &Arc<Self>, id: WaitGroupId) {
        let mut groups = lock(&self.groups);
        let closed = groups.close_if_empty(id);
        let Some(group) = groups.by_id.get_mut(&id) else {
            drop(groups);
            self.clear(closed);
            return;
        };
        let entry = Entry::single();
        group.entry = Some(entry);
        groups.by_entry.insert(entry, id);
        drop(groups);
        self.ask(id);
    }

    /// Asks the store where a line stands; after what this thread is doing, if that has led here.
    pub(super) fn ask(self: &Arc<Self>, id: WaitGroupId) {
        self.react(Event::Ask(id));
    }

    pub(super) fn put_question(self: &Arc<Self>, id: WaitGroupId) {
        let mut groups = lock(&self.groups);
        let Some(group) = groups.by_id.get_mut(&id) else {
            return;
        };
        let spec = group.spec.clone();
        let Some(entry) = group.entry else { return };
        if !groups.start_asking(entry) {
            return;
        }
        drop(groups);
        let asked = self.about_to_ask();
        let answer = self.request_again(&spec, entry);
        match lock(&self.groups).put(entry) {
            Put::Wanted => {}
            Put::GivenUp => return self.abandon(spec.name.clone(), entry),
            Put::Releasing => return,
        }
        match answer.into_now() {
            Ok(result) => self.answered(id, &spec, entry, asked, result),
            Err(later) => {
                let driver = self.clone();
                self.spawn(async move {
                    let result = later.await;
                    driver.answered(id, &spec, entry, asked, result);
                });
            }
        }
    }

    fn answered(
        self: &Arc<Self>,
        id: WaitGroupId,
        spec: &Spec,
        entry: Entry,
        asked: Asked,
        result: Result<Acquired, StoreError>,
    ) {
        let mut groups = lock(&self.groups);
        let is_outdated = groups.stop_asking(entry);
        // A wake-up may have been faster, or all have left: then a release or a cancel has followed.
        let group = groups.by_id.get_mut(&id).filter(|group| group.entry == Some(entry));
        let Some(group) = group else { return };
        let name = spec.name.clone();
        match result {
            Ok(Acquired::Granted(grant)) => {
                drop(groups);
                let deadline = lease::deadline(asked.sent, grant.lease);
                self.serve(entry, grant, deadline, asked.strays);
            }
            Ok(Acquired::Queued(standing)) => {
                group.clock_sync = ClockSync { sent: asked.sent, store: standing.at };
                group.strays = asked.strays;
                group.outage = None;
                self.schedule(&mut groups, id, self.ask_after(standing));
                if is_outdated {
                    drop(groups);
                    self.ask(id);
                }
            }
            Ok(Acquired::Busy) => self.schedule(&mut groups, id, HEARTBEAT / 3),
            Ok(Acquired::Mismatch { kind, limit }) => {
                let closed = groups.close(id);
                drop(groups);
                self.fail(closed, &Error::Mismatch { name, kind, limit });
            }
            Ok(Acquired::Upgrade { held }) => {
                let closed = groups.close(id);
                drop(groups);
                self.fail(closed, &Error::Upgrade { name, held });
            }
            Err(trouble) => match group.endure(trouble, self.patience) {
                Ok(delay) => self.schedule(&mut groups, id, delay),
                Err(trouble) => {
                    let closed = groups.close(id);
                    drop(groups);
                    self.fail(closed, &Error::from_store(&name, "acquire", trouble));
                }
            },
        }
    }

    /// Closes every line: nobody is left to serve them.
    pub(super) fn close_all_lines(self: &Arc<Self>) {
        let mut groups = lock(&self.groups);
        let ids: Vec<_> = groups.by_id.keys().copied().collect();
        let closed: Vec<_> = ids.into_iter().map(|id| groups.close(id)).collect();
        drop(groups);
        closed.into_iter().for_each(|closed| self.fail(closed, &Error::Ended));
    }

    /// Tells every task of a closed line why it waits in vain.
    fn fail(self: &Arc<Self>, mut closed: Option<Closed>, error: &Error) {
        let tasks = closed.as_mut().map(|closed| std::mem::take(&mut closed.tasks));
        for (_, task) in tasks.into_iter().flatten() {
            foreign::call(|| drop(task.send(Err(error.clone()))));
        }
        self.clear(closed);
    }

    /// Takes a closed line out of the agenda and out of the store's queue.
    pub(super) fn clear(self: &Arc<Self>, closed: Option<Closed>) {
        let Some(closed) = closed else { return };
        if let Some(key) = closed.alarm {
            self.agenda.remove(key);
        }
        if let Some((name, entry)) = closed.abandon {
            self.abandon(name, entry);
        }
    }

    /// Sets the one alarm of a line.
    fn schedule(&self, groups: &mut WaitGroups, id: WaitGroupId, delay: Duration) {
        let Some(group) = groups.by_id.get_mut(&id) else {
            return;
        };
        let at = clock::now() + delay;
        group.alarm = Some(self.agenda.ask_at(group.alarm, at, id));
    }

    /// When to ask again, if no wake-up comes: the heartbeat thrice in its time, and for the first
    /// few also when the present holder's lease ends, or one's that was handed the lock meanwhile
    /// and never knew. The others ask a little later, spread over time: all that are ahead may be dead.
    /// Where nobody holds anything, at a latch or a barrier, there is no such moment, and asking at once
    /// would go on for ever.
    fn ask_after(&self, standing: Standing) -> Duration {
        let heartbeat = HEARTBEAT / 3;
        if standing.free_in.is_zero() {
            return heartbeat;
        }
        if standing.ahead >= FIRST_FEW {
            let spread = crate::owner::unique_number() % LATER_BY;
            let later = Duration::from_millis(100 * u64::from(standing.ahead) + spread);
            return heartbeat.min(standing.free_in + later);
        }
        let claim = self.claim().unwrap_or(heartbeat);
        heartbeat.min(claim).min(standing.free_in)
    }
}

impl super::wait_group::WaitGroup {
    /// StoreError: when to ask again, or the trouble itself when patience is at an end.
    fn endure(&mut self, trouble: StoreError, patience: Duration) -> Result<Duration, StoreError> {
        let now = clock::now();
        let outage = self.outage.get_or_insert_with(|| Outage {
            since: now,
            delays: AFTER_ERROR.delays(now.as_micros()),
            last: trouble.clone(),
        });
        // The place in the queue may be there already, so what we do not know stays unknown.
        outage.last = trouble.after(Some(&outage.last));
        if now.since(outage.since) < patience && !outage.last.is_lasting() {
            Ok(outage.delays.next())
        } else {
            Err(outage.last.clone())
        }
    }
}
