//! The locks that the server holds for event streams, by name and owner: a release by owner ends the stream.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tenure::{LockName, Owner};
use tokio::sync::oneshot;

/// The streams that hold locks.
#[derive(Default)]
pub(crate) struct Sessions {
    open: Mutex<HashMap<Hold, oneshot::Sender<Reply>>>,
}

/// A name is part of it: a request to release one lock must not end another.
type Hold = (LockName, Owner);

/// Where a stream reports how its lock was released.
pub(crate) type Reply = oneshot::Sender<Result<tenure::Released, tenure::Error>>;

impl Sessions {
    /// Registers the stream of an owner. A request to release arrives at the receiver.
    pub(crate) fn open(
        &self,
        name: &LockName,
        owner: Owner,
    ) -> (Open<'_>, oneshot::Receiver<Reply>) {
        let (sender, receiver) = oneshot::channel();
        let hold = (name.clone(), owner);
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(hold.clone(), sender);
        (Open { sessions: self, hold }, receiver)
    }

    /// Asks a stream to release its lock; none if there is no such stream.
    pub(crate) async fn release(
        &self,
        name: &LockName,
        owner: Owner,
    ) -> Option<Result<tenure::Released, tenure::Error>> {
        let hold = (name.clone(), owner);
        let stream = self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&hold)?;
        let (reply, answer) = oneshot::channel();
        stream.send(reply).ok()?;
        answer.await.ok()
    }
}

/// A registered stream.
pub(crate) struct Open<'a> {
    sessions: &'a Sessions,
    hold: Hold,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut open = self.sessions.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.remove(&self.hold);
    }
}
