//! Renewals, and repairs of nodes that lost a hold.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;

use super::Quorum;
use super::arrival::on_arrival;
use super::attempt::Attempt;
use super::errors::closed;
use super::vote::ack;
use crate::clock;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::core::quorum::{Ack, Confirmation, Confirmed, Hold};
use crate::core::shape::{Kind, Shape};
use crate::engine::{AcquireRequest, Acquired, Answer, CancelRequest, Renewal, Renewed};
use crate::error::StoreError;
use crate::foreign;
use crate::info::LockInfo;
use crate::owner::Owner;
use crate::sync::lock;

/// Why a node that has extended the lease of an owner does not count.
const PARTIAL: &str = "it has this owner, but perhaps by an entry of another client, because the lease that was known has ended";

type Outcomes = Vec<Result<Renewed, StoreError>>;

/// Renewals under way.
struct Renewing {
    renewals: Vec<Renewal>,
    sent: Moment,
    confirmations: Vec<Confirmation>,
    /// How many nodes each of them needs.
    known: Vec<Known>,
    /// Nodes that were repaired, one bit each.
    repaired: Vec<u8>,
    /// Per renewal and node.
    errors: Vec<Vec<Option<StoreError>>>,
    done: Option<oneshot::Sender<Result<Outcomes, StoreError>>>,
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
        if let [renewal] = &renewals[..]
            && self.is_releasing(renewal)
        {
            return Answer::now(Ok(vec![Ok(Renewed::NotHeld)]));
        }
        let sent = clock::now();
        let (done, answer) = oneshot::channel();
        let is_handle: Vec<_> = renewals.iter().map(|it| self.is_handle(it)).collect();
        let known = |is_handle: &bool| if *is_handle { Known::Asked } else { Known::Yes };
        let renewing = Arc::new(Mutex::new(Renewing {
            confirmations: renewals.iter().map(|it| self.confirmation(it, sent)).collect(),
            known: is_handle.iter().map(known).collect(),
            repaired: vec![0; renewals.len()],
            errors: vec![vec![None; self.nodes.len()]; renewals.len()],
            renewals: renewals.clone(),
            sent,
            done: Some(done),
        }));
        for at in (0..renewals.len()).filter(|at| is_handle[*at]) {
            self.ask_how_many(&renewing, at, &renewals[at].name);
        }
        for (node, it) in self.nodes.iter().enumerate() {
            let (quorum, renewing) = (self.clone(), renewing.clone());
            on_arrival(it.engine().renew(renewals.clone()), move |result| {
                quorum.count_renewals(&renewing, node, result);
            });
        }
        Answer::later(async { answer.await.unwrap_or_else(|_| Err(closed())) })
    }

    fn confirmation(&self, renewal: &Renewal, sent: Moment) -> Confirmation {
        let needed = self.needed_to_renew(&renewal.name, renewal.owner);
        Confirmation::new(self.size, needed.unwrap_or(self.size.majority()), sent)
    }

    /// How many nodes must confirm a renewal; none if this client has the hold only by its handle.
    pub(super) fn needed_to_renew(&self, name: &LockName, owner: Owner) -> Option<usize> {
        let attempts = self.holds.attempts_of(name, owner);
        attempts.iter().map(|attempt| attempt.needed()).max()
    }

    /// Whether this client has a hold only by its handle, which does not say what kind of lock it is.
    fn is_handle(&self, renewal: &Renewal) -> bool {
        self.holds.attempts_of(&renewal.name, renewal.owner).is_empty()
    }

    /// Whether this client is releasing it by its handle: nodes that have not confirmed that may do so at any time (I1).
    fn is_releasing(&self, renewal: &Renewal) -> bool {
        self.is_handle(renewal) && self.detached.is_releasing(&renewal.name, renewal.owner)
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
            quorum.finish_renewals(all);
        });
    }

    /// How many nodes a hold needs of the lock that the nodes describe. The limits of a semaphore may differ.
    fn needed_by(&self, infos: impl Iterator<Item = LockInfo>) -> usize {
        let shapes = infos.filter_map(|info| Shape::new(info.kind?, info.limit, 1).ok());
        shapes.map(|shape| self.size.needed(shape)).max().unwrap_or(self.size.majority())
    }

    fn count_renewals(
        self: &Arc<Self>,
        renewing: &Mutex<Renewing>,
        node: usize,
        result: Result<Outcomes, StoreError>,
    ) {
        let mut all = lock(renewing);
        let count = all.renewals.len();
        let results = match result {
            Ok(outcomes) if outcomes.len() == count => outcomes,
            Ok(_) => vec![Err(StoreError::unknown("the answer is too short")); count],
            Err(error) => vec![Err(error); count],
        };
        for (at, result) in results.into_iter().enumerate() {
            if let Err(error) = &result {
                self.nodes[node].note_error(error);
            }
            let ack = self.ack(node, &all.renewals[at], all.sent, &result);
            all.confirmations[at].note(node, ack);
            all.errors[at][node] = match ack {
                Ack::Partial => Some(StoreError::unknown(PARTIAL)),
                _ => result.err(),
            };
        }
        self.finish_renewals(all);
    }

    /// What a node's answer to a renewal counts as. A node that extends the lease of the owner, but is not known to have all
    /// entries of this client, may have those of another one, and be about to end them (I1): it is repaired, and counts then.
    fn ack(
        &self,
        node: usize,
        renewal: &Renewal,
        sent: Moment,
        result: &Result<Renewed, StoreError>,
    ) -> Ack {
        let now = clock::now();
        let attempts = self.holds.attempts_of(&renewal.name, renewal.owner);
        match ack(result) {
            Ack::NotHeld => {
                attempts.iter().for_each(|it| lock(&it.state).candidate.give_back(node));
                Ack::NotHeld
            }
            Ack::Extended if self.nodes[node].is_behind() => Ack::Silent,
            Ack::Extended if !self.all_last(node, &attempts, now) => Ack::Partial,
            Ack::Extended => {
                let lease = renewal.lease.duration();
                attempts.iter().for_each(|attempt| attempt.extend(node, sent, lease));
                Ack::Extended
            }
            ack => ack,
        }
    }

    /// Whether a node holds all entries, and is not about to end one. It does not hold what it is about to end, and is repaired.
    fn all_last(&self, node: usize, attempts: &[Arc<Attempt>], now: Moment) -> bool {
        let lasts = |attempt: &Arc<Attempt>| {
            let is_ending = |entry| self.nodes[node].is_ending(&attempt.request.name, entry);
            attempt.lasts_at(node, now, is_ending)
        };
        // Of all: each is to be repaired.
        attempts.iter().map(lasts).fold(true, |all, lasts| all & lasts)
    }

    /// Reports the outcomes once all are decided, and repairs nodes.
    fn finish_renewals(self: &Arc<Self>, mut all: MutexGuard<'_, Renewing>) {
        let repairs = all.repairs();
        let outcomes = all.outcomes(self);
        let done = outcomes.and_then(|outcomes| all.done.take().map(|done| (done, outcomes)));
        if let Some((_, outcomes)) = &done {
            let is_extended = |(_, outcome): &(_, &_)| matches!(outcome, Ok(Renewed::Extended));
            for (Renewal { name, owner, lease, .. }, _) in
                all.renewals.iter().zip(outcomes).filter(is_extended)
            {
                self.holds.extend(name, *owner, all.sent + lease.duration());
            }
        }
        drop(all);
        if let Some((done, outcomes)) = done {
            foreign::call(|| drop(done.send(Ok(outcomes))));
        }
        repairs.into_iter().for_each(|(node, renewal, sent)| self.repair(node, &renewal, sent));
    }

    /// Gives a hold back to a node that lost it, for as long as a majority has proved it.
    fn repair(self: &Arc<Self>, node: usize, renewal: &Renewal, lease: crate::Lease) {
        let may_end = |entry| self.nodes[node].may_end(&renewal.name, entry);
        for (attempt, request) in self.holds.repairs(&renewal.name, renewal.owner, node, may_end) {
            self.repair_with(node, attempt, AcquireRequest { lease, ..request });
        }
    }

    fn repair_with(self: &Arc<Self>, node: usize, attempt: Arc<Attempt>, request: AcquireRequest) {
        let sent = clock::now();
        attempt.note_repair(node, true);
        let answer = self.nodes[node].engine().acquire(request.clone());
        // If it was released meanwhile, or has given back permits, the node must not get them after that.
        match self.holds.permits(&attempt) {
            None if !self.is_of_hold(node, &attempt) => self.end_at(node, &attempt),
            // Nor may it have them still, by an answer that was lost: it is told again, once this is its only entry there.
            Some(keep) if keep < attempt.request.shape.permits() => {
                let (name, entry) = (request.name.clone(), request.entry);
                self.nodes[node].leave_behind_but(keep, name, entry, self.over(&request));
            }
            _ => {}
        }
        let quorum = self.clone();
        on_arrival(answer, move |result| {
            quorum.answered_late(node, &attempt, &result);
            attempt.note_repair(node, false);
            if let Ok(Acquired::Granted(grant)) = result {
                let (fence, fences, lease) = (grant.fence, grant.fences, grant.lease);
                let hold = Hold { fence, fences, stamp: grant.at, at: sent, lease };
                quorum.repaired(node, &attempt, &request, hold);
            }
        });
    }
}

impl Quorum {
    /// A node has the hold again; unless it was taken back there meanwhile, and is to end (I1).
    fn repaired(&self, node: usize, attempt: &Attempt, request: &AcquireRequest, hold: Hold) {
        let (name, entry) = (request.name.clone(), request.entry);
        if attempt.repaired(node, entry, hold) {
            self.holds.regain(&name, entry.owner, node);
        } else if attempt.is_let_go() {
            self.watch_entry(node, name, entry);
        } else {
            self.nodes[node].end(CancelRequest { name, entry }, self.over(request));
        }
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

    /// The outcome of each renewal, once all are decided.
    fn outcomes(&self, quorum: &Quorum) -> Option<Outcomes> {
        (0..self.renewals.len()).map(|at| self.outcome(at, quorum)).collect()
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
