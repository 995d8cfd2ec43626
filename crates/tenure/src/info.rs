//! What others can read of a lock: who holds it, since when, from where, who waits.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::core::fence::Fence;
use crate::core::name::LockName;
use crate::core::shape::Kind;
use crate::error::Invalid;
use crate::owner::Owner;

/// Who a holder or waiter is, for people to read. It proves nothing: [`Owner`] does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct About {
    /// The host it runs on.
    pub host: Arc<str>,
    /// Its process; 0 for none, where no process stands for it: one that has detached its lock and
    /// ended, for example.
    pub pid: u32,
    /// The program's name.
    pub program: Arc<str>,
    /// What the caller wanted others to know.
    pub note: Option<Arc<str>>,
}

impl About {
    /// The longest note, in bytes.
    pub const MAX_NOTE_BYTES: usize = 1024;

    /// This process, without a note.
    pub fn this_process() -> Self {
        let program = std::env::args_os().next().map(std::path::PathBuf::from);
        let program = program.as_ref().and_then(|path| path.file_name());
        Self {
            host: rustix::system::uname().nodename().to_string_lossy().into(),
            pid: std::process::id(),
            program: program.map_or("unknown".into(), |name| name.to_string_lossy().into()),
            note: None,
        }
    }
}

impl About {
    /// Text for others to read, if it is not too long.
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

/// A lock as seen at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The lock.
    pub name: LockName,
    /// What it is in use as; none while it is free.
    pub kind: Option<Kind>,
    /// How many permits it has; zero while it is free.
    pub limit: u32,
    /// How many hold it.
    pub holding: usize,
    /// The holders, by their fences: of many, those whose leases end first, up to
    /// [`LockInfo::HOLDERS_SHOWN`], and fewer in a list of locks.
    pub holders: Vec<HolderInfo>,
    /// How many wait for it.
    pub waiting: usize,
    /// The first of those who wait, in order. Empty in a list of locks.
    pub waiters: Vec<WaiterInfo>,
    /// The last time its release was forced, if the store remembers one.
    pub forced: Option<ForceRecord>,
    /// Why the store cannot read what it has of this lock, or some of it. Then nothing is known of
    /// what could not be read: an empty list of holders does not mean that the lock is free.
    pub trouble: Option<String>,
}

impl LockInfo {
    /// How many waiters are shown in full.
    pub const WAITERS_SHOWN: usize = 1000;

    /// How many holders are shown in full. To look at a lock must not keep others from it.
    pub const HOLDERS_SHOWN: usize = 1000;

    /// How many holders of each lock a list shows.
    pub const HOLDERS_LISTED: usize = 10;

    /// A lock that nobody holds or wants.
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
            trouble: None,
        }
    }

    /// A lock of which nothing can be read, for this reason.
    #[cfg(any(feature = "local", feature = "redis"))]
    pub(crate) fn unreadable(name: LockName, trouble: &crate::StoreError) -> Self {
        Self { trouble: Some(trouble.to_string()), ..Self::free(name) }
    }

    /// Whether nobody holds it. False if the store cannot read it.
    pub fn is_free(&self) -> bool {
        self.holding == 0 && self.trouble.is_none()
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
    /// How often it has entered; zero when it has released the lock but keeps it occupied for
    /// its least holding time.
    pub entries: u32,
    /// The fence of its grant.
    pub fence: Fence,
    /// Since when it holds the lock, by the store's calendar.
    pub since: SystemTime,
    /// How long it will hold it without renewal.
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
    /// The permits it wants.
    pub permits: u32,
    /// Since when it waits, by the store's calendar.
    pub since: SystemTime,
}

/// The record of a forced release.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForceRecord {
    /// The lock.
    pub name: LockName,
    /// Who held it.
    pub owners: Vec<Owner>,
    /// Who forced the release.
    pub by: Arc<About>,
    /// Why.
    pub reason: Arc<str>,
    /// When, by the store's calendar.
    pub at: SystemTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No number is shown for a process that does not stand for the lock; names of others are escaped.
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
