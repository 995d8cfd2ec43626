//! The servers of an experiment: started for it, and stopped with it, or one that is there.

use std::path::{Path, PathBuf};

use tenure::blocking::block_on;
use tenure::engine::QuorumEngine;
use tenure_testkit::{Clock, Flavor, Proxy, Sentinels, Server, program};

use crate::experiment::Outcome;

/// Which servers a stage needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// One, which other clients may use, too.
    One,
    /// One that no other client uses, because its requests are counted.
    OneAlone,
    /// A master with two replicas, and three Sentinels.
    Failover,
    /// Three independent ones.
    Three,
    /// Three independent ones whose clocks can be set.
    ThreeClocks,
}

/// Where the servers come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A program that is started: `redis-server` or `valkey-server`.
    Program(PathBuf),
    /// A server that is there.
    Url(String),
}

impl Source {
    /// The server that is installed.
    ///
    /// # Errors
    /// If there is none; the sentence says how to get one.
    pub fn installed() -> Outcome<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = Flavor::ALL.into_iter().find_map(|flavor| program::server_in(&path, flavor));
        found.map(Self::Program).ok_or_else(|| {
            "the lab starts servers of its own, and found neither redis-server nor valkey-server on the PATH: install \
             one, as by `apt install redis-server` or `brew install redis`, name one by --server, or use a \
             server that is there by --url"
                .to_owned()
        })
    }

    /// Starts what is needed, for historic locks or for Tenure.
    ///
    /// # Errors
    /// If that is not to be had, and why.
    pub(crate) fn provide(&self, needs: Needs) -> Outcome<Servers> {
        match (self, needs) {
            (Self::Url(url), Needs::One) => Ok(Servers::There(url.clone())),
            (Self::Url(_), _) => {
                Err("it needs servers of its own: run it without --url".to_owned())
            }
            (Self::Program(program), needs) => Servers::start(program, needs),
        }
    }
}

/// The servers of one experiment.
pub(crate) enum Servers {
    There(String),
    Several(Vec<String>),
    One(Server),
    Failover(Sentinels),
    Independent {
        nodes: Vec<Server>,
        clocks: Vec<Clock>,
        /// The way to the last one for a client that is to be cut off from it.
        last: Proxy,
    },
}

impl Servers {
    fn start(program: &Path, needs: Needs) -> Outcome<Self> {
        let server = |program: &Path| Server::builder().program(program).on_port().start();
        Ok(match needs {
            Needs::One | Needs::OneAlone => Self::One(server(program)),
            Needs::Failover => Self::Failover(Sentinels::of_program(program, 2)),
            Needs::Three => {
                let nodes = (0..3).map(|_| server(program)).collect();
                Self::independent(nodes, Vec::new())?
            }
            Needs::ThreeClocks => {
                let clocks: Vec<_> = (0..3).map(|_| Clock::of_program(program)).collect();
                let nodes = clocks.iter().map(|clock| server(&clock.program())).collect();
                Self::independent(nodes, clocks)?
            }
        })
    }

    /// Nodes that are marked for Tenure's quorum. The historic locks do not mind.
    fn independent(nodes: Vec<Server>, clocks: Vec<Clock>) -> Outcome<Self> {
        let last = Proxy::start(&nodes[nodes.len() - 1]);
        let servers = Self::Independent { nodes, clocks, last };
        let marked = block_on(QuorumEngine::mark_nodes(&servers.url(), None, false));
        marked.map_err(|error| error.to_string())?;
        Ok(servers)
    }

    /// Where the historic locks find them.
    pub(crate) fn urls(&self) -> Vec<String> {
        match self {
            Self::There(url) => vec![url.clone()],
            Self::Several(urls) => urls.clone(),
            Self::One(server) => vec![server.url()],
            Self::Failover(group) => vec![group.master().unwrap_or(&group.servers[0]).url()],
            Self::Independent { nodes, .. } => nodes.iter().map(Server::url).collect(),
        }
    }

    /// Where Tenure finds them.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::There(url) => url.clone(),
            Self::Several(urls) => quorum(urls),
            Self::One(server) => server.url(),
            Self::Failover(group) => group.url(),
            Self::Independent { .. } => quorum(&self.urls()),
        }
    }

    /// The same for a client whose way to the last server can be cut.
    pub(crate) fn behind_proxy(&self) -> Self {
        let Self::Independent { last, .. } = self else { return Self::There(self.url()) };
        let mut urls = self.urls();
        urls.pop();
        urls.push(last.url());
        Self::Several(urls)
    }

    /// Cuts that way.
    pub(crate) fn cut(&self) {
        if let Self::Independent { last, .. } = self {
            last.refuse(true);
            last.cut();
        }
    }

    /// The master, its replica and the Sentinels.
    pub(crate) fn failover(&mut self) -> Outcome<&mut Sentinels> {
        match self {
            Self::Failover(group) => Ok(group),
            _ => Err("there are no Sentinels here".to_owned()),
        }
    }

    /// The independent servers, and their clocks.
    pub(crate) fn nodes(&mut self) -> Outcome<(&mut [Server], &[Clock])> {
        match self {
            Self::Independent { nodes, clocks, .. } => Ok((nodes, clocks)),
            _ => Err("there are no independent servers here".to_owned()),
        }
    }
}

/// The quorum of these servers.
fn quorum(urls: &[String]) -> String {
    let hosts: Vec<_> = urls.iter().filter_map(|url| url.strip_prefix("redis://")).collect();
    format!("redis+quorum://{}", hosts.join(","))
}
