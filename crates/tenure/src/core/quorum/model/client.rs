//! A client of the model: the real counting of votes, driven by messages.

use super::node::{Answer, Owner, Request};
use super::{LONGEST, Naive, micros, seconds};
use crate::core::fence::Fence;
use crate::core::lease::{self, ClockSync};
use crate::core::moment::Moment;
use crate::core::quorum::{
    Ack, Candidate, Claim, Confirmation, Confirmed, Hold, Place, Proposals, Size, Verdict,
};
use crate::core::shape::Shape;

/// How many nodes there are.
pub(super) const NODES: usize = 3;

/// What a client is doing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Idle,
    /// It wants the lock.
    Wanting {
        candidate: Candidate,
        proposal: u64,
        waits: bool,
    },
    /// Enough nodes hold the lock for it, with different fences; the largest is being stored.
    Committing {
        confirmation: Confirmation,
        fence: u64,
        sent: Moment,
    },
    /// It holds the lock, and believes so until the deadline.
    Holding {
        fence: u64,
        deadline: Moment,
        renewal: Option<(Confirmation, Moment)>,
    },
}

/// The state of a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) id: u8,
    pub(super) attempt: u8,
    last_round: u8,
    /// The number of the last request to each node: answers to earlier ones are ignored.
    pub(super) rounds: [u8; NODES],
    pub(super) proposals: Proposals,
    pub(super) phase: Phase,
    /// How often it may still renew, or ask again.
    pub(super) renewals_left: u8,
    /// The number of the entry at each node: another one after an end of it that may still arrive.
    pub(super) numbers: [u8; NODES],
    /// Nodes that were asked to take the entry back, and have not confirmed it; and the number that it had there.
    pub(super) giving_back: u8,
    pub(super) given: [u8; NODES],
    /// Nodes that were asked for that more than once: one of the requests may arrive after a confirmation.
    pub(super) doubtful: u8,
    /// The last attempt was given up while it waited, so it may be retried.
    waited: bool,
}

/// What follows from a step of a client.
#[derive(Default)]
pub(super) struct Steps {
    /// Requests to nodes, with the number of the entry.
    pub(super) sent: Vec<(usize, u8, Request)>,
    /// The fence of a new grant.
    pub(super) granted: Option<u64>,
}

fn size() -> Size {
    Size::new(NODES).expect("three nodes are a quorum")
}

impl Client {
    pub(super) fn new(id: u8, renewals_left: u8) -> Self {
        let (proposals, phase) = (Proposals::default(), Phase::Idle);
        Self {
            id,
            attempt: 0,
            last_round: 0,
            rounds: [0; NODES],
            proposals,
            phase,
            renewals_left,
            numbers: [0; NODES],
            giving_back: 0,
            given: [0; NODES],
            doubtful: 0,
            waited: false,
        }
    }

    pub(super) fn owner(&self) -> Owner {
        Owner { client: self.id, attempt: self.attempt }
    }

    /// The fence that it believes to hold the lock with.
    pub(super) fn belief(&self, now: u8) -> Option<u64> {
        match self.phase {
            Phase::Holding { fence, deadline, .. } if seconds(now) < deadline => Some(fence),
            _ => None,
        }
    }

    /// Whether an answer of a node is one to its last request.
    pub(super) fn awaits(&self, round: u8, node: usize) -> bool {
        self.rounds[node] == round
    }

    /// Requests to all nodes follow, or none: earlier answers do not matter any more.
    fn start_round(&mut self) {
        self.last_round += 1;
        self.rounds = [self.last_round; NODES];
    }

    /// Its calendar. Those of the clients differ by a second.
    fn calendar(&self, now: u8) -> Moment {
        seconds(now.saturating_sub(self.id % 2))
    }

    /// Begins an attempt.
    pub(super) fn acquire(&mut self, waits: bool, now: u8) -> Steps {
        self.attempt += 1;
        (self.giving_back, self.doubtful, self.numbers) = (0, 0, [0; NODES]);
        let proposal = self.proposals.next(None, self.calendar(now)).value();
        let candidate = Candidate::new(size(), Shape::mutex());
        self.phase = Phase::Wanting { candidate, proposal, waits };
        self.ask(0..NODES, now)
    }

    fn ask(&mut self, nodes: impl Iterator<Item = usize>, now: u8) -> Steps {
        self.last_round += 1;
        let Phase::Wanting { candidate, proposal, waits } = &mut self.phase else {
            return Steps::default();
        };
        let mut steps = Steps::default();
        for node in nodes {
            candidate.ask(node, seconds(now));
            self.rounds[node] = self.last_round;
            let (fence, waits) = (*proposal, *waits);
            let request = Request::Acquire { fence, waits, is_repair: false, lease: LONGEST };
            steps.sent.push((node, self.numbers[node], request));
        }
        steps
    }

    /// Whether an answer of a node confirms the end that is awaited.
    pub(super) fn is_ending(&self, node: usize, number: u8) -> bool {
        self.giving_back & (1 << node) != 0 && self.given[node] == number
    }

    /// Asks all nodes again, as a waiter does from time to time.
    pub(super) fn ask_again(&mut self, now: u8) -> Steps {
        self.renewals_left -= 1;
        let giving_back = self.giving_back;
        self.ask((0..NODES).filter(move |node| giving_back & (1 << node) == 0), now)
    }

    /// Whether it may ask for the same entry again, after the attempt has failed.
    pub(super) fn can_retry(&self) -> bool {
        self.phase == Phase::Idle && self.attempt > 0 && self.waited && self.renewals_left > 0
    }

    /// Asks for the same entry again, as a waiter does whose attempt has failed. Where an end of it may still arrive, it has
    /// another number.
    pub(super) fn retry(&mut self, now: u8, naive: Option<Naive>) -> Steps {
        self.renewals_left -= 1;
        let proposal = self.proposals.next(None, self.calendar(now)).value();
        let candidate = Candidate::new(size(), Shape::mutex());
        for node in 0..NODES {
            let may_end = (self.giving_back | self.doubtful) & (1 << node) != 0;
            if may_end && naive != Some(Naive::SameNumber) {
                self.numbers[node] += 1;
            }
        }
        (self.giving_back, self.doubtful) = (0, 0);
        self.phase = Phase::Wanting { candidate, proposal, waits: true };
        self.ask(0..NODES, now)
    }

    /// Asks all nodes to end the entry, and stops (I6). The calls may be lost.
    pub(super) fn give_up(&mut self) -> Steps {
        self.waited = matches!(self.phase, Phase::Wanting { waits: true, .. });
        self.phase = Phase::Idle;
        (self.giving_back, self.given) = ((1 << NODES) - 1, self.numbers);
        self.start_round();
        Steps { sent: self.to_all(Request::Cancel), granted: None }
    }

    fn to_all(&self, request: Request) -> Vec<(usize, u8, Request)> {
        (0..NODES).map(|node| (node, self.numbers[node], request)).collect()
    }

    /// Gives back the nodes that it has, if they are too few.
    pub(super) fn give_back_minority(&mut self, now: u8, naive: Option<Naive>) -> Steps {
        let Phase::Wanting { candidate, .. } = &mut self.phase else { return Steps::default() };
        let mut steps = Steps::default();
        for node in candidate.minority(seconds(now)) {
            candidate.give_back(node);
            self.giving_back |= 1 << node;
            self.given[node] = self.numbers[node];
            steps.sent.push((node, self.numbers[node], Request::Cancel));
            self.numbers[node] += u8::from(naive != Some(Naive::SameNumber));
        }
        steps
    }

    pub(super) fn renew(&mut self, now: u8) -> Steps {
        self.start_round();
        self.renewals_left -= 1;
        let confirmation = Confirmation::new(size(), size().majority(), seconds(now));
        if let Phase::Holding { renewal, .. } = &mut self.phase {
            *renewal = Some((confirmation, seconds(now)));
        }
        Steps { sent: self.to_all(Request::Renew { commit: None }), granted: None }
    }

    /// Handles an answer, or a message.
    pub(super) fn receive(
        &mut self,
        node: usize,
        sent: u8,
        answer: Answer,
        now: u8,
        naive: Option<Naive>,
    ) -> Steps {
        match &mut self.phase {
            Phase::Idle => {
                if answer == Answer::Cancelled {
                    self.giving_back &= !(1 << node);
                }
                Steps::default()
            }
            Phase::Wanting { candidate, .. } => {
                if answer == Answer::Cancelled {
                    if self.giving_back & (1 << node) == 0 {
                        return Steps::default();
                    }
                    self.giving_back &= !(1 << node);
                    // It waits again at its place.
                    return self.ask(std::iter::once(node), now);
                }
                if self.giving_back & (1 << node) != 0 {
                    return Steps::default();
                }
                note(candidate, node, sent, answer, now, naive);
                self.decide(now, naive)
            }
            Phase::Committing { confirmation, fence, sent } => {
                note_ack(confirmation, node, answer, naive);
                let (fence, sent) = (*fence, *sent);
                match confirmation.verdict() {
                    Confirmed::Open => Steps::default(),
                    _ if confirmation.proves(lease_time(), seconds(now)) => {
                        self.hold(fence, lease::deadline(sent, lease_time()))
                    }
                    _ => self.give_up(),
                }
            }
            Phase::Holding { .. } => self.confirmed(node, answer, now, naive),
        }
    }

    fn decide(&mut self, now: u8, naive: Option<Naive>) -> Steps {
        let calendar = self.calendar(now);
        let Phase::Wanting { candidate, proposal, .. } = &mut self.phase else {
            return Steps::default();
        };
        match candidate.verdict(seconds(now)) {
            Verdict::Open | Verdict::Queued { .. } => Steps::default(),
            Verdict::Granted(hold) => {
                let (fence, deadline) = (hold.fence.value(), hold.deadline());
                self.hold(fence, deadline)
            }
            Verdict::Commit { fence } if naive.is_some_and(Naive::skips_commit) => {
                self.hold(fence.value(), lease::deadline(seconds(now), lease_time()))
            }
            Verdict::Commit { fence } => self.commit(fence.value(), now),
            Verdict::Outdated { last } => {
                self.proposals.note(last, calendar);
                *proposal = self.proposals.next(Some(last), calendar).value();
                let outdated =
                    |node: &usize| matches!(candidate.claim(*node), Claim::Outdated { .. });
                let nodes: Vec<_> = (0..NODES).filter(outdated).collect();
                self.ask(nodes.into_iter(), now)
            }
            Verdict::Busy { .. } | Verdict::Split | Verdict::Refused | Verdict::Failed { .. } => {
                self.give_up()
            }
        }
    }

    fn commit(&mut self, fence: u64, now: u8) -> Steps {
        let Phase::Wanting { candidate, .. } = &self.phase else { return Steps::default() };
        let confirmation = Confirmation::new(size(), candidate.needed(), seconds(now));
        self.phase = Phase::Committing { confirmation, fence, sent: seconds(now) };
        self.start_round();
        Steps { sent: self.to_all(Request::Renew { commit: Some(fence) }), granted: None }
    }

    fn hold(&mut self, fence: u64, deadline: Moment) -> Steps {
        self.start_round();
        self.phase = Phase::Holding { fence, deadline, renewal: None };
        Steps { sent: Vec::new(), granted: Some(fence) }
    }

    /// An answer to a renewal. A hold whose deadline has passed is lost for good; nodes that lost it are repaired.
    fn confirmed(&mut self, node: usize, answer: Answer, now: u8, naive: Option<Naive>) -> Steps {
        let recreates = naive == Some(Naive::RepairWithoutProof);
        let numbers = self.numbers;
        let Phase::Holding { fence, deadline, renewal: Some((confirmation, sent)) } =
            &mut self.phase
        else {
            return Steps::default();
        };
        note_ack(confirmation, node, answer, naive);
        let repair = |node, lease| {
            let request = Request::Acquire { fence: *fence, waits: false, is_repair: true, lease };
            (node, numbers[node], request)
        };
        let mut steps = Steps::default();
        if recreates && answer == Answer::NotHeld {
            steps.sent.push(repair(node, LONGEST));
        }
        if confirmation.verdict() == Confirmed::Extended && (recreates || seconds(now) < *deadline)
        {
            *deadline = (*deadline).max(lease::deadline(*sent, lease_time()));
            for node in 0..NODES {
                if let Some(rest) = confirmation.repair(node, lease_time(), seconds(now)) {
                    let rest = u8::try_from(rest.duration().as_secs()).unwrap_or(0);
                    steps.sent.push(repair(node, rest));
                }
            }
        }
        steps
    }
}

fn lease_time() -> std::time::Duration {
    std::time::Duration::from_secs(LONGEST.into())
}

fn note(
    candidate: &mut Candidate,
    node: usize,
    sent: u8,
    answer: Answer,
    now: u8,
    naive: Option<Naive>,
) {
    let from = if naive == Some(Naive::FromReply) { now } else { sent };
    let claim = match answer {
        Answer::Granted { fence, lease, at } => Claim::Held(Hold {
            fence: Fence::from_value(fence),
            fences: 1,
            stamp: seconds(at),
            at: seconds(from),
            lease: micros(lease),
        }),
        Answer::Queued { at } => {
            let sync = ClockSync { sent: seconds(sent), store: seconds(at) };
            Claim::Queued(Place { ahead: 0, free_in: micros(1), sync })
        }
        Answer::HandedOver { fence, at } => {
            let (fence, lease) = (Fence::from_value(fence), micros(super::CLAIM));
            if naive == Some(Naive::AnyMessage) {
                let hold = Hold { fence, fences: 1, stamp: seconds(at), at: seconds(at), lease };
                return candidate.answer(node, Claim::Held(hold));
            }
            candidate.handed_over(node, (fence, 1), (seconds(at), lease), seconds(now));
            return;
        }
        Answer::Busy => Claim::Busy,
        Answer::Outdated { last } => Claim::Outdated { last: Fence::from_value(last) },
        Answer::Quarantined => Claim::Silent { is_unknown: false },
        Answer::Extended | Answer::NotHeld | Answer::Cancelled => return,
    };
    candidate.answer(node, claim);
}

fn note_ack(confirmation: &mut Confirmation, node: usize, answer: Answer, naive: Option<Naive>) {
    let ack = match answer {
        Answer::Extended => Ack::Extended,
        Answer::NotHeld => Ack::NotHeld,
        Answer::Quarantined => Ack::Silent,
        Answer::Granted { .. } if naive == Some(Naive::RepairWithoutProof) => Ack::Extended,
        _ => return,
    };
    confirmation.note(node, ack);
}
