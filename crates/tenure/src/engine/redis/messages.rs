//! Messages to a client, as the scripts publish them.

use std::time::Duration;

use super::keys;
use crate::core::fence::Fence;
use crate::core::moment::Moment;
use crate::engine::{Grant, Wakeup};
use crate::owner::Entry;

/// `granted owner:number fence fences lease-in-ms at key`, `lost owner key` or
/// `sooner owner:number key`.
pub(super) fn read(message: &str) -> Option<Wakeup> {
    let words: Vec<_> = message.split(' ').collect();
    match words[..] {
        ["granted", entry, fence, fences, lease, at, key] => {
            let grant = Grant {
                fence: Fence::from_value(fence.parse().ok()?),
                fences: fences.parse().ok()?,
                lease: Duration::from_millis(lease.parse().ok()?),
                at: Moment::from_micros(at.parse().ok()?),
            };
            Some(Wakeup::Granted { name: keys::name(key)?, entry: read_entry(entry)?, grant })
        }
        ["lost", owner, key] => {
            Some(Wakeup::Lost { name: keys::name(key)?, owner: owner.parse().ok()? })
        }
        ["sooner", entry, key] => {
            Some(Wakeup::Sooner { name: keys::name(key)?, entry: read_entry(entry)? })
        }
        _ => None,
    }
}

/// An entry as the scripts write it.
pub(super) fn read_entry(text: &str) -> Option<Entry> {
    let (owner, number) = text.split_once(':')?;
    Some(Entry { owner: owner.parse().ok()?, number: u64::from_str_radix(number, 16).ok()? })
}
