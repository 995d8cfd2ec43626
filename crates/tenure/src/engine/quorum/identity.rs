//! What makes servers nodes of one quorum: the marker that each of them has.
//!
//! The marker also names the process of the server that votes. So a server that was restarted, or that has got the data of
//! another node (as a replica of it, for a moment), does not have its own marker, and every script refuses.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::core::lease::Lease;
use crate::core::moment::Moment;
use crate::error::Invalid;

/// A quorum: written once by `tenure quorum init`, and the same on all its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    /// A random number.
    pub(super) id: String,
    pub(super) nodes: usize,
    /// The longest lease that is allowed.
    pub(super) longest: Lease,
    /// When it was made, in seconds of the calendar.
    since: u64,
}

impl Identity {
    pub(super) fn new(nodes: usize, longest: Lease, wall: Moment) -> Self {
        let id = format!("{:016x}", crate::owner::unique_number());
        Self { id, nodes, longest, since: wall.as_micros() / 1_000_000 }
    }

    /// The marker of the node with this process and data.
    pub(super) fn marker(&self, run_id: &str) -> String {
        format!("{self}:run={run_id}")
    }
}

/// A marker, as a server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Marked {
    pub(super) identity: Identity,
    /// The process that was admitted last.
    pub(super) run_id: String,
}

impl FromStr for Marked {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let parts = text.rsplit_once(":run=");
        let parts = parts.and_then(|(identity, run_id)| Some((read(identity)?, run_id.to_owned())));
        let (identity, run_id) =
            parts.ok_or_else(|| Invalid::new("its marker is not one that this version writes"))?;
        Ok(Self { identity, run_id })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, nodes, longest, since } = self;
        let longest = longest.duration().as_millis();
        write!(f, "v1:id={id}:nodes={nodes}:max-lease-ms={longest}:since={since}")
    }
}

fn read(text: &str) -> Option<Identity> {
    let mut parts = text.strip_prefix("v1:")?.split(':');
    let mut field = |name: &str| parts.next()?.strip_prefix(name)?.strip_prefix('=');
    let id =
        field("id").filter(|id| id.len() == 16 && id.bytes().all(|it| it.is_ascii_hexdigit()))?;
    let nodes = field("nodes")?.parse().ok()?;
    let longest = Duration::from_millis(field("max-lease-ms")?.parse().ok()?);
    let since = field("since")?.parse().ok()?;
    Some(Identity { id: id.to_owned(), nodes, longest: Lease::new(longest).ok()?, since })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_read_as_it_was_written() {
        let identity = Identity::new(5, Lease::DEFAULT, Moment::from_micros(1_794_768_132_000_000));
        let run_id = "0123456789abcdef0123456789abcdef01234567";
        let text = identity.marker(run_id);
        assert!(text.len() <= 128 && text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
        let marked = Marked { identity, run_id: run_id.to_owned() };
        assert_eq!(text.parse::<Marked>().unwrap(), marked);
        for other in ["", "v2:id=0", "v1:id=zz:nodes=5:run=1", &text[..40], &text[..70]] {
            assert!(other.parse::<Marked>().is_err(), "{other}");
        }
    }
}
