//! Each operation's part of a script's arguments and answers. Only this file knows the positions.

use super::batch::{Batched, Common};
use super::keys;
use super::resp::Command;
use super::scripts::{ACQUIRE, CANCEL, RELEASE, RENEW, Script};
use crate::core::fence::Fence;
use crate::core::lease::Lease;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::core::shape::{Kind, Shape};
use crate::engine::{
    AcquireRequest, Acquired, CancelRequest, Grant, Proposal, ReleaseOutcome, ReleaseRequest,
    Renewal, Renewed, Standing,
};
use crate::owner::{Entry, Owner};
use std::time::Duration;

impl Batched for AcquireRequest {
    type Outcome = Acquired;

    const IS_SENT_AGAIN: bool = true;

    fn script() -> &'static Script {
        &ACQUIRE
    }

    fn name(&self) -> &LockName {
        &self.name
    }

    fn owner(&self) -> Owner {
        self.entry.owner
    }

    fn arguments(&self, common: Common<'_>, into: &mut Command) {
        let lease = self.lease.duration().as_millis();
        // After its release, a key is kept for the rest of the lease, unless the lease is longer than a minute.
        let mark = if lease <= 60_000 { ' ' } else { '-' };
        into.push(format!("{mark}{lease:08} {} {}", self.entry.owner, common.client));
        into.push((lease + u128::from(common.retention)).to_string());
        into.push(match self.proposal {
            None => options(self),
            Some(Proposal { fence, is_repair, is_repeated }) => {
                // It makes a difference to semaphores, and to owners that enter again; others have a shorter path.
                let is_repeated =
                    is_repeated && (self.shape.kind() == Kind::Semaphore || self.entry.number != 0);
                let mark = if is_repair {
                    '>'
                } else if is_repeated {
                    '~'
                } else {
                    '='
                };
                format!("{mark}{:016} {}", fence.value(), options(self))
            }
        });
    }

    fn is_plain(&self) -> bool {
        self.proposal.is_none() && is_plain(self)
    }

    fn kind(&self) -> Kind {
        self.shape.kind()
    }

    fn read(&self, line: &str) -> Option<Acquired> {
        // A plain grant, by far the most frequent answer: its fence is its time.
        if let Some(fence) = line.strip_prefix("1 ")
            && let Ok(at) = fence.parse()
        {
            return Some(Acquired::Granted(Grant {
                fence: Fence::from_value(at),
                fences: 1,
                lease: self.lease.duration(),
                at: Moment::from_micros(at),
            }));
        }
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["1", fence, at] => Some(Acquired::Granted(Grant {
                fence: Fence::from_value(fence.parse().ok()?),
                fences: 1,
                lease: self.lease.duration(),
                at: Moment::from_micros(at.parse().ok()?),
            })),
            ["1", fence, fences, lease, at] => Some(Acquired::Granted(Grant {
                fence: Fence::from_value(fence.parse().ok()?),
                fences: fences.parse().ok()?,
                lease: Duration::from_millis(lease.parse().ok()?),
                at: Moment::from_micros(at.parse().ok()?),
            })),
            ["2", ahead, free_in, at] => Some(Acquired::Queued(Standing {
                ahead: ahead.parse().ok()?,
                free_in: Duration::from_micros(free_in.parse().ok()?),
                at: Moment::from_micros(at.parse().ok()?),
            })),
            ["3"] => Some(Acquired::Busy),
            ["4", shape] => {
                let (kind, limit) = read_shape(shape)?;
                Some(Acquired::Mismatch { kind, limit })
            }
            ["5", held] => Some(Acquired::Upgrade { held: held.parse().ok()? }),
            ["6", last] => Some(Acquired::Outdated { last: Fence::from_value(last.parse().ok()?) }),
            ["7", now] => Some(Acquired::Ahead { clock: Moment::from_micros(now.parse().ok()?) }),
            _ => None,
        }
    }
}

/// A lease as the scripts store it: with as many digits as the longest one.
fn lease(lease: Lease) -> String {
    format!("{:08}", lease.duration().as_millis())
}

fn note(request: &AcquireRequest) -> &str {
    request.about.note.as_deref().unwrap_or_default()
}

/// Whether the plain case of the script may grant it: for the one permit of a mutex, entered once, without a note.
fn is_plain(request: &AcquireRequest) -> bool {
    request.shape == Shape::mutex() && request.entry.number == 0 && note(request).is_empty()
}

/// The options of an acquire besides owner and lease; the plain case has the shortest form.
fn options(request: &AcquireRequest) -> String {
    if is_plain(request) {
        return request.queue.map_or("-".to_owned(), |queue| {
            let (heartbeat, claim) = (queue.heartbeat.as_millis(), queue.claim.as_millis());
            format!("+{heartbeat} {claim} {}", queue.fences)
        });
    }
    let queue = request.queue.as_ref();
    format!(
        "{:x} {} {} {} {} {} {}",
        request.entry.number,
        shape(request.shape),
        request.shape.permits(),
        queue.map_or(0, |queue| queue.heartbeat.as_millis()),
        queue.map_or(0, |queue| queue.claim.as_millis()),
        queue.map_or(1, |queue| queue.fences),
        keys::encode(note(request)),
    )
}

fn shape(shape: Shape) -> String {
    let kind = match shape.kind() {
        Kind::Mutex => 'm',
        Kind::ReadWrite => 'r',
        Kind::Semaphore => 's',
        Kind::Latch => 'l',
        Kind::Barrier => 'b',
    };
    format!("{kind}{}", shape.limit())
}

/// The kind and limit of a lock in use.
pub(super) fn read_shape(text: &str) -> Option<(Kind, u32)> {
    let kind = match text.get(..1)? {
        "m" => Kind::Mutex,
        "r" => Kind::ReadWrite,
        "s" => Kind::Semaphore,
        "l" => Kind::Latch,
        "b" => Kind::Barrier,
        _ => return None,
    };
    Some((kind, text.get(1..)?.parse().ok()?))
}

impl Batched for Renewal {
    type Outcome = Renewed;

    fn script() -> &'static Script {
        &RENEW
    }

    fn name(&self) -> &LockName {
        &self.name
    }

    fn owner(&self) -> Owner {
        self.entry.owner
    }

    fn arguments(&self, _: Common<'_>, into: &mut Command) {
        let Entry { owner, number } = self.entry;
        into.push(match (number, self.commit) {
            (0, None) => owner.to_string(),
            (number, None) => format!("{owner} {number:x}"),
            (number, Some(fence)) => format!("{owner} {number:x} {:016}", fence.value()),
        });
        into.push(lease(self.lease));
    }

    fn is_plain(&self) -> bool {
        self.commit.is_none() && self.entry.number == 0
    }

    fn read(&self, line: &str) -> Option<Renewed> {
        match line {
            "1" => Some(Renewed::Extended),
            "0" => Some(Renewed::NotHeld),
            _ => None,
        }
    }
}

impl Batched for ReleaseRequest {
    type Outcome = ReleaseOutcome;

    fn script() -> &'static Script {
        &RELEASE
    }

    fn name(&self) -> &LockName {
        &self.name
    }

    fn owner(&self) -> Owner {
        self.entry.owner
    }

    fn arguments(&self, _: Common<'_>, into: &mut Command) {
        let owner = self.entry.owner;
        // A fraction of a millisecond must not become 0, which means no lingering.
        let linger = self.linger.as_micros().div_ceil(1000);
        match (self.entry.number, linger, self.keep) {
            (0, 0, 0) => into.push(owner.to_string()),
            (number, linger, keep) => into.push(format!("{owner} {number:x} {linger} {keep}")),
        }
    }

    fn hands_over(&self) -> bool {
        self.is_contended && self.linger.is_zero()
    }

    fn is_plain(&self) -> bool {
        !self.is_contended && self.entry.number == 0 && self.linger.is_zero() && self.keep == 0
    }

    fn read(&self, line: &str) -> Option<ReleaseOutcome> {
        match line {
            "none" => Some(ReleaseOutcome::NotHeld),
            remaining => Some(ReleaseOutcome::Released { remaining: remaining.parse().ok()? }),
        }
    }
}

impl Batched for CancelRequest {
    type Outcome = ();

    fn script() -> &'static Script {
        &CANCEL
    }

    fn name(&self) -> &LockName {
        &self.name
    }

    fn owner(&self) -> Owner {
        self.entry.owner
    }

    fn arguments(&self, _: Common<'_>, into: &mut Command) {
        into.push(self.entry.owner.to_string());
        into.push(format!("{:x}", self.entry.number));
    }

    fn read(&self, line: &str) -> Option<()> {
        (line == "0").then_some(())
    }
}
