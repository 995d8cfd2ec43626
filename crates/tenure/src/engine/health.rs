//! The state of an engine's connections.

/// The state of an engine's connections. While one is down, locks stay held for as long as their leases
/// last; new acquires fail or wait.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Health {
    /// The connections; empty for an engine without any.
    pub links: Vec<LinkHealth>,
    /// How many locks are held from the fallback, because the store could not be reached.
    pub degraded: usize,
}

impl Health {
    /// A component without which nothing works, and why it is down.
    pub(crate) fn down(link: &'static str, why: &dyn std::fmt::Display) -> Self {
        let error = Some(why.to_string());
        let links = vec![LinkHealth { node: None, link, is_up: false, epoch: 1, error }];
        Self { links, degraded: 0 }
    }

    /// Returns whether every connection is up.
    pub fn is_well(&self) -> bool {
        self.links.iter().all(|link| link.is_up)
    }
}

/// The state of one connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LinkHealth {
    /// The node of a quorum or of a cluster that it leads to.
    pub node: Option<String>,
    /// Its purpose.
    pub link: &'static str,
    /// Whether it is up.
    pub is_up: bool,
    /// How many times it has been made: if above one, it was lost in between.
    pub epoch: u64,
    /// The current error; none while it is up.
    pub error: Option<String>,
}
