//! A wake-up to another process, encoded as one datagram.

use crate::engine::local::storage::bytes::{Reader, Unreadable, Writer};
use crate::engine::{Grant, Wakeup};

/// The longest wake-up: a name has at most 512 bytes.
pub(crate) const MAX_BYTES: usize = 1024;

const GRANTED: u8 = 1;
const LOST: u8 = 2;
const MISSED: u8 = 3;
const SOONER: u8 = 4;

pub(crate) fn encode(wakeup: &Wakeup) -> Vec<u8> {
    match wakeup {
        Wakeup::Granted { name, entry, grant } => {
            let mut out = Writer::with_tag(GRANTED);
            out.text(name.as_str());
            out.entry(*entry);
            out.long(grant.fence.value());
            out.short(grant.fences);
            out.duration(grant.lease);
            out.moment(grant.at);
            out.finish()
        }
        Wakeup::Lost { name, owner } => {
            let mut out = Writer::with_tag(LOST);
            out.text(name.as_str());
            out.owner(*owner);
            out.finish()
        }
        Wakeup::Sooner { name, entry } => {
            let mut out = Writer::with_tag(SOONER);
            out.text(name.as_str());
            out.entry(*entry);
            out.finish()
        }
        // Only an engine without a queue reports that a lock is free, and only one that can be unreachable that it is back.
        Wakeup::Missed | Wakeup::MissedIn(_) | Wakeup::Returned | Wakeup::Freed { .. } => {
            Writer::with_tag(MISSED).finish()
        }
    }
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Wakeup, Unreadable> {
    let mut from = Reader::new(bytes);
    let wakeup = match from.byte()? {
        GRANTED => Wakeup::Granted {
            name: from.name()?,
            entry: from.entry()?,
            grant: Grant {
                fence: from.fence()?,
                fences: from.short()?,
                lease: from.duration()?,
                at: from.moment()?,
            },
        },
        LOST => Wakeup::Lost { name: from.name()?, owner: from.owner()? },
        MISSED => Wakeup::Missed,
        SOONER => Wakeup::Sooner { name: from.name()?, entry: from.entry()? },
        _ => return Err("its kind is unknown"),
    };
    from.finish()?;
    Ok(wakeup)
}
