//! The public state of a lock: its holders, since when and from where they hold it, and its waiters.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::core::fence::Fence;
use crate::core::name::LockName;
use crate::core::shape::Kind;
use crate::error::Invalid;
use crate::host;
use crate::owner::Owner;

/// The description of a holder or waiter, for people. It is not an identity: [`Owner`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct About {
    /// The host it runs on.
    pub host: Arc<str>,
    /// Its process; 0 if there is none: for example, if the process has detached its lock and ended.
    pub pid: u32,
    /// The program's name.
    pub program: Arc<str>,
    /// The caller's note.
    pub note: Option<Arc<str>>,
}

impl About {
    /// The longest note, in bytes.
    pub const MAX_NOTE_BYTES: usize = 1024;

    /// Describes this process, without a note.
    pub fn this_process() -> Self {
        let program = std::env::args_os().next().map(std::path::PathBuf::from);
        let program = program.as_ref().and_then(|path| path.file_name());
        Self {
            host: host::name(),
            pid: std::process::id(),
            program: program.map_or("unknown".into(), |name| name.to_string_lossy().into()),
            note: None,
        }
    }
}

impl About {
    /// A note, if it is not too long.
    pub(crate) fn checked_note(what: &str, text: &str) -> Result<Arc<str>, Invalid> {
        if text.len() <= Self::MAX_NOTE_BYTES {
            return Ok(text.into());
        }
        let (most, length) = (Self::MAX_NOTE_BYTES, text.len());
        Err(Invalid::new(format!(
            "{what} may have at most {most} bytes, and this one has {length}"
        )))
    }
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.program.escape_debug())?;
        if self.pid != 0 {
            write!(f, "[{}]", self.pid)?;
        }
        write!(f, "@{}", self.host.escape_debug())?;
        match &self.note {
            Some(note) => write!(f, " ({})", note.escape_debug()),
            None => Ok(()),
        }
    }
}

/// A lock as of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The lock.
    pub name: LockName,
    /// The kind it is in use as; none while it is free.
    pub kind: Option<Kind>,
    /// How many permits it has; zero while it is free.
    pub limit: u32,
    /// The number of holders.
    pub holding: usize,
    /// The holders, sorted by fence. If there are more than [`LockInfo::HOLDERS_SHOWN`] (or
    /// [`LockInfo::HOLDERS_LISTED`] in a list of locks), these are the ones whose leases end first.
    pub holders: Vec<HolderInfo>,
    /// The number of waiters.
    pub waiting: usize,
    /// The first waiters, in the order of the queue. Empty in a list of locks.
    pub waiters: Vec<WaiterInfo>,
    /// The record of its last forced release, if the store has one.
    pub forced: Option<ForceRecord>,
    /// Why the store cannot read its state of this lock, or a part of it. The unreadable part is unknown:
    /// an empty list of holders does not mean that the lock is free.
    pub error: Option<String>,
    /// What a minority of the nodes of a quorum says otherwise, and which nodes did not answer.
    pub disagreement: Option<String>,
}

impl LockInfo {
    /// The maximum number of waiters shown.
    pub const WAITERS_SHOWN: usize = 1000;

    /// The maximum number of holders shown: inspecting a lock must not block its users.
    pub const HOLDERS_SHOWN: usize = 1000;

    /// The maximum number of holders of each lock in a list.
    pub const HOLDERS_LISTED: usize = 10;

    /// A lock without holders and waiters.
    pub(crate) fn free(name: LockName) -> Self {
        Self {
            name,
            kind: None,
            limit: 0,
            holding: 0,
            holders: Vec::new(),
            waiting: 0,
            waiters: Vec::new(),
            forced: None,
            error: None,
            disagreement: None,
        }
    }

    /// A lock whose state cannot be read, with the reason.
    #[cfg(any(all(feature = "local", target_os = "linux"), feature = "redis"))]
    pub(crate) fn unreadable(name: LockName, error: &crate::StoreError) -> Self {
        Self { error: Some(error.to_string()), ..Self::free(name) }
    }

    /// Returns whether it has no holder. False if the store cannot read it.
    pub fn is_free(&self) -> bool {
        self.holding == 0 && self.error.is_none()
    }
}

/// One holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderInfo {
    /// Its identity.
    pub owner: Owner,
    /// Where it runs, and its note.
    pub about: Arc<About>,
    /// The permits it holds.
    pub permits: u32,
    /// The number of its entries; zero if it has released the lock and lingers for its least holding
    /// time.
    pub entries: u32,
    /// The fence of its grant; [`Fence::NONE`] if it has none.
    pub fence: Fence,
    /// When it acquired the lock, by the store's calendar; 1970 if the store does not know it.
    pub since: SystemTime,
    /// How much of its lease is left.
    pub lease_left: Duration,
}

/// One waiter for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiterInfo {
    /// Its identity.
    pub owner: Owner,
    /// Where it runs, and its note.
    pub about: Arc<About>,
    /// The permits it waits for.
    pub permits: u32,
    /// When it started to wait, by the store's calendar.
    pub since: SystemTime,
}

/// The record of a forced release.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForceRecord {
    /// The lock.
    pub name: LockName,
    /// The former holders.
    pub owners: Vec<Owner>,
    /// The client that forced the release.
    pub by: Arc<About>,
    /// The reason.
    pub reason: Arc<str>,
    /// The time, by the store's calendar.
    pub at: SystemTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No pid is shown if there is no process; names of other clients are escaped.
    #[test]
    fn a_holder_is_shown_with_its_process_if_it_has_one() {
        let mut about = About {
            host: "db1".into(),
            pid: 4711,
            program: "backup.sh".into(),
            note: Some("nightly\n".into()),
        };
        assert_eq!(about.to_string(), r"backup.sh[4711]@db1 (nightly\n)");
        (about.pid, about.note) = (0, None);
        assert_eq!(about.to_string(), "backup.sh@db1");
    }
}
