//! A hold without a guard, for another process.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::core::fence::Fence;
use crate::core::lease::Lease;
use crate::core::name::LockName;
use crate::error::Invalid;
use crate::owner::{Entry, Owner};

/// A lock that is held without a guard. It can be printed, sent to another process, parsed, and
/// renewed, released or adopted there. Any process that has the handle can release the lock.
///
/// # Examples
///
/// ```
/// # tenure::blocking::block_on(async {
/// let tenure = tenure::Tenure::connect("memory:").await?;
/// let handle = tenure.lock("deploy").acquire().await?.detach().await?;
///
/// let elsewhere: tenure::Handle = handle.to_string().parse()?;
/// tenure.renew(&elsewhere).await?;
/// assert_eq!(tenure.release(&elsewhere).await?, tenure::Released::Now);
/// # Ok::<(), tenure::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handle {
    name: LockName,
    entry: Entry,
    fence: Fence,
    lease: Lease,
}

/// The version of the printed form.
const VERSION: &str = "tenure1";

/// All characters that some shell would interpret.
const NOT_PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'_').remove(b'-').remove(b'/');

impl Handle {
    pub(crate) fn new(name: LockName, entry: Entry, fence: Fence, lease: Lease) -> Self {
        Self { name, entry, fence, lease }
    }

    /// Returns the lock's name.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Returns the owner under which the lock is held.
    pub fn owner(&self) -> Owner {
        self.entry.owner
    }

    /// Returns the fence of the grant.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Returns the lease, which a renewal extends.
    pub fn lease(&self) -> Lease {
        self.lease
    }

    pub(crate) fn entry(&self) -> Entry {
        self.entry
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { owner, number } = self.entry;
        let millis = self.lease.duration().as_millis();
        let name = utf8_percent_encode(self.name.as_str(), NOT_PLAIN);
        write!(f, "{VERSION}:{owner}:{number:x}:{}:{millis}:{name}", self.fence)
    }
}

impl FromStr for Handle {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        parse(text).ok_or_else(|| Invalid::new("this is not a handle that Tenure has printed"))
    }
}

fn parse(text: &str) -> Option<Handle> {
    let mut parts = text.trim().splitn(6, ':');
    if parts.next()? != VERSION {
        return None;
    }
    let owner = parts.next()?.parse().ok()?;
    let number = u64::from_str_radix(parts.next()?, 16).ok()?;
    let fence = Fence::from_value(parts.next()?.parse().ok()?);
    let lease = Lease::new(Duration::from_millis(parts.next()?.parse().ok()?)).ok()?;
    let name = LockName::new(percent_decode_str(parts.next()?).decode_utf8().ok()?).ok()?;
    Some(Handle { name, entry: Entry { owner, number }, fence, lease })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_handle_survives_being_printed(name in "[^\0]{1,40}", number: u64, fence in 1u64..1 << 53) {
            let entry = Entry { owner: Owner::new(), number };
            let name = LockName::new(name).unwrap();
            let handle = Handle::new(name, entry, Fence::from_value(fence), Lease::DEFAULT);
            let printed = handle.to_string();
            prop_assert!(printed.is_ascii() && !printed.contains([' ', '\'', '"', '$', '\n']));
            prop_assert_eq!(printed.parse::<Handle>().unwrap(), handle);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text: String) {
            let _ = text.parse::<Handle>();
            let _ = format!("{VERSION}:{text}").parse::<Handle>();
        }
    }

    #[test]
    fn what_is_no_handle_is_refused() {
        for bad in ["", "tenure1", "tenure2:0:0:0:0:x", "tenure1:zz:0:1:30000:x", "%"] {
            assert!(bad.parse::<Handle>().is_err(), "{bad}");
        }
    }
}
