//! The servers of a store, for an operator.

/// The servers of a store, as far as this client knows them and may ask them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Topology {
    /// How they work together: `memory`, `local`, `single`, `sentinel`, `cluster` or `quorum`.
    pub form: &'static str,
    /// The servers.
    pub nodes: Vec<NodeInfo>,
}

impl Topology {
    /// Creates a topology without servers.
    pub fn new(form: &'static str) -> Self {
        Self { form, nodes: Vec::new() }
    }
}

/// One server of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeInfo {
    /// Its address, without a login.
    pub name: String,
    /// Its role: `primary`, `replica` or `sentinel`.
    pub role: &'static str,
    /// The primary that it follows or watches.
    pub of: Option<String>,
    /// Whether it answers.
    pub is_up: bool,
    /// What is wrong with it.
    pub error: Option<String>,
    /// Its program and version.
    pub version: Option<String>,
    /// The memory that it uses, in bytes.
    pub memory: Option<u64>,
    /// The memory that it may use, in bytes; none if it has no limit.
    pub memory_limit: Option<u64>,
    /// How many slots of a cluster it has.
    pub slots: Option<u32>,
}

impl NodeInfo {
    /// Creates a server of this name and role, which answers.
    pub fn new(name: impl Into<String>, role: &'static str) -> Self {
        Self { name: name.into(), role, is_up: true, ..Self::default() }
    }
}
