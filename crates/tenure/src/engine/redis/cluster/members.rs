//! The nodes of a cluster, and what they say about it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::super::address::{Address, Endpoint, HostPort, Login, Master, greeting};
use super::super::dialogue::Dialogue;
use super::super::errors;
use super::super::resp::{Command, Reply};
use super::super::stream;
use super::super::tls::Trust;
use super::Cluster;
use super::presence::Presence;
use super::union;
use super::view::{NodeId, View};
use crate::error::StoreError;
use crate::owner::unique_number;
use crate::sync::lock;

/// How long one node may take to answer, connecting and logging in included.
const ANSWER_TIME: Duration = Duration::from_secs(3);

/// When some nodes have answered, how much longer the others are waited for.
const OTHERS_TIME: Duration = Duration::from_millis(100);

/// How many nodes are asked at once, at most.
const MOST_ASKED: usize = 9;

/// What an answer may cost in memory: a thousand ranges of slots, each with several nodes.
const LARGEST: usize = 16 * 1024 * 1024;

/// The nodes of a cluster.
pub(in super::super) struct Members {
    listed: Vec<HostPort>,
    login: Login,
    trust: Option<Trust>,
    /// The nodes that the last answers have named. One may have several addresses.
    known: Mutex<BTreeMap<HostPort, NodeId>>,
    /// The I/O thread's runtime, and the client's connections.
    confirming: OnceLock<(Handle, Weak<Cluster>)>,
}

impl Members {
    pub(in super::super) fn new(listed: Vec<HostPort>, login: Login, trust: Option<Trust>) -> Self {
        Self { listed, login, trust, known: Mutex::default(), confirming: OnceLock::new() }
    }

    /// Where a node listens.
    pub(in super::super) fn endpoint(&self, at: &HostPort) -> Result<Endpoint, StoreError> {
        at.endpoint(self.trust.as_ref())
    }

    /// The address of one node.
    pub(super) fn address(self: &Arc<Self>, at: &HostPort) -> Address {
        let presence = Arc::new(Presence::new(self.clone(), at.clone()));
        Address { master: Master::Member(presence), login: self.login.clone() }
    }

    /// Answers are confirmed by tasks of this runtime, with the nodes that the client is connected to.
    pub(super) fn confirm_with(&self, io: &Handle, cluster: &Weak<Cluster>) {
        let _ = self.confirming.set((io.clone(), cluster.clone()));
    }

    /// The runtime on which answers are confirmed; none before there are connections.
    pub(super) fn io(&self) -> Option<&Handle> {
        self.confirming.get().map(|(io, _)| io)
    }

    /// The id of the node with an address, if the last answers have named it.
    pub(super) fn id_of(&self, at: &HostPort) -> Option<NodeId> {
        lock(&self.known).get(at).cloned()
    }

    /// Asks several nodes at once for their views, and others if none of these answers. Some of the nodes may be down.
    ///
    /// # Errors
    /// When none of them answers, or their clusters differ.
    pub(super) async fn views(self: &Arc<Self>) -> Result<Vec<View>, StoreError> {
        let mut failed = StoreError::refused(format!("no node of {self} answers"));
        for some in self.candidates().chunks(MOST_ASKED) {
            match self.views_of(some).await {
                Ok(views) => {
                    let known = lock(&self.known).clone();
                    let views = union::of_one_cluster(views, &known)?;
                    *lock(&self.known) = views.iter().flat_map(|view| view.nodes.clone()).collect();
                    return Ok(views);
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// The views of some of these nodes; an error if none of them answers.
    async fn views_of(
        self: &Arc<Self>,
        some: &[HostPort],
    ) -> Result<Vec<(HostPort, View)>, StoreError> {
        let mut asking = self.ask(some);
        let (mut views, mut failed) = (Vec::new(), None);
        let mut wait = ANSWER_TIME + OTHERS_TIME;
        while let Ok(Some(answer)) = tokio::time::timeout(wait, asking.join_next()).await {
            match answer {
                Ok((at, Ok(view))) => {
                    views.push((at, view));
                    wait = OTHERS_TIME;
                }
                Ok((_, Err(error))) => failed = Some(error),
                Err(_) => {}
            }
        }
        if views.is_empty() {
            let nothing = || StoreError::refused(format!("no node of {self} answers"));
            return Err(failed.unwrap_or_else(nothing));
        }
        Ok(views)
    }

    /// Whether other nodes still name a node as a primary. It may have been replaced if too few of them answer.
    pub(super) async fn is_still_owner(
        self: &Arc<Self>,
        at: &HostPort,
        id: Option<&NodeId>,
    ) -> bool {
        let cluster = self.confirming.get().and_then(|(_, cluster)| cluster.upgrade());
        let named = match &cluster {
            Some(cluster) => cluster.is_still_named(at, id).await,
            None => None,
        };
        let is_owner = match (named, &cluster) {
            (Some(is_owner), _) => is_owner,
            (None, Some(cluster)) if cluster.has_no_other_primary(at) => {
                self.is_undisputed(at, id).await
            }
            (None, _) => self.is_named_by_most(at, id).await,
        };
        if !is_owner {
            cluster.iter().for_each(|cluster| cluster.note_doubt());
        }
        is_owner
    }

    /// Whether most of the other nodes, replicas among them, answer on new connections, and all of these say that a node
    /// has slots.
    async fn is_named_by_most(self: &Arc<Self>, at: &HostPort, id: Option<&NodeId>) -> bool {
        let mut others = self.others(at, id);
        others.truncate(MOST_ASKED);
        let mut asking = self.ask(&others);
        let mut answered = 0;
        while answered * 2 <= others.len() && !others.is_empty() {
            match asking.join_next().await {
                Some(Ok((_, Ok(view)))) if view.is_owner(at, id) => answered += 1,
                Some(Ok((_, Ok(_)))) | None => return false,
                Some(_) => {}
            }
        }
        true
    }

    /// Whether no replica can have replaced the only primary. No vote can do that, but an operator can
    /// (`CLUSTER FAILOVER TAKEOVER`). So each replica must name the primary, or be down for certain: a silent one may have
    /// taken over. A replica that has replicated nothing yet is not named by its primary: if none is known, the nodes are asked again.
    async fn is_undisputed(self: &Arc<Self>, at: &HostPort, id: Option<&NodeId>) -> bool {
        let mut others = self.others(at, id);
        if others.is_empty() {
            let named =
                self.views().await.is_ok_and(|views| views.iter().all(|it| it.is_owner(at, id)));
            if !named {
                return false;
            }
            others = self.others(at, id);
        }
        let mut asking = self.ask(&others);
        while let Some(answer) = asking.join_next().await {
            let agrees = match answer {
                Ok((_, Ok(view))) => view.is_owner(at, id),
                Ok((other, Err(_))) => self.is_down(&other).await,
                Err(_) => false,
            };
            if !agrees {
                return false;
            }
        }
        true
    }

    /// Whether no process listens at the address of a node.
    async fn is_down(&self, at: &HostPort) -> bool {
        match self.endpoint(at) {
            Ok(endpoint) => stream::refuses(&endpoint).await,
            Err(_) => false,
        }
    }

    /// The other nodes that the cluster names, each under one address. Those of the URL may be gone for good.
    fn others(&self, at: &HostPort, id: Option<&NodeId>) -> Vec<HostPort> {
        let mut known: Vec<_> = lock(&self.known).clone().into_iter().collect();
        rotate(&mut known);
        let mut seen: BTreeSet<_> = id.into_iter().cloned().collect();
        known.retain(|(it, other)| it != at && seen.insert(other.clone()));
        known.into_iter().map(|(it, _)| it).collect()
    }

    /// Where nodes may be asked: those that the last answers have named, and then those of the URL.
    fn candidates(&self) -> Vec<HostPort> {
        let known = lock(&self.known).clone();
        let mut listed: Vec<_> =
            self.listed.iter().filter(|it| !known.contains_key(it)).cloned().collect();
        let mut all: Vec<_> = known.into_keys().collect();
        rotate(&mut all);
        rotate(&mut listed);
        all.append(&mut listed);
        all
    }

    /// Asks some nodes at once.
    fn ask(self: &Arc<Self>, some: &[HostPort]) -> JoinSet<(HostPort, Result<View, StoreError>)> {
        let mut asking = JoinSet::new();
        for at in some.iter().cloned() {
            let members = self.clone();
            asking.spawn(async move {
                let view = members.view(&at).await;
                (at, view)
            });
        }
        asking
    }

    /// The view of one node.
    pub(super) async fn view(&self, at: &HostPort) -> Result<View, StoreError> {
        let endpoint = self.endpoint(at)?;
        let asking = async {
            let mut dialogue = Dialogue::open(&endpoint, LARGEST).await?;
            for command in greeting(&self.login) {
                if let Reply::Error(error) = dialogue.request(&command).await? {
                    let what = format!("could not log in to {endpoint}: {error}");
                    return Err(errors::of_greeting(what, &error));
                }
            }
            let reply = dialogue.request(&Command::new("CLUSTER").arg("SLOTS")).await?;
            View::read(&reply, at).ok_or_else(|| not_a_node(&endpoint, &reply))
        };
        let slow = || {
            let what = format!("{endpoint} did not answer within {ANSWER_TIME:?}");
            Err(StoreError::refused(what))
        };
        tokio::time::timeout(ANSWER_TIME, asking).await.unwrap_or_else(|_| slow())
    }
}

/// So that not always the same ones are asked, if there are many.
fn rotate<T>(nodes: &mut [T]) {
    let first = unique_number() as usize % nodes.len().max(1);
    nodes.rotate_left(first);
}

/// The error for an answer that is not that of a node of a cluster.
fn not_a_node(endpoint: &Endpoint, reply: &Reply) -> StoreError {
    match errors::error_in(reply) {
        Some(error) if error.contains("cluster support disabled") => StoreError::refused(format!(
            "{endpoint} is no node of a cluster: write redis:// for redis+cluster://"
        ))
        .answered()
        .lasting(),
        Some(error) => {
            let what = format!("{endpoint} does not show the slots of its cluster: {error}");
            errors::of_greeting(what, error)
        }
        None => StoreError::refused(format!("{endpoint} does not answer as a node of a cluster")),
    }
}

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed: Vec<_> = self.listed.iter().map(HostPort::to_string).collect();
        write!(f, "the cluster of {}", listed.join(", "))
    }
}
