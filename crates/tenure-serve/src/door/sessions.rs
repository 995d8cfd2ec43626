//! The locks that the server holds for event streams, by owner: a release by handle ends the stream.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tenure::Owner;
use tokio::sync::oneshot;

/// The streams that hold locks.
#[derive(Default)]
pub(crate) struct Sessions {
    open: Mutex<HashMap<Owner, oneshot::Sender<Reply>>>,
}

/// Where a stream reports how its lock was released.
pub(crate) type Reply = oneshot::Sender<Result<tenure::Released, tenure::Error>>;

impl Sessions {
    /// Registers the stream of an owner. A request to release arrives at the receiver.
    pub(crate) fn open(&self, owner: Owner) -> (Open<'_>, oneshot::Receiver<Reply>) {
        let (sender, receiver) = oneshot::channel();
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(owner, sender);
        (Open { sessions: self, owner }, receiver)
    }

    /// Asks a stream to release its lock; none if there is no such stream.
    pub(crate) async fn release(
        &self,
        owner: Owner,
    ) -> Option<Result<tenure::Released, tenure::Error>> {
        let stream = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&owner)?;
        let (reply, answer) = oneshot::channel();
        stream.send(reply).ok()?;
        answer.await.ok()
    }
}

/// A registered stream.
pub(crate) struct Open<'a> {
    sessions: &'a Sessions,
    owner: Owner,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut open = self.sessions.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.remove(&self.owner);
    }
}
