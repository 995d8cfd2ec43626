//! One node: its engine, and what this client knows about it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::absent::Absent;
use super::arrival::on_arrival;
use super::left::{Ending, Fate, Left, Leftovers};
use super::wakeups::NodeListener;
use tokio::sync::Notify;

use crate::clock;
use crate::core::clock_step::ClockStep;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::core::quorum::{Calendar, Leap, Reliability};
use crate::engine::{Answer, CancelRequest, Engine, ReleaseOutcome, ReleaseRequest};
use crate::error::StoreError;
use crate::owner::Entry;
use crate::sync::lock;
use crate::telemetry;

/// A calendar that has moved this far is compared with the others at once, and else from time to time.
const NOTEWORTHY: Duration = Duration::from_millis(50);

/// One node.
pub(super) struct Node {
    admitted: Mutex<Admitted>,
    /// Some operation found that the server has lost its marker.
    is_suspect: AtomicBool,
    listener: Arc<NodeListener>,
    /// Its address, for people.
    pub(super) name: Arc<str>,
    reliability: Mutex<Reliability>,
    /// Its clock is behind that of the others.
    is_behind: AtomicBool,
    /// Its clock was set forward, or is not that of the others.
    stepped: Arc<Notify>,
    /// How far its calendar was ahead of our clock when it was looked at last.
    calendar: Mutex<Option<Calendar>>,
    /// It must have been looked at again by then: a client that was stopped may have missed that its address leads to another
    /// server. None if no task looks at it.
    look_again: Mutex<Option<Moment>>,
    left: Leftovers,
}

/// The engine of a node.
struct Admitted {
    engine: Arc<dyn Engine>,
    /// The process that votes; none if it has no vote.
    run_id: Option<String>,
    /// Why it has no vote.
    why: Option<StoreError>,
}

impl Node {
    pub(super) fn new(
        engine: Arc<dyn Engine>,
        name: Arc<str>,
        listener: Arc<NodeListener>,
    ) -> Self {
        listen(&engine, &listener);
        Self {
            admitted: Mutex::new(Admitted { engine, run_id: None, why: None }),
            is_suspect: AtomicBool::new(false),
            listener,
            name,
            reliability: Mutex::default(),
            is_behind: AtomicBool::new(false),
            stepped: Arc::default(),
            calendar: Mutex::default(),
            look_again: Mutex::default(),
            left: Leftovers::default(),
        }
    }

    pub(super) fn engine(&self) -> Arc<dyn Engine> {
        lock(&self.admitted).engine.clone()
    }

    /// This process of it votes from now on.
    pub(super) fn admit(&self, engine: Arc<dyn Engine>, run_id: &str) {
        listen(&engine, &self.listener);
        self.is_suspect.store(false, Ordering::Release);
        let admitted = Admitted { engine, run_id: Some(run_id.to_owned()), why: None };
        // Dropped without the mutex: it answers its operations.
        let before = std::mem::replace(&mut *lock(&self.admitted), admitted);
        drop(before);
    }

    /// It does not vote any more.
    pub(super) fn expel(&self, absent: Absent) {
        let why = Some(absent.0.clone());
        let admitted = Admitted { engine: Arc::new(absent), run_id: None, why };
        let before = std::mem::replace(&mut *lock(&self.admitted), admitted);
        drop(before);
    }

    pub(super) fn is_admitted(&self) -> bool {
        lock(&self.admitted).run_id.is_some()
    }

    /// Whether this process votes, and has its marker as far as is known.
    pub(super) fn is_admitted_as(&self, run_id: &str) -> bool {
        let is_suspect = self.is_suspect.swap(false, Ordering::AcqRel);
        !is_suspect && lock(&self.admitted).run_id.as_deref() == Some(run_id)
    }

    /// Why it has no vote.
    pub(super) fn why_absent(&self) -> Option<StoreError> {
        lock(&self.admitted).why.clone()
    }

    /// Whether it votes, and all its connections are up.
    pub(super) fn is_well(&self) -> bool {
        let is_suspect = self.is_suspect.load(Ordering::Acquire);
        self.is_admitted() && !is_suspect && self.engine().health().is_well()
    }

    /// Notes an error: of a server that has lost its marker, for example.
    pub(super) fn note_error(&self, error: &StoreError) {
        if error.is_quarantined() {
            self.is_suspect.store(true, Ordering::Release);
        }
    }

    /// Whether its answers count now.
    pub(super) fn votes(&self) -> bool {
        let now = clock::now();
        let is_seen = lock(&self.look_again).is_none_or(|again| now < again);
        is_seen && lock(&self.reliability).votes(now)
    }

    /// Whether the times in its messages can be compared with those in its answers.
    pub(super) fn trusts_stamps(&self) -> bool {
        lock(&self.reliability).trusts_stamps(clock::now())
    }

    /// It was looked at, at this moment, and does not vote if it is not looked at again in time.
    pub(super) fn look_again_within(&self, seen: Moment, time: Duration) {
        *lock(&self.look_again) = Some(seen + time);
    }

    pub(super) fn calendar(&self) -> Option<Calendar> {
        *lock(&self.calendar)
    }

    /// Notes its calendar. Returns whether it has changed by more than drift explains.
    pub(super) fn set_calendar(&self, calendar: Calendar) -> bool {
        let before = lock(&self.calendar).replace(calendar);
        before.is_none_or(|before| before.distance(&calendar) > NOTEWORTHY)
    }

    /// The process that votes.
    pub(super) fn run_id(&self) -> Option<String> {
        lock(&self.admitted).run_id.clone()
    }

    /// It does not vote for the longest lease: its calendar is not that of the other nodes.
    pub(super) fn exclude(&self, longest: Duration) {
        lock(&self.reliability).exclude(clock::now(), longest);
    }

    pub(super) fn set_behind(&self, is_behind: bool) {
        self.is_behind.store(is_behind, Ordering::Relaxed);
    }

    /// Whether leases that it extends may end early, because its clock will be set right.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Relaxed)
    }

    /// The same, as this client has noticed: the node is to know it.
    pub(super) fn exclude_noticed(&self, longest: Duration) {
        self.exclude(longest);
        self.stepped.notify_one();
    }

    /// Is notified when the node is to know that its clock was set.
    pub(super) fn stepped(&self) -> Arc<Notify> {
        self.stepped.clone()
    }

    /// Notes the node's clock in an answer that was sent for and received at these moments.
    pub(super) fn note_clock(
        &self,
        (sent, received): (Moment, Moment),
        store: Moment,
        longest: Duration,
    ) {
        let step = lock(&self.reliability).note(sent, received, store, longest);
        if let Some(ClockStep::Forward(by)) = step
            && by >= NOTEWORTHY
        {
            self.stepped.notify_one();
        }
        step.into_iter().for_each(telemetry::clock_stepped);
    }

    /// The last step forward of its clock.
    pub(super) fn leap(&self) -> Option<Leap> {
        lock(&self.reliability).leap()
    }

    /// Whether the node may still perform an end of this entry that was sent before, although it has confirmed it: then a
    /// new grant of the same entry might not last.
    pub(super) fn may_end(&self, name: &LockName, entry: Entry) -> bool {
        // What keeps permits does not end.
        self.left.has_forgotten() || self.left.is_ending(name, entry)
    }

    /// Whether the node is known to be asked for the end of this entry.
    pub(super) fn is_ending(&self, name: &LockName, entry: Entry) -> bool {
        self.left.is_ending(name, entry)
    }

    /// The node has not confirmed the end of an entry: it is asked again later.
    pub(super) fn leave_behind(&self, name: LockName, entry: Entry, until: Moment, fate: Fate) {
        self.left.note((name, entry), 0, None, until, fate);
    }

    /// The same for an entry whose permits stay occupied for some time.
    pub(super) fn leave_lingering(
        &self,
        name: LockName,
        entry: Entry,
        lingers_until: Moment,
        until: Moment,
        fate: Fate,
    ) {
        self.left.note((name, entry), 0, Some(lingers_until), until.max(lingers_until), fate);
    }

    /// The same for an entry that keeps so many permits: the others are given back later.
    pub(super) fn leave_behind_but(
        &self,
        keep: u32,
        name: LockName,
        entry: Entry,
        until: Moment,
        fate: Fate,
    ) {
        self.left.note((name, entry), keep, None, until, fate);
    }

    /// Ends an entry here, and asks again until that is confirmed or it has ended by itself (I6).
    pub(super) fn end(self: &Arc<Self>, request: CancelRequest, until: Moment) {
        self.end_and(request, until, |_| ());
    }

    /// The same, and what follows its answer.
    pub(super) fn end_and(
        self: &Arc<Self>,
        request: CancelRequest,
        until: Moment,
        then: impl FnOnce(Result<(), StoreError>) + Send + 'static,
    ) {
        let ending = self.begin_end(&request, until);
        self.send_end(request, ending, then);
    }

    /// Notes an end before it is sent: until it is answered, it may end whatever is granted to this entry.
    pub(super) fn begin_end(&self, request: &CancelRequest, until: Moment) -> Ending {
        self.left.begin(&(request.name.clone(), request.entry), until)
    }

    /// Sends an end that was noted.
    pub(super) fn send_end(
        self: &Arc<Self>,
        request: CancelRequest,
        ending: Ending,
        then: impl FnOnce(Result<(), StoreError>) + Send + 'static,
    ) {
        let node = self.clone();
        let key = (request.name.clone(), request.entry);
        on_arrival(self.engine().cancel(request), move |result| {
            node.left.answered(&key, ending, Fate::from(&result));
            then(result);
        });
    }

    /// Asks again for what is left behind.
    pub(super) fn clean_up(self: &Arc<Self>) {
        let now = clock::now();
        for (key, left, ending) in self.left.due(now) {
            let node = self.clone();
            on_arrival(self.remind(key.clone(), left, now), move |result| {
                node.left.answered(&key, ending, Fate::from(&result));
            });
        }
    }

    fn remind(&self, (name, entry): (LockName, Entry), left: Left, now: Moment) -> Answer<()> {
        let linger = left.lingers_until.map_or(Duration::ZERO, |until| until.since(now));
        if left.keep == 0 && linger.is_zero() {
            return self.engine().cancel(CancelRequest { name, entry });
        }
        let request =
            ReleaseRequest { keep: left.keep, linger, ..ReleaseRequest::new(name, entry) };
        let answer = self.engine().release(request);
        Answer::later(async move {
            match answer.await? {
                // Permits are given back by the only entry of an owner: another one is to end first.
                ReleaseOutcome::Released { remaining: 2.. } if left.keep > 0 => {
                    Err(StoreError::refused("it has other entries"))
                }
                _ => Ok(()),
            }
        })
    }
}

fn listen(engine: &Arc<dyn Engine>, listener: &Arc<NodeListener>) {
    let listener = Arc::downgrade(listener);
    engine.listen(listener);
}
