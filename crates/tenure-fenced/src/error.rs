//! Why a fence was not admitted.

use tenure::{Fence, LockName};

/// A cause in foreign code: a database, a client.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A newer holder has registered, so this one must not write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{resource}` was not written: fence {fence} is overtaken by {newer}; discard what was computed, \
     and acquire the lock again for another attempt"
)]
pub struct Overtaken {
    resource: LockName,
    fence: Fence,
    newer: Fence,
}

impl Overtaken {
    pub(crate) fn new(resource: &LockName, fence: Fence, newer: Fence) -> Self {
        Self { resource: resource.clone(), fence, newer }
    }

    /// The resource.
    #[must_use]
    pub fn resource(&self) -> &LockName {
        &self.resource
    }

    /// The fence that was refused.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// The fence of a newer holder.
    #[must_use]
    pub fn newer(&self) -> Fence {
        self.newer
    }
}

/// Why a fence was not admitted. In every case the caller must not write.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A newer holder has registered.
    #[error(transparent)]
    Overtaken(#[from] Overtaken),

    /// The fence was not registered before it was checked, or its registration was rolled back or lost.
    #[error(
        "`{resource}` was not written: its fence {fence} is not registered, so an earlier holder may have written \
         after this one read; register the fence before the data is read"
    )]
    Unregistered {
        /// The resource.
        resource: LockName,
        /// The fence that was checked.
        fence: Fence,
    },

    /// The table has no row for the resource, so there is no column to store its fence in.
    #[error("there is no row for `{resource}` to store its fence in; insert the row first")]
    NoRow {
        /// The resource.
        resource: LockName,
    },

    /// The highest fence of the resource is forgotten, and this one is too old to be admitted without it.
    #[error(
        "`{resource}` was not written: its last fence is forgotten, and fence {fence} is older than {floor}, the oldest \
         that is admitted without it; acquire the lock again, and remember more resources if this is frequent"
    )]
    Forgotten {
        /// The resource.
        resource: LockName,
        /// The fence that was refused.
        fence: Fence,
        /// The oldest fence that is admitted for a resource that is not remembered.
        floor: Fence,
    },

    /// The number is not a fence that Tenure has issued.
    #[error(
        "{value} is not a fence of `{resource}`: a fence is a number from 1 to 9007199254740991, and a plain lock of Redisson's has none"
    )]
    NotAFence {
        /// The resource.
        resource: LockName,
        /// The number, which came from the caller.
        value: i128,
    },

    /// The store of the fences failed. The outcome may be unknown.
    #[error("the fence of `{resource}` could not be checked: {cause}")]
    Store {
        /// The resource.
        resource: LockName,
        /// The error of the database or of the client.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    pub(crate) fn store(resource: &LockName, cause: impl Into<Cause>) -> Self {
        Self::Store { resource: resource.clone(), cause: cause.into() }
    }
}

/// The fence as a BIGINT, or as the integer of a script.
pub(crate) fn to_stored(resource: &LockName, fence: Fence) -> Result<i64, Error> {
    let not_a_fence =
        || Error::NotAFence { resource: resource.clone(), value: fence.value().into() };
    // `Fence::from_value` takes any number. One that is too large would exclude all later holders for ever. None at all is
    // that of a lock without fences.
    if fence > Fence::MAX || fence == Fence::NONE {
        return Err(not_a_fence());
    }
    i64::try_from(fence.value()).map_err(|_| not_a_fence())
}

/// The fence that is stored as this number.
pub(crate) fn from_stored(resource: &LockName, stored: i64) -> Result<Fence, Error> {
    let fence = u64::try_from(stored).map(Fence::from_value).ok();
    fence.filter(|fence| *fence <= Fence::MAX).ok_or_else(|| {
        Error::store(resource, format!("what is stored as its last fence is none: {stored}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overtaken_writer_is_named_with_its_resource_and_both_fences() {
        let name = LockName::new("stock/la\nmp").unwrap();
        let overtaken = Overtaken::new(&name, Fence::from_value(3), Fence::from_value(4));
        assert_eq!(
            overtaken.to_string(),
            "`stock/la\\u{a}mp` was not written: fence 3 is overtaken by 4; discard what was computed, and acquire \
             the lock again for another attempt"
        );
    }

    #[test]
    fn a_number_that_is_no_fence_is_refused() {
        let name = LockName::new("x").unwrap();
        assert_eq!(to_stored(&name, Fence::MAX).unwrap(), (1 << 53) - 1);
        for value in [1 << 53, u64::MAX] {
            to_stored(&name, Fence::from_value(value)).unwrap_err();
        }
        for stored in [-1, 1 << 53, i64::MIN, i64::MAX] {
            from_stored(&name, stored).unwrap_err();
        }
    }
}
