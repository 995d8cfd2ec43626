//! A node that has no vote: it refuses everything, and says why.

use std::sync::Weak;

use crate::core::name::LockName;
use crate::engine::{
    AcquireRequest, Acquired, Answer, CancelRequest, Capabilities, Engine, Features, Finding,
    ForceOutcome, ForceRequest, Health, ListRequest, Listener, Reach, ReleaseOutcome,
    ReleaseRequest, Renewal, Renewed,
};
use crate::error::StoreError;
use crate::info::LockInfo;

/// A node that has no vote.
pub(super) struct Absent(pub(super) StoreError);

impl Absent {
    fn refuse<T>(&self) -> Answer<T> {
        Answer::now(Err(self.0.clone()))
    }
}

impl Engine for Absent {
    fn capabilities(&self) -> Capabilities {
        let (reach, features) = (Reach::Network, Features::ALL);
        Capabilities { engine: "none", reach, claim: None, has_replicas: false, features }
    }

    fn acquire(&self, _: AcquireRequest) -> Answer<Acquired> {
        self.refuse()
    }

    fn renew(&self, _: Vec<Renewal>) -> Answer<Vec<Result<Renewed, StoreError>>> {
        self.refuse()
    }

    fn release(&self, _: ReleaseRequest) -> Answer<ReleaseOutcome> {
        self.refuse()
    }

    fn cancel(&self, _: CancelRequest) -> Answer<()> {
        self.refuse()
    }

    fn inspect(&self, _: LockName) -> Answer<LockInfo> {
        self.refuse()
    }

    fn list(&self, _: ListRequest) -> Answer<Vec<LockInfo>> {
        self.refuse()
    }

    fn force_release(&self, _: ForceRequest) -> Answer<ForceOutcome> {
        self.refuse()
    }

    fn checkup(&self) -> Answer<Vec<Finding>> {
        self.refuse()
    }

    fn health(&self) -> Health {
        Health::down("admission", &self.0)
    }

    fn listen(&self, _: Weak<dyn Listener>) {}
}
