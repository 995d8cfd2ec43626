//! Waiting: what wait groups ask the store, and how they handle its answers and wake-ups.
//!
//! Wake-ups are hints (I7). A group asks again when the holder's lease ends, if it is among the
//! first of the queue, and on a slow heartbeat in any case; asking again returns the grant it missed.

use std::sync::Arc;
use std::time::Duration;

use super::flight::unproposed;
use super::pause::Returned;
use super::trampoline::Event;
use super::wait_group::{Basis, Closed, Next, Opened, Question, Sent, Ticket, WaitGroupId};
use super::{Driver, HEARTBEAT, Spec};
use crate::clock;
use crate::core::lease::{self, ClockSync};
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::engine::{Acquired, Grant, Standing};
use crate::error::{Error, StoreError};
use crate::owner::Entry;

/// How many entries at the head of the queue ask again when the holder's lease ends.
const FIRST_FEW: u32 = 3;

/// Over how many milliseconds the questions of the others are spread.
const LATER_BY: u64 = 500;

/// The state when the store was asked.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) sent: Moment,
    /// How many wake-ups had matched no group.
    early_wakeups: u64,
    /// How many losses had matched no hold.
    pub(super) losses: u64,
    /// How often the store had returned.
    pub(super) returned: Returned,
}

impl Asked {
    fn basis(self, standing: Standing) -> Basis {
        let clock_sync = ClockSync { sent: self.sent, store: standing.at };
        Basis { clock_sync, losses: self.losses }
    }
}

impl Driver {
    /// To be called right before the store is asked.
    pub(super) fn about_to_ask(&self) -> Asked {
        let early_wakeups = self.groups.early_wakeups();
        let losses = self.agenda.losses();
        let returned = self.returned();
        Asked { sent: clock::now(), early_wakeups, losses, returned }
    }

    /// A ticket behind other tasks of this process that wait for the same lock.
    pub(super) fn join(self: &Arc<Self>, spec: &Spec) -> Option<Ticket> {
        Some(Ticket::new(self, self.groups.join(spec)?))
    }

    /// A ticket at the head of a new group, for an entry that the store has queued.
    pub(super) fn open_group(
        self: &Arc<Self>,
        spec: &Arc<Spec>,
        entry: Entry,
        standing: Standing,
        asked: Asked,
    ) -> Ticket {
        let delay = self.ask_after(standing);
        let (basis, early_wakeups) = (asked.basis(standing), asked.early_wakeups);
        match self.groups.open(spec, entry, basis, early_wakeups, delay, &self.agenda) {
            Opened::Joined(member) => {
                let ticket = Ticket::new(self, member);
                // One entry in the store's queue is enough for the group.
                self.abandon(spec.name.clone(), entry);
                ticket
            }
            Opened::New { member, is_outdated } => {
                let id = member.group;
                let ticket = Ticket::new(self, member);
                if is_outdated {
                    self.ask(id);
                }
                if self.has_ended() {
                    // The group may have been opened too late to be closed with the others.
                    self.close_all_groups();
                }
                ticket
            }
        }
    }

    /// The store handed the lock over to an entry.
    pub(super) fn granted(self: &Arc<Self>, entry: Entry, grant: Grant) {
        let received = clock::now();
        let Some((id, basis)) = self.groups.woken(entry) else { return };
        match basis.clock_sync.deadline(grant.at, grant.lease, received) {
            Some(deadline) if deadline > received => {
                self.serve(entry, grant, deadline, basis.losses);
            }
            // This process was stopped for longer than the claim lease: the store has skipped it, and
            // its guard would be lost at once. Or the wake-up is older than the store's last answer, or
            // its clock has jumped: only the store knows what is granted now (I2, I4).
            _ => self.ask(id),
        }
    }

    /// Asks for an entry, if a group is queued under it.
    pub(super) fn ask_as(self: &Arc<Self>, entry: Entry) {
        if let Some((id, _)) = self.groups.woken(entry) {
            self.ask(id);
        }
    }

    /// A lock may be free: its groups ask, the first one first.
    pub(super) fn freed(self: &Arc<Self>, name: &LockName) {
        self.groups.freed(name).into_iter().for_each(|group| self.ask(group));
    }

    /// Wake-ups may have been missed: every group asks, and every hold is renewed, now, if it is affected.
    pub(super) fn resync(self: &Arc<Self>, is_affected: impl Fn(&LockName) -> bool) {
        self.groups.missed_wakeups(&is_affected).into_iter().for_each(|group| self.ask(group));
        let mut holds = self.agenda.holds();
        holds.retain(|held| is_affected(&held.name));
        self.tend(holds, clock::now());
    }

    /// Gives a grant to the first task of its group.
    fn serve(self: &Arc<Self>, entry: Entry, grant: Grant, deadline: Moment, losses: u64) {
        let Some((id, spec)) = self.groups.take_grant(entry) else { return };
        let guard = self.hold(&spec, entry, grant, deadline, losses);
        // If no task wants it, it is dropped, and so released.
        drop(self.groups.give(id, guard));
        match self.groups.renew_entry(id) {
            Ok(()) => self.ask(id),
            Err(closed) => self.clear(closed),
        }
    }

    /// Asks the store about a group's entry; if this thread is handling an event, after that one.
    pub(super) fn ask(self: &Arc<Self>, id: WaitGroupId) {
        self.react(Event::Ask(id));
    }

    pub(super) fn put_question(self: &Arc<Self>, id: WaitGroupId) {
        let Some(question) = self.groups.start_asking(id) else { return };
        let asked = self.about_to_ask();
        let answer = self.request_again(&question.spec, question.entry);
        match self.groups.sent(question.entry) {
            Sent::Wanted => {}
            Sent::GivenUp => return self.abandon(question.spec.name.clone(), question.entry),
            Sent::Releasing => return,
        }
        match answer.into_now() {
            Ok(result) => self.answered(&question, asked, result),
            Err(later) => {
                let driver = self.clone();
                self.spawn(async move {
                    let result = later.await;
                    driver.answered(&question, asked, result);
                });
            }
        }
    }

    fn answered(
        self: &Arc<Self>,
        question: &Question,
        asked: Asked,
        result: Result<Acquired, StoreError>,
    ) {
        let name = &question.spec.name;
        match result {
            Ok(Acquired::Granted(grant)) => match self.groups.answered_granted(question) {
                Next::Serve => {
                    let deadline = lease::deadline(asked.sent, grant.lease);
                    self.serve(question.entry, grant, deadline, asked.losses);
                }
                next => self.act_on(next, question),
            },
            Ok(Acquired::Queued(standing)) => {
                let (basis, delay) = (asked.basis(standing), self.ask_after(standing));
                let next = self.groups.answered_queued(question, basis, delay, &self.agenda);
                self.act_on(next, question);
            }
            Ok(Acquired::Busy) => {
                self.groups.answered_busy(question, HEARTBEAT / 3, &self.agenda);
            }
            Ok(Acquired::Mismatch { kind, limit }) => {
                let error = Error::Mismatch { name: name.clone(), kind, limit };
                self.fail(self.groups.answered_refused(question), &error);
            }
            Ok(Acquired::Upgrade { held }) => {
                let error = Error::Upgrade { name: name.clone(), held };
                self.fail(self.groups.answered_refused(question), &error);
            }
            Ok(Acquired::Outdated { .. } | Acquired::Ahead { .. }) => {
                self.fail(self.groups.answered_refused(question), &unproposed(name));
            }
            Err(error) => {
                let Self { groups, agenda, settings, .. } = &**self;
                let failed = groups.answered_error(question, error, settings.patience, agenda);
                if let Some((closed, error)) = failed {
                    self.fail(Some(closed), &Error::from_store(name, "acquire", error));
                }
            }
        }
    }

    /// Does what follows from an answer without a grant to serve.
    fn act_on(self: &Arc<Self>, next: Next, question: &Question) {
        match next {
            Next::Ask => self.ask(question.group),
            // Once more, in case that an engine has performed the question after the release or the cancel (I7).
            Next::Undo => self.abandon(question.spec.name.clone(), question.entry),
            Next::Serve | Next::Wait => {}
        }
    }

    /// Closes every group: no thread is left to serve them.
    pub(super) fn close_all_groups(self: &Arc<Self>) {
        let closed = self.groups.close_all();
        closed.into_iter().for_each(|closed| self.fail(Some(closed), &Error::Ended));
    }

    /// Sends an error to every task of a closed group.
    fn fail(self: &Arc<Self>, mut closed: Option<Closed>, error: &Error) {
        if let Some(closed) = &mut closed {
            closed.fail(error);
        }
        self.clear(closed);
    }

    /// Removes a closed group from the agenda and from the store's queue.
    pub(super) fn clear(self: &Arc<Self>, closed: Option<Closed>) {
        let Some(closed) = closed else { return };
        if let Some(key) = closed.alarm {
            self.agenda.remove(key);
        }
        if let Some((name, entry)) = closed.abandon {
            self.abandon(name, entry);
        }
    }

    /// When to ask again if no wake-up comes: three times per heartbeat, and the first few entries of the
    /// queue also when the present holder's lease ends, or the claim lease of a waiter that was handed
    /// the lock meanwhile and never learned of it. The others ask a little later, spread over time: all
    /// entries ahead may be dead. At a latch or a barrier there is no holder and so no such moment, and
    /// asking at once would never end.
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
