//! Renewals. Nodes that do not have the hold are repaired by [`repairing`](super::repairing).

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;

use super::arrival::on_arrival;
use super::attempt::Attempt;
use super::errors::closed;
use super::vote::ack;
use super::{Quorum, pause};
use crate::clock;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::core::quorum::{Ack, Confirmation, Confirmed};
use crate::core::shape::{Kind, Shape};
use crate::engine::{Answer, Renewal, Renewed};
use crate::error::StoreError;
use crate::foreign;
use crate::info::LockInfo;
use crate::owner::Entry;
use crate::sync::lock;

/// Why a node that has extended the lease of an owner does not count.
const PARTIAL: &str = "it does not have every entry by which this owner holds the lock";

/// How long renewals that are decided wait at most for others of the same call, in parts of the shortest lease: the next attempt
/// follows when half of it has passed.
const PARTS_OF_LEASE: u32 = 6;

/// The same, whatever the lease is: a claim lease is shorter.
const UNDECIDED: Duration = Duration::from_millis(400);

type Outcomes = Vec<Result<Renewed, StoreError>>;

/// Renewals under way.
struct Renewing {
    renewals: Vec<Renewal>,
    /// What the nodes are asked for each of them.
    asked: Vec<Asked>,
    sent: Moment,
    confirmations: Vec<Confirmation>,
    /// How many nodes each of them needs.
    known: Vec<Known>,
    /// Nodes that were repaired, one bit each.
    repaired: Vec<u8>,
    /// Per renewal and node.
    errors: Vec<Vec<Option<StoreError>>>,
    rest: Rest,
    done: Option<oneshot::Sender<Result<Outcomes, StoreError>>>,
}

/// The renewals of a call that are not decided when others are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    None,
    /// They are awaited for a moment.
    Awaited,
    /// They have been awaited for long enough: whether they took effect is not known.
    Over,
}

/// What the nodes are asked: whether they have each entry of a hold. An entry has a number of its own at each node, and the node
/// says whether it has that one: what may end there has another number (I1).
struct Asked {
    /// None of a hold that this client has only by its handle.
    attempts: Vec<Arc<Attempt>>,
    /// By node, the entries of the attempts, in their order; or that of the handle.
    entries: Vec<Vec<Entry>>,
}

/// Whether it is known how many nodes a renewal needs.
enum Known {
    Yes,
    /// The nodes are being asked what kind of lock it is.
    Asked,
    /// They could not be asked.
    No(StoreError),
}

impl Quorum {
    pub(super) fn renew(self: &Arc<Self>, renewals: Vec<Renewal>) -> Answer<Outcomes> {
        let longest = renewals.iter().map(|renewal| renewal.lease).max();
        if let Some(Err(error)) = longest.map(|lease| self.check_lease(lease, Kind::Mutex)) {
            return Answer::now(Err(error));
        }
        let over: Vec<_> = renewals.iter().map(|renewal| self.is_over(renewal)).collect();
        if !over.contains(&true) {
            return self.renew_held(renewals);
        }
        let held: Vec<_> = renewals.into_iter().zip(&over).filter(|(_, over)| !**over).collect();
        let held: Vec<_> = held.into_iter().map(|(renewal, _)| renewal).collect();
        let answer = match held.is_empty() {
            true => Answer::now(Ok(Vec::new())),
            false => self.renew_held(held),
        };
        Answer::later(async move {
            let mut outcomes = answer.await?.into_iter();
            let mut next = || outcomes.next().unwrap_or_else(|| Err(closed()));
            let outcome = |over| if over { Ok(Renewed::NotHeld) } else { next() };
            Ok(over.into_iter().map(outcome).collect())
        })
    }

    fn renew_held(self: &Arc<Self>, renewals: Vec<Renewal>) -> Answer<Outcomes> {
        let sent = clock::now();
        let (done, answer) = oneshot::channel();
        let asked: Vec<_> = renewals.iter().map(|it| self.asked(it)).collect();
        let known = |asked: &Asked| if asked.is_handle() { Known::Asked } else { Known::Yes };
        let by_node: Vec<_> =
            (0..self.nodes.len()).map(|it| at_node(it, &renewals, &asked)).collect();
        let handles: Vec<_> = (0..renewals.len()).filter(|at| asked[*at].is_handle()).collect();
        let names = renewals.clone();
        let renewing = Arc::new(Mutex::new(Renewing {
            confirmations: asked.iter().map(|it| self.confirmation(it, sent)).collect(),
            known: asked.iter().map(known).collect(),
            repaired: vec![0; renewals.len()],
            errors: vec![vec![None; self.nodes.len()]; renewals.len()],
            renewals,
            asked,
            sent,
            rest: Rest::None,
            done: Some(done),
        }));
        for at in handles {
            self.ask_how_many(&renewing, at, &names[at].name);
        }
        for (node, renewals) in by_node.into_iter().enumerate() {
            let (quorum, renewing) = (self.clone(), renewing.clone());
            on_arrival(self.nodes[node].engine().renew(renewals), move |result| {
                quorum.count_renewals(&renewing, node, result);
            });
        }
        Answer::later(async { answer.await.unwrap_or_else(|_| Err(closed())) })
    }

    fn asked(&self, renewal: &Renewal) -> Asked {
        let attempts = self.holds.attempts_for(&renewal.name, renewal.entry).unwrap_or_default();
        let at_node = |node| match &attempts[..] {
            [] => vec![renewal.entry],
            attempts => attempts.iter().map(|attempt| attempt.entry_at(node)).collect(),
        };
        let entries = (0..self.nodes.len()).map(at_node).collect();
        Asked { attempts, entries }
    }

    fn confirmation(&self, asked: &Asked, sent: Moment) -> Confirmation {
        let needed = asked.attempts.iter().map(|attempt| attempt.needed()).max();
        Confirmation::new(self.size, needed.unwrap_or(self.size.majority()), sent)
    }

    /// How many nodes must confirm a renewal; none if this client has the hold only by its handle.
    pub(super) fn needed_to_renew(&self, name: &LockName, entry: Entry) -> Option<usize> {
        let attempts = self.holds.attempts_for(name, entry)?;
        attempts.iter().map(|attempt| attempt.needed()).max()
    }

    /// Whether a hold cannot be renewed any more: it was lost, and its owner may have another one; or this client is releasing it by
    /// its handle, and nodes that have not confirmed that may do so at any time (I1).
    fn is_over(&self, renewal: &Renewal) -> bool {
        let Renewal { name, entry, .. } = renewal;
        match self.holds.attempts_for(name, *entry) {
            Some(attempts) => attempts.is_empty(),
            None => self.detached.is_releasing(name, *entry),
        }
    }

    /// Asks the nodes how many of them a renewal needs: a semaphore needs more than a majority (I1).
    fn ask_how_many(self: &Arc<Self>, renewing: &Arc<Mutex<Renewing>>, at: usize, name: &LockName) {
        let answers = self.nodes.iter().map(|node| node.engine().inspect(name.clone())).collect();
        let (quorum, renewing) = (self.clone(), renewing.clone());
        self.io.spawn(async move {
            let infos = quorum.clone().collect(answers).await;
            let mut all = lock(&renewing);
            match infos {
                Ok(infos) => {
                    let infos = infos.into_iter().flatten().flatten();
                    all.confirmations[at].require(quorum.needed_by(infos));
                    all.known[at] = Known::Yes;
                }
                Err(error) => all.known[at] = Known::No(error),
            }
            quorum.finish_renewals(&renewing, all);
        });
    }

    /// How many nodes a hold needs of the lock that the nodes describe. The limits of a semaphore may differ.
    fn needed_by(&self, infos: impl Iterator<Item = LockInfo>) -> usize {
        let shapes = infos.filter_map(|info| Shape::new(info.kind?, info.limit, 1).ok());
        shapes.map(|shape| self.size.needed(shape)).max().unwrap_or(self.size.majority())
    }

    fn count_renewals(
        self: &Arc<Self>,
        renewing: &Arc<Mutex<Renewing>>,
        node: usize,
        result: Result<Outcomes, StoreError>,
    ) {
        let mut all = lock(renewing);
        let count = all.asked.iter().map(|asked| asked.entries[node].len()).sum();
        let mut results = match result {
            Ok(outcomes) if outcomes.len() == count => outcomes,
            Ok(_) => vec![Err(StoreError::unknown("the answer is too short")); count],
            Err(error) => vec![Err(error); count],
        };
        for at in 0..all.renewals.len() {
            let rest = results.split_off(all.asked[at].entries[node].len());
            let results = std::mem::replace(&mut results, rest);
            let ack = self.ack(node, &all.renewals[at], &all.asked[at], all.sent, &results);
            let error = results.into_iter().find_map(Result::err);
            error.iter().for_each(|error| self.nodes[node].note_error(error));
            all.confirmations[at].note(node, ack);
            all.errors[at][node] = match ack {
                Ack::Partial => Some(StoreError::unknown(PARTIAL)),
                _ => error,
            };
        }
        self.finish_renewals(renewing, all);
    }

    /// What a node's answers about the entries of a hold count as: it must have them all. One that was granted meanwhile, or has
    /// another number at this node by now, is none of those that were asked for: nothing is known about it, and the node counts next
    /// time.
    fn ack(
        &self,
        node: usize,
        renewal: &Renewal,
        asked: &Asked,
        sent: Moment,
        results: &[Result<Renewed, StoreError>],
    ) -> Ack {
        let acks: Vec<_> = results.iter().map(ack).collect();
        if acks.contains(&Ack::Silent)
            || acks.contains(&Ack::Extended) && self.nodes[node].is_behind()
        {
            return Ack::Silent;
        } else if asked.is_handle() {
            return acks[0];
        }
        // An answer from before a forced release may come after the message of that.
        if self.holds.is_lost_at(&renewal.name, renewal.entry.owner, node) {
            return Ack::NotHeld;
        }
        let now_there = self.holds.attempts_for(&renewal.name, renewal.entry).unwrap_or_default();
        if now_there.is_empty() {
            // Released meanwhile: it counts for nothing any more.
            let is_extended = acks.iter().all(|ack| *ack == Ack::Extended);
            return if is_extended { Ack::Extended } else { Ack::NotHeld };
        }
        let answered = |attempt: &Arc<Attempt>| {
            let at = asked.position(attempt)?;
            let (entry, extended) = (asked.entries[node][at], (sent, renewal.lease.duration()));
            let is_ending = self.nodes[node].is_ending(&renewal.name, entry);
            attempt.answered_at(node, entry, acks[at], extended, is_ending)
        };
        // Of all: a node that lacks one is to be repaired.
        let answers: Vec<_> = now_there.iter().map(answered).collect();
        if answers.iter().all(|it| *it == Some(true)) {
            Ack::Extended
        } else if acks.contains(&Ack::Extended) {
            Ack::Partial
        } else if answers.contains(&Some(false)) {
            Ack::NotHeld
        } else {
            Ack::Silent
        }
    }

    /// Reports the outcomes once all are decided, and repairs nodes.
    fn finish_renewals(
        self: &Arc<Self>,
        renewing: &Arc<Mutex<Renewing>>,
        mut all: MutexGuard<'_, Renewing>,
    ) {
        let repairs = all.repairs();
        self.await_rest_of_renewals(renewing, &mut all);
        let outcomes = all.outcomes(self);
        let done = outcomes.and_then(|outcomes| all.done.take().map(|done| (done, outcomes)));
        if let Some((_, outcomes)) = &done {
            let is_extended = |(_, outcome): &(_, &_)| matches!(outcome, Ok(Renewed::Extended));
            for (Renewal { name, entry, lease, .. }, _) in
                all.renewals.iter().zip(outcomes).filter(is_extended)
            {
                self.holds.extend(name, *entry, all.sent + lease.duration());
            }
        }
        drop(all);
        if let Some((done, outcomes)) = done {
            foreign::call(|| drop(done.send(Ok(outcomes))));
        }
        repairs.into_iter().for_each(|(node, renewal, sent)| self.repair(node, &renewal, sent));
    }

    /// A renewal that is not decided, because a node is silent, must not delay the others until their leases end (I9).
    fn await_rest_of_renewals(
        self: &Arc<Self>,
        renewing: &Arc<Mutex<Renewing>>,
        all: &mut Renewing,
    ) {
        if all.rest != Rest::None || all.done.is_none() || !all.is_partly_decided(self) {
            return;
        }
        all.rest = Rest::Awaited;
        let shortest = all.renewals.iter().map(|renewal| renewal.lease.duration()).min();
        let delay = (shortest.unwrap_or_default() / PARTS_OF_LEASE).min(UNDECIDED);
        // A node that is far away is not silent.
        let slowest = self.nodes.iter().map(|node| node.engine().round_trip()).max();
        let delay = delay.max(slowest.unwrap_or_default() * 2);
        let (quorum, renewing) = (self.clone(), renewing.clone());
        self.io.spawn(async move {
            pause(delay).await;
            let mut all = lock(&renewing);
            all.rest = Rest::Over;
            quorum.finish_renewals(&renewing, all);
        });
    }
}

/// What a node is asked.
fn at_node(node: usize, renewals: &[Renewal], asked: &[Asked]) -> Vec<Renewal> {
    let all = renewals.iter().zip(asked);
    let all = all.flat_map(|(renewal, asked)| {
        asked.entries[node].iter().map(|entry| Renewal { entry: *entry, ..renewal.clone() })
    });
    all.collect()
}

impl Asked {
    /// Whether this client has the hold only by its handle, which does not say what kind of lock it is.
    fn is_handle(&self) -> bool {
        self.attempts.is_empty()
    }

    /// Which of the entries that were asked for is that of an attempt. A waiter that asked once more has another attempt for it.
    fn position(&self, attempt: &Attempt) -> Option<usize> {
        self.attempts.iter().position(|it| it.request.entry == attempt.request.entry)
    }
}

impl Renewing {
    /// The nodes to repair now.
    fn repairs(&mut self) -> Vec<(usize, Renewal, crate::Lease)> {
        let (now, mut repairs) = (clock::now(), Vec::new());
        for (at, confirmation) in self.confirmations.iter().enumerate() {
            let renewal = &self.renewals[at];
            for node in 0..self.errors[at].len() {
                let lease = confirmation.repair(node, renewal.lease.duration(), now);
                if let Some(lease) = lease
                    && self.repaired[at] & (1 << node) == 0
                {
                    self.repaired[at] |= 1 << node;
                    repairs.push((node, renewal.clone(), lease));
                }
            }
        }
        repairs
    }

    fn is_partly_decided(&self, quorum: &Quorum) -> bool {
        let decided = (0..self.renewals.len()).filter(|at| self.outcome(*at, quorum).is_some());
        (1..self.renewals.len()).contains(&decided.count())
    }

    /// The outcome of each renewal, once all are decided.
    fn outcomes(&self, quorum: &Quorum) -> Option<Outcomes> {
        let unknown = || Err(StoreError::unknown("nodes have not answered yet"));
        let rest = || (self.rest == Rest::Over).then(unknown);
        (0..self.renewals.len()).map(|at| self.outcome(at, quorum).or_else(rest)).collect()
    }

    fn outcome(&self, at: usize, quorum: &Quorum) -> Option<Result<Renewed, StoreError>> {
        match &self.known[at] {
            Known::Yes => {}
            Known::Asked => return None,
            // Some nodes may have extended it.
            Known::No(error) => return Some(Err(StoreError::unknown(error.to_string()))),
        }
        let confirmation = &self.confirmations[at];
        match confirmation.verdict() {
            Confirmed::Open => None,
            Confirmed::Extended => Some(Ok(Renewed::Extended)),
            Confirmed::NotHeld => Some(Ok(Renewed::NotHeld)),
            Confirmed::Failed => {
                Some(Err(quorum.failure_of(confirmation.needed(), &self.errors[at], true)))
            }
        }
    }
}
