//! One entry that wants a lock, from its first request until it is granted, refused or cancelled.
//!
//! The state is under a mutex, which is not held while a node or the listener is called: what follows from a vote is an
//! [`Effect`], performed after unlocking. Each request to a node has a number; an answer to an earlier one is ignored.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::Quorum;
use super::effect::Effect;
use super::errors::cancelled;
use super::rest::Rest;
use crate::clock;
use crate::core::backoff::{Backoff, Delays};
use crate::core::fence::Fence;
use crate::core::moment::Moment;
use crate::core::quorum::{Ack, Candidate, Claim, Confirmation, Size};
use crate::core::shape::Kind;
use crate::engine::{AcquireRequest, Acquired, Grant, Proposal};
use crate::error::StoreError;
use crate::owner::{Entry, unique_number};
use crate::sync::lock;

/// How long a candidate keeps a minority before it gives it back: a few round trips, growing, and different for each
/// candidate.
const REGROUP: Backoff = Backoff::jitter(Duration::from_millis(5), Duration::from_millis(500));

/// How long one that does not wait pauses before the next attempt: its caller waits for the answer.
const TRY_AGAIN: Backoff = Backoff::jitter(Duration::from_millis(5), Duration::from_millis(100));

pub(super) type Caller = oneshot::Sender<Result<Acquired, StoreError>>;

/// One entry that wants a lock.
pub(super) struct Attempt {
    pub(super) request: AcquireRequest,
    pub(super) state: Mutex<State>,
    /// It is about an entry that is held: its votes are those of the hold.
    pub(super) is_of_hold: bool,
    /// Its hold was detached: the process with the handle ends it, and this client does not, whatever is still under way.
    pub(super) is_let_go: AtomicBool,
    /// The nodes that were asked to take the hold again and have not answered, one bit each.
    pub(super) repairing: AtomicU8,
    /// A node has answered a party of a barrier, or has opened.
    pub(super) voted: Notify,
}

pub(super) struct State {
    pub(super) candidate: Candidate,
    pub(super) phase: Phase,
    /// The fence that is proposed, which is also the ticket in the queues.
    pub(super) proposal: Fence,
    pub(super) proposed: u32,
    /// When the last call began, by our clock: the standing that is reported counts from it.
    pub(super) began: Moment,
    pub(super) callers: Vec<Caller>,
    pub(super) last_round: u32,
    /// The number of the last request to each node.
    pub(super) rounds: Vec<u32>,
    /// The nodes that have answered a request, one bit each: another one is not the latest, which sets the limit of a semaphore.
    answered: u8,
    /// The number of the entry at each node: another one after each time that the node was to end it. A cancel that arrives
    /// late, on a connection that was given up, then ends nothing (I1).
    pub(super) entries: Vec<u64>,
    pub(super) errors: Vec<Option<StoreError>>,
    pub(super) refusal: Option<Acquired>,
    pub(super) commit: Option<Commit>,
    pub(super) delays: Delays,
    /// A timer is set, or given-back nodes have not confirmed it, one bit each.
    pub(super) is_regrouping: bool,
    pub(super) giving_back: u8,
    pub(super) rest: Rest,
}

/// A fence that is being stored.
pub(super) struct Commit {
    pub(super) confirmation: Confirmation,
    pub(super) fence: Fence,
    pub(super) sent: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A caller waits for the answer.
    Asking,
    /// It is in the queues of the nodes.
    Waiting,
    /// It is decided: granted, or ended.
    Granted,
    Ended,
}

/// A request that is about to be sent to a node.
pub(super) struct Sending {
    pub(super) node: usize,
    pub(super) round: u32,
    pub(super) sent: Moment,
    pub(super) request: AcquireRequest,
}

impl Attempt {
    pub(super) fn new(request: AcquireRequest, size: Size, proposal: Fence) -> Self {
        let backoff = if request.queue.is_some() { REGROUP } else { TRY_AGAIN };
        let state = State {
            candidate: Candidate::new(size, request.shape),
            phase: Phase::Asking,
            proposal,
            proposed: 1,
            began: clock::now(),
            callers: Vec::new(),
            last_round: 0,
            rounds: vec![0; size.nodes()],
            answered: 0,
            entries: vec![request.entry.number; size.nodes()],
            errors: vec![None; size.nodes()],
            refusal: None,
            commit: None,
            delays: backoff.delays(unique_number()),
            is_regrouping: false,
            giving_back: 0,
            rest: Rest::Unneeded,
        };
        Self {
            request,
            state: Mutex::new(state),
            is_of_hold: false,
            is_let_go: AtomicBool::new(false),
            repairing: AtomicU8::new(0),
            voted: Notify::new(),
        }
    }

    /// Whether its votes can be taken back and cast again: a latch's count cannot, a barrier's parties wait for
    /// each other, and a holder relies on them (I1).
    pub(super) fn is_movable(&self) -> bool {
        !self.is_of_hold && !matches!(self.request.shape.kind(), Kind::Latch | Kind::Barrier)
    }

    /// The entry, as a node knows it.
    pub(super) fn entry_at(&self, node: usize) -> Entry {
        Entry { owner: self.request.entry.owner, number: lock(&self.state).entries[node] }
    }

    /// How many nodes must hold it.
    pub(super) fn needed(&self) -> usize {
        lock(&self.state).candidate.needed()
    }

    /// A count of a latch stays, whatever becomes of its answer (I6).
    pub(super) fn is_count(&self) -> bool {
        self.request.shape.kind() == Kind::Latch && self.request.shape.permits() > 0
    }

    /// Asks all nodes, for a caller. None if it is decided already.
    pub(super) fn ask(&self, quorum: &Quorum, caller: Caller) -> Result<Vec<Sending>, Caller> {
        let mut state = lock(&self.state);
        if matches!(state.phase, Phase::Granted | Phase::Ended) {
            return Err(caller);
        }
        state.phase = Phase::Asking;
        state.began = clock::now();
        state.callers.push(caller);
        let nodes = 0..quorum.nodes.len();
        let nodes: Vec<_> = nodes.filter(|node| state.giving_back & (1 << node) == 0).collect();
        Ok(self.send_to(quorum, &mut state, &nodes))
    }

    /// Prepares requests to these nodes.
    pub(super) fn send_to(
        &self,
        quorum: &Quorum,
        state: &mut State,
        nodes: &[usize],
    ) -> Vec<Sending> {
        let sent = clock::now();
        state.last_round += 1;
        state.rest = Rest::Unneeded;
        let mut sending = Vec::with_capacity(nodes.len());
        for &node in nodes {
            state.rounds[node] = state.last_round;
            if quorum.nodes[node].may_end(&self.request.name, state.entry(self, node)) {
                if !self.is_movable() {
                    // Nothing is sent there; what an earlier attempt has left there is being ended.
                    state.candidate.answer(node, Claim::Silent { is_unknown: false });
                    let why = "it has not confirmed that the last attempt ended";
                    state.errors[node] = Some(StoreError::refused(why));
                    continue;
                }
                state.renumber(self, node);
            }
            state.candidate.ask(node, sent);
            let (entry, fence) = (state.entry(self, node), state.proposal);
            let is_repeated = state.answered & (1 << node) != 0;
            let proposal = Some(Proposal { fence, is_repair: false, is_repeated });
            let request = AcquireRequest { entry, proposal, ..self.request.clone() };
            sending.push(Sending { node, round: state.last_round, sent, request });
        }
        sending
    }

    /// A node has answered.
    pub(super) fn answered(
        &self,
        quorum: &Quorum,
        (node, round, sent): (usize, u32, Moment),
        result: Result<Acquired, StoreError>,
    ) -> Effect {
        let mut state = lock(&self.state);
        if state.rounds[node] != round {
            return Effect::None;
        }
        let claim = state.claim(quorum, node, sent, result);
        if !matches!(claim, Claim::Silent { .. }) {
            state.answered |= 1 << node;
        }
        state.candidate.answer(node, claim);
        self.note_vote();
        self.decide(quorum, &mut state)
    }

    /// A node has handed the lock over. Asks it, if it cannot be said since when.
    pub(super) fn handed_over(&self, quorum: &Quorum, node: usize, grant: Grant) -> Effect {
        let mut state = lock(&self.state);
        if state.giving_back & (1 << node) != 0 || state.phase == Phase::Ended {
            return Effect::None;
        }
        let received = clock::now();
        let (fences, stamp) = ((grant.fence, grant.fences), (grant.at, grant.lease));
        let is_known = quorum.nodes[node].votes()
            && quorum.nodes[node].trusts_stamps()
            && state.candidate.handed_over(node, fences, stamp, received);
        if !is_known && state.phase != Phase::Granted {
            return Effect::Send(self.send_to(quorum, &mut state, &[node]));
        }
        self.note_vote();
        self.decide(quorum, &mut state)
    }

    /// A node has taken the lock away from this owner.
    pub(super) fn taken_away(&self, quorum: &Quorum, node: usize) -> Effect {
        let mut state = lock(&self.state);
        let is_decided = matches!(state.phase, Phase::Granted | Phase::Ended);
        // A count that was taken away must not come back.
        if is_decided || self.is_count() || state.giving_back & (1 << node) != 0 {
            return Effect::None;
        }
        state.candidate.give_back(node);
        if let Some(commit) = &mut state.commit {
            commit.confirmation.note(node, Ack::NotHeld);
        }
        Effect::Send(self.send_to(quorum, &mut state, &[node]))
    }

    /// Whether it was cancelled, has failed, or was released.
    pub(super) fn has_ended(&self) -> bool {
        lock(&self.state).phase == Phase::Ended
    }

    pub(super) fn take_callers(&self) -> Vec<Caller> {
        std::mem::take(&mut lock(&self.state).callers)
    }

    /// Ends it: its callers are answered, and later answers ignored.
    pub(super) fn end(&self) -> Vec<Caller> {
        let mut state = lock(&self.state);
        state.phase = Phase::Ended;
        std::mem::take(&mut state.callers)
    }
}

impl State {
    pub(super) fn entry(&self, attempt: &Attempt, node: usize) -> Entry {
        Entry { owner: attempt.request.entry.owner, number: self.entries[node] }
    }

    /// The node is to end the entry. What it may still answer is about that one, and does not count (I1). Returns the one that
    /// ends.
    pub(super) fn take_back(&mut self, attempt: &Attempt, node: usize) -> Entry {
        self.candidate.give_back(node);
        self.rounds[node] = 0;
        self.renumber(attempt, node)
    }

    /// The node is to end the entry: the next request has another one. Returns the one that ends. A party of a barrier would
    /// arrive a second time under another number, and a latch would count twice.
    pub(super) fn renumber(&mut self, attempt: &Attempt, node: usize) -> Entry {
        let before = self.entry(attempt, node);
        if !matches!(attempt.request.shape.kind(), Kind::Latch | Kind::Barrier) {
            self.entries[node] = unique_number();
        }
        before
    }
}

/// Answers callers whose entry was cancelled.
pub(super) fn answer_cancelled(callers: Vec<Caller>) {
    super::effect::answer(callers, &Err(cancelled()));
}
