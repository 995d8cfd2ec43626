//! A lock that this process holds: the state that its guard and the driver share.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::Driver;
use super::spec::{HoldOptions, Replication};
use super::watch::Watch;
use crate::core::fence::Fence;
use crate::core::lease::Lease;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::engine::Replicas;
use crate::error::{Lost, WhyLost};
use crate::events::{Event, EventKind};
use crate::group::Group;
use crate::info::About;
use crate::owner::Entry;

/// One hold. Its state changes only under the agenda's mutex; any thread may read it.
///
/// There may be hundreds of thousands of these, so the fields are few and small.
pub(crate) struct Held {
    pub(super) driver: Arc<Driver>,
    pub(crate) name: LockName,
    pub(crate) entry: Entry,
    /// The fence of the first turn; each local hand-over takes the next.
    first_fence: Fence,
    pub(super) about: Arc<About>,
    /// Since when this process holds it, through all local hand-overs.
    pub(super) process_since: Moment,
    pub(super) lease: Lease,
    /// The least holding time in milliseconds, zero for none.
    pub(super) at_least: u32,
    /// How much later the current turn began, in microseconds.
    later: AtomicU32,
    /// The current turn: counts the local hand-overs.
    turn: AtomicU8,
    origin: Origin,
    /// The group under which metrics count it.
    pub(super) group: Group,
    /// It was logged that it is held for long.
    is_long: AtomicBool,
    deadline: AtomicU64,
    alarm: AtomicU64,
    state: AtomicU8,
    renewing: AtomicU8,
    // Most holds have none.
    confirmation: Option<Box<Confirmation>>,
    // Made by the first task that waits for the loss; most holders have none.
    watch: OnceLock<Box<Watch>>,
}

/// Which replicas must have a hold, and whether they have confirmed it.
struct Confirmation {
    replication: Replication,
    is_confirmed: AtomicBool,
}

/// How the lease is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Renewing {
    /// Fixed lease: it ends when it ends.
    Never = 0,
    /// Fixed lease, handed over with a claim lease that must be confirmed.
    Once = 1,
    /// Watchdog.
    Always = 2,
}

/// How many local hand-overs the reserved fences allow, and whether the lock came by a hand-over of the store's
/// queue. In one byte: one more would make each hold larger by eight.
#[derive(Clone, Copy)]
struct Origin(u8);

impl Origin {
    const HANDED_OVER: u8 = 0x80;

    fn new(passes: u8, was_handed_over: bool) -> Self {
        let passes = passes.min(!Self::HANDED_OVER);
        Self(if was_handed_over { passes | Self::HANDED_OVER } else { passes })
    }
}

const HELD: u8 = 0;
const LEASE_ENDED: u8 = 1;
const NOT_HELD: u8 = 2;
/// Released, passed on or detached: the guard does not hold the lock any more.
const FINISHED: u8 = 3;
/// The driver has ended.
const ENDED: u8 = 4;

/// No alarm is set.
const NO_ALARM: u64 = u64::MAX;

/// The properties of a new hold.
pub(super) struct Terms {
    pub(super) name: LockName,
    pub(super) entry: Entry,
    pub(super) fence: Fence,
    pub(super) about: Arc<About>,
    pub(super) since: Moment,
    pub(super) lease: Lease,
    pub(super) at_least: u32,
    pub(super) passes: u8,
    pub(super) group: Group,
    pub(super) was_handed_over: bool,
    pub(super) deadline: Moment,
    pub(super) renewing: Renewing,
    pub(super) replication: Option<Replication>,
}

impl Held {
    pub(super) fn new(driver: Arc<Driver>, terms: Terms) -> Self {
        Self {
            driver,
            name: terms.name,
            entry: terms.entry,
            first_fence: terms.fence,
            about: terms.about,
            process_since: terms.since,
            lease: terms.lease,
            at_least: terms.at_least,
            later: AtomicU32::new(0),
            turn: AtomicU8::new(0),
            origin: Origin::new(terms.passes, terms.was_handed_over),
            group: terms.group,
            is_long: AtomicBool::new(false),
            deadline: AtomicU64::new(terms.deadline.as_micros()),
            alarm: AtomicU64::new(NO_ALARM),
            state: AtomicU8::new(HELD),
            renewing: AtomicU8::new(terms.renewing as u8),
            confirmation: terms.replication.map(|replication| {
                Box::new(Confirmation { replication, is_confirmed: AtomicBool::new(false) })
            }),
            watch: OnceLock::new(),
        }
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    pub(crate) fn lease(&self) -> Lease {
        self.lease
    }

    pub(super) fn options(&self) -> HoldOptions<'_> {
        let replication = self.confirmation.as_ref().map(|it| it.replication);
        HoldOptions { lease: self.lease, about: &self.about, replication }
    }

    /// Whether all replicas that must have it have confirmed it.
    pub(super) fn is_confirmed(&self) -> bool {
        let confirmation = self.confirmation.as_ref();
        confirmation.is_none_or(|it| it.is_confirmed.load(Ordering::Acquire))
    }

    /// Whether so many replicas have confirmed it.
    pub(super) fn is_confirmed_by(&self, count: u32) -> bool {
        let confirmation = self.confirmation.as_ref();
        confirmation.is_some_and(|it| it.replication.replicas.count() >= count)
            && self.is_confirmed()
    }

    /// So many replicas have confirmed it.
    pub(super) fn set_confirmed_by(&self, count: u32) {
        let confirmation = self.confirmation.as_ref();
        if let Some(it) = confirmation.filter(|it| it.replication.replicas.count() <= count) {
            it.is_confirmed.store(true, Ordering::Release);
        }
    }

    /// The replicas that must have its renewals.
    pub(super) fn replicas_of_renewals(&self) -> Option<Replicas> {
        let replication = self.confirmation.as_ref()?.replication;
        replication.is_for_renewals.then_some(replication.replicas)
    }

    /// How many local hand-overs the reserved fences allow.
    pub(super) fn passes(&self) -> u8 {
        self.origin.0 & !Origin::HANDED_OVER
    }

    /// Whether it came by a hand-over of the store's queue.
    pub(super) fn was_handed_over(&self) -> bool {
        self.origin.0 & Origin::HANDED_OVER != 0
    }

    /// Reports what happened to it, if there is a reader.
    pub(crate) fn report(&self, turn: u8, kind: EventKind) {
        self.driver.settings.events.send(|| {
            let (name, owner, fence) = (self.name.clone(), self.entry.owner, self.fence(turn));
            Event { name, owner, fence, kind }
        });
    }

    /// Whether it is held for longer than `after`, and this is the first call that finds so.
    pub(super) fn becomes_long(&self, now: Moment, after: Option<Duration>) -> bool {
        after.is_some_and(|after| now.since(self.since()) >= after)
            && !self.is_long.swap(true, Ordering::Relaxed)
    }

    /// When the current turn began.
    pub(super) fn since(&self) -> Moment {
        self.process_since + Duration::from_micros(self.later.load(Ordering::Relaxed).into())
    }

    /// The current turn.
    pub(super) fn turn(&self) -> u8 {
        self.turn.load(Ordering::Acquire)
    }

    /// The fence of a turn.
    pub(crate) fn fence(&self, turn: u8) -> Fence {
        self.first_fence.later_by(turn)
    }

    /// Starts the next turn. Only the holder of the current one may call this.
    pub(super) fn next_turn(&self, now: Moment) -> u8 {
        let later = now.since(self.process_since).as_micros();
        // Local hand-overs end after milliseconds, so it always fits.
        self.later.store(u32::try_from(later).unwrap_or(0), Ordering::Relaxed);
        self.turn.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_micros(self.deadline.load(Ordering::Acquire))
    }

    /// Why the lock is lost for the holder of a turn; none if it was passed on, or is held.
    pub(crate) fn lost_for(&self, turn: u8, now: Moment) -> Option<Lost> {
        if turn == self.turn() { self.lost(now) } else { None }
    }

    /// Why the lock is lost at `now`; none while it is held. Checks the clock too: a process that was
    /// stopped past its lease learns of the loss before any thread could report it (I9).
    pub(crate) fn lost(&self, now: Moment) -> Option<Lost> {
        let why = match self.state.load(Ordering::Acquire) {
            _ if self.driver.is_inherited() => WhyLost::Forked,
            ENDED => WhyLost::Ended,
            LEASE_ENDED => WhyLost::LeaseEnded,
            NOT_HELD => WhyLost::NotHeld,
            HELD if now >= self.deadline() => WhyLost::LeaseEnded,
            _ => return None,
        };
        Some(Lost { name: self.name.clone(), why })
    }

    /// Resolves when the lock is lost for the holder of a turn; never, if it is released or passed on
    /// before.
    pub(crate) async fn until_lost(&self, turn: u8) -> Lost {
        let watch = self.watch.get_or_init(Box::default);
        // Pairs with `announce`: either it sees the watch, or this thread sees the state.
        fence(Ordering::SeqCst);
        // Not by the clock: the driver checks it, and announces in time.
        watch.until(|| self.lost_for(turn, Moment::ZERO)).await
    }

    pub(super) fn is_held(&self) -> bool {
        self.state.load(Ordering::Acquire) == HELD
    }

    pub(super) fn renewing(&self) -> Renewing {
        match self.renewing.load(Ordering::Acquire) {
            0 => Renewing::Never,
            1 => Renewing::Once,
            _ => Renewing::Always,
        }
    }

    /// Whether its lease will be renewed, always or once more.
    pub(crate) fn is_kept_up(&self) -> bool {
        self.renewing() != Renewing::Never
    }

    pub(super) fn set_renewing(&self, renewing: Renewing) {
        self.renewing.store(renewing as u8, Ordering::Release);
    }

    /// A renewal was confirmed. It never makes the deadline earlier.
    pub(super) fn extend(&self, deadline: Moment) {
        self.deadline.fetch_max(deadline.as_micros(), Ordering::AcqRel);
    }

    /// From held to lost; false if it was not held. Only under the agenda's mutex.
    pub(super) fn set_lost(&self, why: WhyLost) -> bool {
        let state = match why {
            WhyLost::LeaseEnded => LEASE_ENDED,
            WhyLost::Ended => ENDED,
            _ => NOT_HELD,
        };
        let held = self.is_held();
        if held {
            self.state.store(state, Ordering::Release);
        }
        held
    }

    /// From held to finished; false if it was lost or finished before. Only under the agenda's mutex.
    pub(super) fn set_finished(&self) -> bool {
        self.state.swap(FINISHED, Ordering::AcqRel) == HELD
    }

    /// Wakes every task that waits for the loss.
    pub(super) fn announce(&self) {
        fence(Ordering::SeqCst);
        if let Some(watch) = self.watch.get() {
            watch.announce();
        }
    }

    /// How long the lock must stay occupied after a release at `now`.
    pub(super) fn linger(&self, now: Moment) -> Duration {
        Duration::from_millis(self.at_least.into()).saturating_sub(now.since(self.since()))
    }

    pub(super) fn set_alarm(&self, at: Moment) {
        self.alarm.store(at.as_micros(), Ordering::Relaxed);
    }

    pub(super) fn take_alarm(&self) -> Option<Moment> {
        let at = self.alarm.swap(NO_ALARM, Ordering::Relaxed);
        (at != NO_ALARM).then(|| Moment::from_micros(at))
    }
}
