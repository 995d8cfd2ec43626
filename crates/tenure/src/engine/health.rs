//! How an engine's connections are.

/// How an engine's connections are. Locks go on while one is down, for as long as their leases
/// allow; new ones are refused or wait.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Health {
    /// Each connection; none where an engine needs none.
    pub links: Vec<LinkHealth>,
}

impl Health {
    /// One thing without which nothing works, and why it is down.
    pub(crate) fn down(link: &'static str, why: &dyn std::fmt::Display) -> Self {
        let trouble = Some(why.to_string());
        Self { links: vec![LinkHealth { link, is_up: false, epoch: 1, trouble }] }
    }

    /// Whether every connection is up.
    pub fn is_well(&self) -> bool {
        self.links.iter().all(|link| link.is_up)
    }
}

/// How one connection is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LinkHealth {
    /// What it is for.
    pub link: &'static str,
    /// Whether it is up.
    pub is_up: bool,
    /// How many times it has been made: above one, it was lost in between.
    pub epoch: u64,
    /// What went wrong last, and is not mended.
    pub trouble: Option<String>,
}
