//! Random operations on a few locks of every kind, by a few owners.

use std::time::Duration;

use proptest::prelude::*;

use crate::core::fence::Fence;
use crate::core::moment::Moment;
use crate::core::shape::{Kind, Shape};
use crate::engine::Proposal;

/// One step of a sequence. Owners and locks are numbers, so that a failure is short to read.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Acquire {
        lock: Lock,
        owner: u8,
        number: u8,
        lease: u16,
        queue: Option<Queue>,
        proposal: Option<(Offer, Purpose)>,
    },
    Renew {
        lock: Lock,
        owner: u8,
        number: u8,
        lease: u16,
        commit: Option<Offer>,
    },
    Release {
        lock: Lock,
        owner: u8,
        number: u8,
        linger: u16,
        keep: u8,
    },
    Cancel {
        lock: Lock,
        owner: u8,
        number: u8,
    },
    Force {
        lock: Lock,
        owner: Option<u8>,
    },
    Inspect {
        lock: Lock,
    },
    /// The steady clock advances; the calendar jumps anywhere.
    Pass {
        millis: u16,
        wall_jump: i32,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    pub(crate) heartbeat: u16,
    pub(crate) claim: u16,
    pub(crate) fences: u32,
}

/// A fence near the last one, or near the calendar, in µs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Offer {
    AfterLast(i8),
    AtTime(i32),
}

impl Offer {
    pub(crate) fn fence(self, last: Fence, wall: Moment) -> Fence {
        Fence::from_value(match self {
            Self::AfterLast(by) => last.value().saturating_add_signed(by.into()),
            Self::AtTime(by) => wall.as_micros().saturating_add_signed(by.into()),
        })
    }
}

/// What a proposal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    New,
    Repeated,
    Repair,
}

/// What is proposed: a fence, and what for.
pub(crate) fn proposal(
    offer: Option<(Offer, Purpose)>,
    last: Fence,
    wall: Moment,
) -> Option<Proposal> {
    offer.map(|(offer, purpose)| Proposal {
        fence: offer.fence(last, wall),
        is_repair: purpose == Purpose::Repair,
        is_repeated: purpose == Purpose::Repeated,
    })
}

/// One lock of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lock {
    Mutex,
    Semaphore,
    ReadWrite,
    Latch,
    Barrier,
}

impl Lock {
    pub(crate) const ALL: [Self; 5] =
        [Self::Mutex, Self::Semaphore, Self::ReadWrite, Self::Latch, Self::Barrier];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::Semaphore => "semaphore",
            Self::ReadWrite => "read-write",
            Self::Latch => "latch",
            Self::Barrier => "barrier",
        }
    }

    /// What an entry requests of this lock: the same every time. Owners do not agree on the limit of the
    /// semaphore.
    pub(crate) fn shape(self, owner: u8, number: u64) -> Shape {
        let mixed = (u32::from(owner) + number as u32) % 3;
        let (kind, limit, permits) = match self {
            Self::Mutex => (Kind::Mutex, 1, 1),
            Self::Semaphore => {
                let limit = 2 + u32::from(owner % 3);
                (Kind::Semaphore, limit, limit.min(mixed + 1))
            }
            Self::ReadWrite => (Kind::ReadWrite, 1000, if mixed > 0 { 1000 } else { 1 }),
            Self::Latch => (Kind::Latch, 3, mixed),
            Self::Barrier => (Kind::Barrier, 3, 1),
        };
        Shape::new(kind, limit, permits).unwrap()
    }
}

impl Operation {
    /// The lock it is on; for a pause, any.
    pub(crate) fn lock(&self) -> Lock {
        match self {
            Self::Acquire { lock, .. }
            | Self::Renew { lock, .. }
            | Self::Release { lock, .. }
            | Self::Cancel { lock, .. }
            | Self::Force { lock, .. }
            | Self::Inspect { lock } => *lock,
            Self::Pass { .. } => Lock::Mutex,
        }
    }

    /// The same on another lock.
    pub(crate) fn on(&self, other: Lock) -> Self {
        let mut operation = self.clone();
        match &mut operation {
            Self::Acquire { lock, .. }
            | Self::Renew { lock, .. }
            | Self::Release { lock, .. }
            | Self::Cancel { lock, .. }
            | Self::Force { lock, .. }
            | Self::Inspect { lock } => *lock = other,
            Self::Pass { .. } => {}
        }
        operation
    }
}

pub(crate) fn millis(millis: u16) -> Duration {
    Duration::from_millis(millis.into())
}

/// Sequences without proposals.
pub(crate) fn operations() -> impl Strategy<Value = Vec<Operation>> {
    prop::collection::vec(operation(false), 1..80)
}

/// Sequences on a node of a quorum: most requests have proposals.
pub(crate) fn node_operations() -> impl Strategy<Value = Vec<Operation>> {
    prop::collection::vec(operation(true), 1..80)
}

/// Proposals are mostly near the calendar; some are near the last fence, or so far away that they are refused.
fn offer() -> impl Strategy<Value = Offer> {
    prop_oneof![
        3 => (-2i8..4).prop_map(Offer::AfterLast),
        6 => (-3_000i32..6_000).prop_map(Offer::AtTime),
        1 => (-100_000_000i32..100_000_000).prop_map(Offer::AtTime),
    ]
}

fn lock() -> impl Strategy<Value = Lock> {
    prop_oneof![3 => Just(Lock::Mutex), 2 => Just(Lock::Semaphore), 2 => Just(Lock::ReadWrite)]
}

fn operation(proposes: bool) -> impl Strategy<Value = Operation> {
    let (owner, number, lease) = (0u8..5, 0u8..3, 10u16..100);
    let queue = (20u16..200, 10u16..100, 1u32..5).prop_map(|(heartbeat, claim, fences)| Queue {
        heartbeat,
        claim,
        fences,
    });
    let purpose = prop_oneof![
        3 => Just(Purpose::New),
        1 => Just(Purpose::Repeated),
        1 => Just(Purpose::Repair),
    ];
    let proposal = prop::option::weighted(0.8, (offer(), purpose))
        .prop_map(move |proposal| proposal.filter(|_| proposes));
    let commit =
        prop::option::weighted(0.4, offer()).prop_map(move |commit| commit.filter(|_| proposes));
    let queue = prop::option::of(queue);
    let acquire = (lock(), owner.clone(), number.clone(), lease.clone(), queue, proposal);
    let linger = prop_oneof![4 => Just(0u16), 1 => 1u16..60];
    let keep = prop_oneof![4 => Just(0u8), 1 => 1u8..3];
    let wall_jump = prop_oneof![4 => Just(0i32), 1 => -2_000_000i32..2_000_000];
    prop_oneof![
        8 => acquire.prop_map(|(lock, owner, number, lease, queue, proposal)| {
            Operation::Acquire { lock, owner, number, lease, queue, proposal }
        }),
        3 => (lock(), owner.clone(), number.clone(), lease, commit).prop_map(
            |(lock, owner, number, lease, commit)| Operation::Renew {
                lock,
                owner,
                number,
                lease,
                commit
            }
        ),
        5 => (lock(), owner.clone(), number.clone(), linger, keep).prop_map(
            |(lock, owner, number, linger, keep)| Operation::Release {
                lock,
                owner,
                number,
                linger,
                keep
            }
        ),
        2 => (lock(), owner.clone(), number)
            .prop_map(|(lock, owner, number)| Operation::Cancel { lock, owner, number }),
        1 => (lock(), prop::option::of(owner))
            .prop_map(|(lock, owner)| Operation::Force { lock, owner }),
        1 => lock().prop_map(|lock| Operation::Inspect { lock }),
        4 => (0u16..60, wall_jump)
            .prop_map(|(millis, wall_jump)| Operation::Pass { millis, wall_jump }),
    ]
}
