//! What the locks of a store can do.

use crate::core::shape::Kind;

/// What the locks of a store can do. A store in Tenure's own format can do all of it; a request for what a store cannot do
/// is refused, and not ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Features {
    /// Waiters are served in the order of their arrival, and a release hands the lock over to the first of them. Without it,
    /// a release is announced to all clients that wait, and the first request that arrives is granted.
    pub has_queue: bool,
    /// A mutex is granted with a fence. Other kinds of locks have fences only where waiters have a queue.
    pub has_fences: bool,
    /// Holders are stored with a description of the client and a note.
    pub has_notes: bool,
    /// A lock can be kept for a least holding time.
    pub has_least_times: bool,
    /// There are barriers.
    pub has_barriers: bool,
    /// A request sets the limit of a semaphore and the count of a latch. Without it, they are set once, when there is none.
    pub has_limits: bool,
}

impl Features {
    /// All of them.
    pub const ALL: Self = Self {
        has_queue: true,
        has_fences: true,
        has_notes: true,
        has_least_times: true,
        has_barriers: true,
        has_limits: true,
    };

    /// Those of Redisson's format.
    #[cfg(feature = "redis")]
    pub(crate) const fn of_redisson(is_fenced: bool) -> Self {
        Self {
            has_queue: false,
            has_fences: is_fenced,
            has_notes: false,
            has_least_times: false,
            has_barriers: false,
            has_limits: false,
        }
    }

    /// Whether grants of this kind of lock have fences.
    pub fn has_fences_of(&self, kind: Kind) -> bool {
        self.has_fences && (self.has_queue || kind == Kind::Mutex)
    }
}
