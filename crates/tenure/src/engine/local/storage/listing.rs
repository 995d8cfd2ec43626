//! A list of locks, in slices: all others wait meanwhile, so each slice is a short turn of its own, and
//! between two of them others have theirs. Each lock is as it was at one moment, but not all at the same.

use std::time::Duration;

use super::store::Store;
use super::transaction::{Done, Subject};
use crate::clock;
use crate::engine::ListRequest;
use crate::engine::local::waiting::store_mutex::Patience;
use crate::error::StoreError;
use crate::info::LockInfo;

/// How long a slice may last. One lock at least is in it, however long that takes.
pub(crate) const SLICE: Duration = Duration::from_millis(1);

/// How much longer than a slice others are let in before the next. Those who wait look every two
/// milliseconds at the least, so that several who list leave them enough.
const PAUSE: u32 = 2;

/// How far a list has come.
pub(crate) struct Progress {
    /// Names that begin so.
    pub(crate) prefix: String,
    /// How many locks are still wanted.
    pub(crate) most: usize,
    /// The key of the last lock that was looked at.
    pub(crate) after: Vec<u8>,
    /// There are no more, or no more are wanted.
    pub(crate) is_over: bool,
}

pub(crate) fn list(store: &Store, request: ListRequest) -> Result<Vec<LockInfo>, StoreError> {
    let ListRequest { prefix, limit: most } = request;
    let mut progress = Progress { prefix, most, after: Vec::new(), is_over: most == 0 };
    let mut infos = Vec::new();
    while !progress.is_over {
        let begun = clock::now();
        let slice = slice(store, &mut progress)?;
        progress.most -= slice.len();
        infos.extend(slice);
        if !progress.is_over {
            pause(clock::now().since(begun).min(SLICE) * PAUSE);
        }
    }
    Ok(infos)
}

fn slice(store: &Store, progress: &mut Progress) -> Result<Vec<LockInfo>, StoreError> {
    let (prefix, limit) = (progress.prefix.clone(), progress.most);
    let all = ListRequest { prefix, limit };
    let subject = Subject::Below(progress);
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
