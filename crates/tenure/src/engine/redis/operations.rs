//! Each operation's part of a script's arguments and answers. Positions are known here alone.

use super::batch::Batched;
use super::keys;
use super::resp::{Command, Reply};
use super::scripts::{ACQUIRE, CANCEL, RELEASE, RENEW, Script};
use crate::core::fence::Fence;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::core::shape::{Kind, Shape};
use crate::engine::{
    AcquireRequest, Acquired, CancelRequest, Grant, ReleaseOutcome, ReleaseRequest, Renewal,
    Renewed, Standing,
};
use std::time::Duration;

impl Batched for AcquireRequest {
    type Outcome = Acquired;

    fn script() -> &'static Script {
        &ACQUIRE
    }

    fn name(&self) -> &LockName {
        &self.name
    }

    fn arguments(&self, into: &mut Command) {
        into.push(self.entry.owner.to_string());
        into.push(self.lease.duration().as_millis().to_string());
        into.push(wish(self));
    }

    fn read(reply: &Reply) -> Option<Acquired> {
        let replies = reply.array()?;
        match (replies.first()?.number()?, replies) {
            (1, [_, fence, fences, lease, at]) => Some(Acquired::Granted(Grant {
                fence: Fence::from_value(fence.number()?),
                fences: fences.number()? as u32,
                lease: Duration::from_micros(lease.number()?),
                at: Moment::from_micros(at.number()?),
            })),
            (2, [_, ahead, free_in, at]) => Some(Acquired::Queued(Standing {
                ahead: ahead.number()? as u32,
                free_in: Duration::from_micros(free_in.number()?),
                at: Moment::from_micros(at.number()?),
            })),
            (3, _) => Some(Acquired::Busy),
            (4, [_, shape]) => {
                let (kind, limit) = read_shape(shape.text()?)?;
                Some(Acquired::Mismatch { kind, limit })
            }
            (5, [_, held]) => Some(Acquired::Upgrade { held: held.number()? as u32 }),
            _ => None,
        }
    }
}

/// What an acquire wants besides owner and lease; the plainest wish is the shortest.
fn wish(request: &AcquireRequest) -> String {
    let note = request.about.note.as_deref().unwrap_or_default();
    let is_plain = request.queue.is_none() && request.shape == Shape::mutex();
    if is_plain && request.entry.number == 0 && note.is_empty() {
        return "-".to_owned();
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
        keys::encode(note),
    )
}

fn shape(shape: Shape) -> String {
    let kind = match shape.kind() {
        Kind::Mutex => 'm',
        Kind::ReadWrite => 'r',
        Kind::Semaphore => 's',
    };
    format!("{kind}{}", shape.limit())
}

/// The kind and limit of a lock in use.
pub(super) fn read_shape(text: &str) -> Option<(Kind, u32)> {
    let kind = match text.get(..1)? {
        "m" => Kind::Mutex,
        "r" => Kind::ReadWrite,
        "s" => Kind::Semaphore,
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

    fn arguments(&self, into: &mut Command) {
        into.push(self.owner.to_string());
        into.push(self.lease.duration().as_millis().to_string());
    }

    fn read(reply: &Reply) -> Option<Renewed> {
        Some(if reply.number()? == 1 { Renewed::Extended } else { Renewed::NotHeld })
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

    fn arguments(&self, into: &mut Command) {
        into.push(self.entry.owner.to_string());
        // A remainder of a millisecond must not become nothing: nothing means no lingering.
        let linger = self.linger.as_micros().div_ceil(1000);
        match (self.entry.number, linger) {
            (0, 0) => into.push("-"),
            (number, linger) => into.push(format!("{number:x} {linger}")),
        }
    }

    fn read(reply: &Reply) -> Option<ReleaseOutcome> {
        match reply {
            Reply::Integer(-1) => Some(ReleaseOutcome::NotHeld),
            Reply::Integer(remaining) => {
                Some(ReleaseOutcome::Released { remaining: u32::try_from(*remaining).ok()? })
            }
            _ => None,
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

    fn arguments(&self, into: &mut Command) {
        into.push(self.entry.owner.to_string());
        into.push(format!("{:x}", self.entry.number));
    }

    fn read(reply: &Reply) -> Option<()> {
        reply.number().map(drop)
    }
}
