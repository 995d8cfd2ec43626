//! A list of locks, in slices: all other operations wait during a transaction, so that each slice is a short
//! transaction of its own, and other operations run in between. Each lock is consistent in itself, but the list is
//! not one snapshot.

use std::time::Duration;

use super::store::Store;
use super::transaction::{Done, Subject};
use crate::clock;
use crate::engine::ListRequest;
use crate::engine::local::waiting::store_mutex::Patience;
use crate::error::StoreError;
use crate::info::LockInfo;

/// How long a slice may take. It has at least one lock, however long that takes.
pub(crate) const SLICE: Duration = Duration::from_millis(1);

/// The pause after a slice, as a multiple of its time. Operations that wait for the store's mutex poll at least every
/// two milliseconds, so that even several concurrent lists do not starve them.
const PAUSE_FACTOR: u32 = 2;

/// The progress of a list.
pub(crate) struct Progress {
    /// Which names are listed.
    pub(crate) prefix: String,
    /// How many locks may still be added.
    pub(crate) remaining: usize,
    /// The key of the last lock that was read.
    pub(crate) after: Vec<u8>,
    /// All locks were read, or the limit is reached.
    pub(crate) is_done: bool,
}

pub(crate) fn list(store: &Store, request: ListRequest) -> Result<Vec<LockInfo>, StoreError> {
    let ListRequest { prefix, limit: remaining } = request;
    let mut progress = Progress { prefix, remaining, after: Vec::new(), is_done: remaining == 0 };
    let mut infos = Vec::new();
    while !progress.is_done {
        let begun = clock::now();
        let slice = slice(store, &mut progress)?;
        progress.remaining -= slice.len();
        infos.extend(slice);
        if !progress.is_done {
            pause(clock::now().since(begun).min(SLICE) * PAUSE_FACTOR);
        }
    }
    Ok(infos)
}

fn slice(store: &Store, progress: &mut Progress) -> Result<Vec<LockInfo>, StoreError> {
    let (prefix, limit) = (progress.prefix.clone(), progress.remaining);
    let all = ListRequest { prefix, limit };
    let subject = Subject::Slice(progress);
    let done = store.perform_on_each(Patience::Long, subject, |table, now, effects| {
        table.list(&all, now, effects)
    })?;
    let Done { outcome: mut infos, unreadable, .. } = done;
    let unreadable = unreadable.into_iter();
    infos.extend(unreadable.map(|(name, trouble)| LockInfo::unreadable(name, &trouble)));
    infos.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    infos.truncate(limit);
    Ok(infos)
}

#[expect(clippy::disallowed_methods, reason = "for about as long as some operations take")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
