//! The nodes of a cluster, and what they say about it.
//!
//! **Confirming.** A primary that was stopped, replaced and continued first answers the requests in its socket buffers,
//! with success, and all of that is lost. So a reply that took long counts only if the other nodes still name the same
//! primary.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::super::address::{Address, Endpoint, HostPort, Login, Master, greeting};
use super::super::dialogue::Dialogue;
use super::super::errors;
use super::super::resp::{Command, Reply};
use super::super::tls::Trust;
use super::super::wire::Done;
use super::view::View;
use crate::clock;
use crate::error::StoreError;
use crate::foreign;
use crate::owner::unique_number;
use crate::sync::lock;

/// How long one node may take to answer, connecting and logging in included.
const ANSWER_TIME: Duration = Duration::from_secs(3);

/// When some nodes have answered, how much longer the others are waited for.
const OTHERS_TIME: Duration = Duration::from_millis(100);

/// How many nodes are asked at once, at most.
const MOST_ASKED: usize = 9;

/// A reply that took this long is confirmed before it is used. A node is replaced after `cluster-node-timeout`, which is
/// rarely below a second, and some hundred milliseconds more.
const SLOW: Duration = Duration::from_millis(250);

/// What an answer may cost in memory: a thousand ranges of slots, each with several nodes.
const LARGEST: usize = 16 * 1024 * 1024;

/// The nodes of a cluster.
pub(in super::super) struct Members {
    listed: Vec<HostPort>,
    login: Login,
    trust: Option<Trust>,
    /// The nodes that the last answers have named.
    known: Mutex<BTreeSet<HostPort>>,
    /// Late replies of nodes that are to be confirmed, and whether a task does so.
    late: Mutex<BTreeMap<HostPort, Late>>,
    /// The I/O thread's runtime.
    io: OnceLock<Handle>,
}

/// The late replies of one node.
#[derive(Default)]
struct Late {
    replies: Vec<(Result<Reply, StoreError>, Done)>,
    is_being_confirmed: bool,
}

impl Members {
    pub(in super::super) fn new(listed: Vec<HostPort>, login: Login, trust: Option<Trust>) -> Self {
        let (known, late) = (Mutex::default(), Mutex::default());
        Self { listed, login, trust, known, late, io: OnceLock::new() }
    }

    /// Where a node listens.
    pub(in super::super) fn endpoint(&self, at: &HostPort) -> Result<Endpoint, StoreError> {
        at.endpoint(self.trust.as_ref())
    }

    /// The address of one node.
    pub(super) fn address(self: &Arc<Self>, at: &HostPort) -> Address {
        Address { master: Master::Member(self.clone(), at.clone()), login: self.login.clone() }
    }

    /// Answers that take long are confirmed by tasks of this runtime.
    pub(super) fn confirm_on(&self, io: &Handle) {
        let _ = self.io.set(io.clone());
    }

    /// Asks several nodes at once for their views. Some of the nodes may be down.
    ///
    /// # Errors
    /// When none of them answers.
    pub(super) async fn views(self: &Arc<Self>) -> Result<Vec<View>, StoreError> {
        let mut asking = self.ask(None);
        let (mut views, mut failed) = (Vec::new(), None);
        let mut wait = ANSWER_TIME + OTHERS_TIME;
        while let Ok(Some(answer)) = tokio::time::timeout(wait, asking.join_next()).await {
            match answer {
                Ok((_, Ok(view))) => {
                    views.push(view);
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
        self.remember(&views);
        Ok(views)
    }

    /// Has the reply to a request that is sent now confirmed, if it takes long, at a node with this round trip. An error is no
    /// grant, and need not be confirmed.
    pub(in super::super) fn confirm_if_slow(
        self: &Arc<Self>,
        at: &HostPort,
        round_trip: Duration,
        done: Done,
    ) -> Done {
        let (sent, members, at) = (clock::now(), self.clone(), at.clone());
        Box::new(move |result| {
            let is_answer = matches!(&result, Ok(reply) if errors::error_in(reply).is_none());
            let is_slow = is_answer && clock::now().since(sent) >= SLOW + round_trip;
            match members.io.get().filter(|_| is_slow).cloned() {
                Some(io) => members.confirm_later(at, result, done, &io),
                None => done(result),
            }
        })
    }

    /// Adds a late reply to those that the next question confirms: a node that was stalled has many of them.
    fn confirm_later(
        self: &Arc<Self>,
        at: HostPort,
        result: Result<Reply, StoreError>,
        done: Done,
        io: &Handle,
    ) {
        let mut late = lock(&self.late);
        let of_node = late.entry(at.clone()).or_default();
        of_node.replies.push((result, done));
        if std::mem::replace(&mut of_node.is_being_confirmed, true) {
            return;
        }
        drop(late);
        let members = self.clone();
        drop(io.spawn(async move {
            while let Some(replies) = members.take_late(&at) {
                let is_confirmed = members.is_still_owner(&at).await;
                for (result, done) in replies {
                    let late =
                        "the answer came so late that the node may have been replaced meanwhile";
                    let result = if is_confirmed { result } else { Err(StoreError::unknown(late)) };
                    foreign::call(|| done(result));
                }
            }
        }));
    }

    /// The late replies of a node, which arrived before the question that confirms them; none if there are none.
    fn take_late(&self, at: &HostPort) -> Option<Vec<(Result<Reply, StoreError>, Done)>> {
        let mut late = lock(&self.late);
        let replies = std::mem::take(&mut late.get_mut(at)?.replies);
        if replies.is_empty() {
            late.remove(at);
            return None;
        }
        Some(replies)
    }

    /// Whether most of the other nodes answer, and all of these say that a node has slots.
    async fn is_still_owner(self: &Arc<Self>, at: &HostPort) -> bool {
        let mut asking = self.ask(Some(at));
        let (asked, mut answered) = (asking.len(), 0);
        while answered * 2 <= asked && asked > 0 {
            match asking.join_next().await {
                Some(Ok((_, Ok(view)))) if view.is_owner(at) => answered += 1,
                Some(Ok((_, Ok(_)))) | None => return false,
                Some(_) => {}
            }
        }
        true
    }

    /// Asks some nodes at once, all but one.
    fn ask(
        self: &Arc<Self>,
        but: Option<&HostPort>,
    ) -> JoinSet<(HostPort, Result<View, StoreError>)> {
        let known = lock(&self.known).clone();
        let all: BTreeSet<_> = self.listed.iter().cloned().chain(known).collect();
        let mut some: Vec<_> = all.into_iter().filter(|at| Some(at) != but).collect();
        // Not always the same ones, if there are many.
        let first = unique_number() as usize % some.len().max(1);
        some.rotate_left(first);
        some.truncate(MOST_ASKED);
        let mut asking = JoinSet::new();
        for at in some {
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

    /// A node that no answer names any more is forgotten, unless the URL names it.
    fn remember(&self, views: &[View]) {
        let named = views.iter().flat_map(|view| &view.nodes).cloned();
        *lock(&self.known) = named.collect();
    }
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
