//! The state of locks and of the store, and forced releases: for operators.

use super::{Tenure, failed};
use crate::core::name::LockName;
use crate::engine::{Engine, Finding, ForceOutcome, ForceRequest, ListRequest, Topology};
use crate::error::Error;
use crate::info::{About, LockInfo};
use crate::owner::Owner;

impl Tenure {
    /// Returns up to `limit` locks that have holders or waiters and whose names start with `prefix`, sorted
    /// by name, each as of one moment. A lock that the store cannot read is included, with its
    /// [error](LockInfo::error).
    ///
    /// # Errors
    /// Returns an error if the store fails.
    pub async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockInfo>, Error> {
        self.client.driver.check()?;
        let request = ListRequest { prefix: prefix.to_owned(), limit };
        let listed = self.client.driver.engine.list(request).await;
        listed.map_err(|error| Error::List { error })
    }

    pub(crate) async fn inspect(&self, name: LockName) -> Result<LockInfo, Error> {
        self.client.driver.check()?;
        let inspected = self.client.driver.engine.inspect(name.clone()).await;
        inspected.map_err(|error| failed(&name, "inspect", error))
    }

    /// Takes a lock away from `expected`, or from all holders, and keeps a record with a reason of at most
    /// 1024 bytes.
    ///
    /// # Errors
    /// Returns an error if the reason is too long or the store fails.
    pub async fn force_release(
        &self,
        name: LockName,
        expected: Option<Owner>,
        reason: &str,
    ) -> Result<ForceOutcome, Error> {
        self.client.driver.check()?;
        let by = self.client.about.clone();
        let reason = About::checked_note("a reason", reason)?;
        let request = ForceRequest { name: name.clone(), expected, reason, by };
        let forced = self.client.driver.engine.force_release(request).await;
        forced.map_err(|error| failed(&name, "force the release of", error))
    }

    /// Checks the store's configuration and state, and returns findings with advice for an operator. It may
    /// take a second.
    ///
    /// # Errors
    /// Returns an error if the store cannot be reached.
    pub async fn checkup(&self) -> Result<Vec<Finding>, Error> {
        self.client.driver.check()?;
        let found = self.client.driver.engine.checkup().await;
        found.map_err(|error| Error::Connect { error })
    }
    /// Returns the servers of the store: their roles, memory and slots, as far as this client may ask for them. It may take a
    /// second.
    ///
    /// # Errors
    /// Returns an error if the store cannot be reached.
    pub async fn topology(&self) -> Result<Topology, Error> {
        self.client.driver.check()?;
        let topology = self.client.driver.engine.topology().await;
        topology.map_err(|error| Error::Connect { error })
    }
}
