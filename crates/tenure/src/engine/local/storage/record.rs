//! The records as bytes. The first byte is the version of the format.

use std::time::{Duration, SystemTime};

use super::bytes::{Reader, Unreadable, Writer};
use crate::core::fence::Fence;
use crate::core::holders::{Entries, Holder, Holders};
use crate::core::lock::LockState;
use crate::core::queue::{Queue, Waiter};
use crate::core::shape::{Kind, Shape};
use crate::core::table::ClientId;
use crate::info::ForceRecord;

/// Another format gets another version, so that no program misreads it.
const VERSION: u8 = 1;

/// The version of a lock whose waiters have proposals; each of them is one field longer.
const WITH_PROPOSALS: u8 = 2;

/// The state of the store besides its locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) last_client_id: ClientId,
    pub(crate) last_fence: u64,
    /// At this number of records, a sweep for locks that are not in use begins.
    pub(crate) sweep_at: u64,
}

impl Meta {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::with_tag(VERSION);
        out.short(self.last_client_id);
        out.long(self.last_fence);
        out.long(self.sweep_at);
        out.finish()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        read(bytes, |from| {
            let (last_client_id, last_fence) = (from.short()?, from.fence()?.value());
            Ok(Self { last_client_id, last_fence, sweep_at: from.long()? })
        })
    }
}

pub(crate) fn encode_lock(lock: &LockState) -> Vec<u8> {
    let mut waiters = lock.queue.iter().flat_map(|queue| queue.iter());
    let has_proposals = waiters.any(|waiter| waiter.proposal.is_some());
    let mut out = Writer::with_tag(if has_proposals { WITH_PROPOSALS } else { VERSION });
    out.byte(number_of(lock.kind));
    out.short(lock.limit);
    out.length(lock.holders.len());
    // Sorted, so that the same lock has the same bytes, and one that was only read is not written again.
    if let Holders::One(holder) = &lock.holders {
        write_holder(&mut out, holder);
    } else {
        let mut holders: Vec<_> = lock.holders.iter().collect();
        holders.sort_unstable_by_key(|holder| (holder.fence, holder.owner));
        holders.into_iter().for_each(|holder| write_holder(&mut out, holder));
    }
    out.length(lock.queue.as_ref().map_or(0, |queue| queue.len()));
    for waiter in lock.queue.iter().flat_map(|queue| queue.iter()) {
        write_waiter(&mut out, waiter);
        if has_proposals {
            out.long(waiter.proposal.map_or(0, Fence::value));
        }
    }
    out.finish()
}

/// Also refuses bytes that can be read but are no valid lock: the rules would fail on it, or not terminate.
pub(crate) fn decode_lock(bytes: &[u8]) -> Result<LockState, Unreadable> {
    let has_proposals = bytes.first() == Some(&WITH_PROPOSALS);
    let version = if has_proposals { WITH_PROPOSALS } else { VERSION };
    read_version(version, bytes, |from| {
        let (kind, limit) = (kind_of(from.byte()?)?, from.short()?);
        Shape::new(kind, limit, 1).map_err(|_| "its limit is out of range")?;
        let mut lock = LockState { kind, limit, holders: Holders::None, queue: None };
        for _ in 0..from.length()? {
            let holder = read_holder(from)?;
            if lock.holders.used() + holder.permits > Shape::MAX_LIMIT {
                return Err("its holders have more permits than are allowed");
            }
            if lock.holders.find(holder.owner).is_some() {
                return Err("one owner holds it twice");
            }
            lock.holders.insert(holder);
        }
        for _ in 0..from.length()? {
            let mut waiter = read_waiter(from)?;
            if has_proposals {
                waiter.proposal = Some(from.fence()?).filter(|fence| fence.value() > 0);
            }
            let queue = lock.queue.get_or_insert_with(Box::<Queue>::default);
            if queue.find_mut(waiter.entry).is_some() {
                return Err("one entry waits twice");
            }
            queue.push(waiter);
        }
        Ok(lock)
    })
}

pub(crate) fn encode_forced(record: &ForceRecord) -> Vec<u8> {
    let mut out = Writer::with_tag(VERSION);
    // First, so that the oldest can be found without reading all.
    out.duration(record.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
    out.text(record.name.as_str());
    out.length(record.owners.len());
    record.owners.iter().for_each(|&owner| out.owner(owner));
    out.about(&record.by);
    out.text(&record.reason);
    out.finish()
}

pub(crate) fn decode_forced(bytes: &[u8]) -> Result<ForceRecord, Unreadable> {
    read(bytes, |from| {
        let since_1970 = from.duration()?;
        let at =
            SystemTime::UNIX_EPOCH.checked_add(since_1970).ok_or("its time is out of range")?;
        let name = from.name()?;
        let owners = (0..from.length()?).map(|_| from.owner()).collect::<Result<_, _>>()?;
        Ok(ForceRecord { name, owners, by: from.about()?, reason: from.text()?.into(), at })
    })
}

/// The time of a forced release; an unreadable record counts as the oldest.
pub(crate) fn forced_at(bytes: &[u8]) -> Duration {
    let mut from = Reader::new(bytes.get(1..).unwrap_or_default());
    from.duration().unwrap_or_default()
}

/// Reads a whole record.
fn read<T>(
    bytes: &[u8],
    content: impl FnOnce(&mut Reader<'_>) -> Result<T, Unreadable>,
) -> Result<T, Unreadable> {
    read_version(VERSION, bytes, content)
}

fn read_version<T>(
    version: u8,
    bytes: &[u8],
    content: impl FnOnce(&mut Reader<'_>) -> Result<T, Unreadable>,
) -> Result<T, Unreadable> {
    let mut from = Reader::new(bytes);
    if from.byte()? != version {
        return Err("it was not written by this version of Tenure");
    }
    let value = content(&mut from)?;
    from.finish()?;
    Ok(value)
}

fn write_holder(out: &mut Writer, holder: &Holder) {
    out.owner(holder.owner);
    out.short(holder.permits);
    out.short(holder.fences);
    out.long(holder.fence.value());
    out.moment(holder.until);
    out.moment(holder.since);
    out.short(holder.client_id);
    let numbers = holder.entries.numbers();
    out.length(numbers.len());
    numbers.iter().for_each(|&number| out.long(number));
    out.about(&holder.about);
}

fn read_holder(from: &mut Reader<'_>) -> Result<Holder, Unreadable> {
    Ok(Holder {
        owner: from.owner()?,
        permits: from.permits()?,
        fences: from.short()?,
        fence: from.fence()?,
        until: from.moment()?,
        since: from.moment()?,
        client_id: from.short()?,
        entries: {
            let mut entries = Entries::None;
            for _ in 0..from.length()? {
                entries.add(from.long()?);
            }
            entries
        },
        about: from.about()?,
    })
}

fn write_waiter(out: &mut Writer, waiter: &Waiter) {
    out.entry(waiter.entry);
    out.short(waiter.permits);
    out.duration(waiter.lease.duration());
    out.duration(waiter.claim);
    out.short(waiter.fences);
    out.moment(waiter.alive_until);
    out.moment(waiter.since);
    out.short(waiter.client_id);
    out.about(&waiter.about);
}

fn read_waiter(from: &mut Reader<'_>) -> Result<Waiter, Unreadable> {
    Ok(Waiter {
        entry: from.entry()?,
        permits: from.permits()?,
        lease: from.lease()?,
        claim: from.duration()?,
        fences: from.short()?,
        proposal: None,
        alive_until: from.moment()?,
        since: from.moment()?,
        client_id: from.short()?,
        about: from.about()?,
    })
}

fn number_of(kind: Kind) -> u8 {
    match kind {
        Kind::Mutex => 0,
        Kind::ReadWrite => 1,
        Kind::Semaphore => 2,
        Kind::Latch => 3,
        Kind::Barrier => 4,
    }
}

fn kind_of(number: u8) -> Result<Kind, Unreadable> {
    Ok(match number {
        0 => Kind::Mutex,
        1 => Kind::ReadWrite,
        2 => Kind::Semaphore,
        3 => Kind::Latch,
        4 => Kind::Barrier,
        _ => return Err("its kind of lock is unknown"),
    })
}
