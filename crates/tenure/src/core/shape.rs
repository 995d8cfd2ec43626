//! The shape of a request: the kind of lock, its number of permits, and how many are requested.
//!
//! One counting mechanism serves every primitive. A mutex has one permit; a semaphore has n; a
//! read-write lock has very many, of which a reader takes one and a writer takes all. A latch is
//! open once all its permits are taken; a barrier opens when it has as many waiters as permits.

use std::fmt;

use crate::error::Invalid;

/// The kind of a lock. Two kinds never share a name: a request for the second is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// One permit: one holder.
    Mutex,
    /// Readers take one permit, a writer takes all.
    ReadWrite,
    /// A number of permits, which the latest request sets.
    Semaphore,
    /// Arrivals take permits and keep them; waiters take none, and continue once all permits are taken.
    Latch,
    /// All waiters continue together, once they are as many as there are permits.
    Barrier,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mutex => "mutex",
            Self::ReadWrite => "read-write lock",
            Self::Semaphore => "semaphore",
            Self::Latch => "latch",
            Self::Barrier => "barrier",
        })
    }
}

/// The kind of a lock, its number of permits, and how many of them are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    kind: Kind,
    limit: u32,
    permits: u32,
}

impl Shape {
    /// The largest limit: the permits of a read-write lock, in which each reader takes one.
    pub const MAX_LIMIT: u32 = 1_000_000_000;

    /// The maximum number of parties of a barrier: all of them are notified in one step.
    pub const MAX_PARTIES: u32 = 1_000;

    /// Returns the shape of a mutex: one permit.
    pub const fn mutex() -> Self {
        Self { kind: Kind::Mutex, limit: 1, permits: 1 }
    }

    /// Creates a shape: `permits` of the `limit` permits of a lock of this kind.
    ///
    /// # Errors
    /// Returns an error if the limit is not 1 to [`Shape::MAX_LIMIT`] (exactly 1 for a mutex, at most
    /// [`Shape::MAX_PARTIES`] for a barrier), or the permits are not 1 to the limit. A waiter of a latch
    /// requests 0, and a party of a barrier always 1.
    pub fn new(kind: Kind, limit: u32, permits: u32) -> Result<Self, Invalid> {
        let most = match kind {
            Kind::Mutex => 1,
            Kind::Barrier => Self::MAX_PARTIES,
            _ => Self::MAX_LIMIT,
        };
        if !(1..=most).contains(&limit) {
            return Err(Invalid::new(format!(
                "the limit of a {kind} must be 1 to {most}, not {limit}"
            )));
        }
        let (least, most) = match kind {
            Kind::Latch => (0, limit),
            Kind::Barrier => (1, 1),
            _ => (1, limit),
        };
        if !(least..=most).contains(&permits) {
            return Err(Invalid::new(format!(
                "{least} to {most} permits can be requested of a {kind} with limit {limit}, not {permits}"
            )));
        }
        Ok(Self { kind, limit, permits })
    }

    /// Returns the kind of lock.
    pub const fn kind(self) -> Kind {
        self.kind
    }

    /// Returns how many permits the lock has.
    pub const fn limit(self) -> u32 {
        self.limit
    }

    /// Returns how many of them are requested.
    pub const fn permits(self) -> u32 {
        self.permits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_zero_and_too_many_permits_are_refused_with_what_is_allowed() {
        let zero = Shape::new(Kind::Semaphore, 0, 1).unwrap_err().to_string();
        assert!(zero.contains("must be 1 to 1000000000, not 0"), "{zero}");
        let many = Shape::new(Kind::Semaphore, 3, 4).unwrap_err().to_string();
        assert!(many.contains("1 to 3 permits"), "{many}");
        assert!(Shape::new(Kind::Semaphore, 3, 0).is_err());
        assert!(Shape::new(Kind::Mutex, 2, 1).is_err());
        assert!(Shape::new(Kind::Barrier, 1_001, 1).is_err());
        assert!(Shape::new(Kind::Barrier, 3, 2).is_err());
        assert!(Shape::new(Kind::Latch, 3, 0).is_ok());
        assert!(Shape::new(Kind::Semaphore, 3, 3).is_ok());
    }
}
