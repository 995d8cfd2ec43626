//! Since when a node is known to be a primary.
//!
//! A primary that was stopped, replaced and continued answers the requests in its socket buffers with success, and all of
//! that is lost. It answers a request that was sent shortly before it was continued as fast as ever. So it does not count how
//! long an answer took, but how long ago the node is known to have run as a primary:
//!
//! - An answer that counts was made after its request was sent: at some moment since then the node ran, and was a primary.
//! - A node is replaced after it was silent for `cluster-node-timeout`. So the next answer counts, too, if it arrives within
//!   [`SLOW`] of that moment (I1).
//! - Any other answer is confirmed by other nodes first, after it has arrived: it counts if they still name the same primary;
//!   otherwise it is unknown (I6). This concerns late answers, and the first one after a silence. The messages of a node are
//!   confirmed in the same way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::super::address::{Endpoint, HostPort};
use super::super::errors;
use super::super::late::Late;
use super::super::wire::Done;
use super::members::Members;
use super::view::NodeId;
use crate::clock;
use crate::core::moment::Moment;
use crate::error::StoreError;
use crate::foreign;

/// For how long an answer proves that a node has not been replaced. A node is replaced after `cluster-node-timeout`, which
/// is rarely below a second, and some hundred milliseconds more.
const SLOW: Duration = Duration::from_millis(250);

/// A node of a cluster, and when it was last known to be a primary.
pub(in super::super) struct Presence {
    members: Arc<Members>,
    pub(in super::super) at: HostPort,
    /// Its id, once it is known. Other nodes may name another address of it.
    id: OnceLock<NodeId>,
    /// When the last request was sent whose answer counts, in microseconds; zero if there is none.
    proven: AtomicU64,
    late: Late<Unconfirmed>,
}

/// What is used only if the node is still a primary.
struct Unconfirmed {
    /// When its request was sent, if it is an answer.
    sent: Option<Moment>,
    use_it: Box<dyn FnOnce(bool) + Send>,
}

impl Presence {
    pub(super) fn new(members: Arc<Members>, at: HostPort) -> Self {
        let (id, proven) = (OnceLock::new(), AtomicU64::new(0));
        Self { members, at, id, proven, late: Late::default() }
    }

    /// Where the node listens.
    pub(in super::super) fn endpoint(&self) -> Result<Endpoint, StoreError> {
        self.members.endpoint(&self.at)
    }

    /// Has the answer to a request that is sent now confirmed, unless the node was a primary shortly before the answer. An
    /// error grants nothing, and is not confirmed.
    pub(in super::super) fn confirm_answer(
        self: &Arc<Self>,
        round_trip: Duration,
        done: Done,
    ) -> Done {
        let (sent, presence) = (clock::now(), self.clone());
        Box::new(move |result| {
            if !matches!(&result, Ok(reply) if errors::error_in(reply).is_none()) {
                return done(result);
            }
            if presence.is_proven(round_trip) {
                presence.prove(sent);
                return done(result);
            }
            let use_it = Box::new(move |is_confirmed| {
                let late = "the node may have been replaced before it answered";
                done(if is_confirmed { result } else { Err(StoreError::unknown(late)) });
            });
            presence.confirm(Unconfirmed { sent: Some(sent), use_it });
        })
    }

    /// Uses a message of this node, or says that it may have been replaced before it sent it.
    pub(in super::super) fn confirm_message(
        self: &Arc<Self>,
        round_trip: Duration,
        use_it: impl FnOnce(bool) + Send + 'static,
    ) {
        if self.is_proven(round_trip) {
            return use_it(true);
        }
        self.confirm(Unconfirmed { sent: None, use_it: Box::new(use_it) });
    }

    /// Whether the node was a primary so shortly before now that it is one. Callers that send one request after another
    /// need two round trips from one to the answer of the next.
    fn is_proven(&self, round_trip: Duration) -> bool {
        let proven = Moment::from_micros(self.proven.load(Ordering::Relaxed));
        proven > Moment::ZERO && clock::now().since(proven) < SLOW + round_trip * 2
    }

    /// An answer counts to a request that was sent at this moment.
    fn prove(&self, sent: Moment) {
        self.proven.fetch_max(sent.as_micros(), Ordering::Relaxed);
    }

    fn id(&self) -> Option<&NodeId> {
        if let Some(id) = self.members.id_of(&self.at) {
            let _ = self.id.set(id);
        }
        self.id.get()
    }

    /// Asks the other nodes, once for all that waits.
    fn confirm(self: &Arc<Self>, unconfirmed: Unconfirmed) {
        let Some(io) = self.members.io() else { return (unconfirmed.use_it)(true) };
        if !self.late.add(unconfirmed) {
            return;
        }
        let presence = self.clone();
        drop(io.spawn(async move {
            while let Some(waiting) = presence.late.take() {
                let (at, id) = (&presence.at, presence.id());
                let is_confirmed = presence.members.is_still_owner(at, id).await;
                for Unconfirmed { sent, use_it } in waiting {
                    if is_confirmed {
                        sent.into_iter().for_each(|sent| presence.prove(sent));
                    }
                    foreign::call(|| use_it(is_confirmed));
                }
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::address::Login;
    use super::*;

    /// A node that was silent may have been replaced meanwhile, however fast it answers the next request.
    #[test]
    fn an_answer_proves_the_next_one_for_a_moment() {
        let members = Arc::new(Members::new(Vec::new(), Login::default(), None));
        let presence = Presence::new(members, HostPort { host: "h1".into(), port: 6379 });
        let (now, far) = (clock::now(), Duration::from_millis(80));
        assert!(!presence.is_proven(far), "nothing is known");
        presence.prove(now.before(SLOW));
        assert!(!presence.is_proven(Duration::ZERO) && presence.is_proven(far));
        presence.prove(now);
        presence.prove(now.before(SLOW));
        assert!(presence.is_proven(Duration::ZERO), "the last one counts");
    }
}
