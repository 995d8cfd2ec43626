//! Why a lock was lost.

use std::time::Duration;

use tenure::{Guard, LockName, Lost, Owner, Tenure, WhyLost};

use crate::view::format::{plain, who};
use crate::view::output::say;

/// How long to ask the store for the reason: the report of a loss does not wait for longer.
const INSPECT_TIME: Duration = Duration::from_millis(500);

/// Reports that a lock is lost, or is being lost.
pub(crate) async fn report(tenure: &Tenure, guard: &Guard) {
    match guard.ensure_held() {
        Err(lost) => say(sentence(tenure, &lost, guard.owner()).await),
        Ok(()) => say(format_args!("`{}` is being lost: it was not renewed in time", guard.name())),
    }
}

/// A sentence on the loss of a lock by this owner, which names the client that forced a release, and its reason.
pub(crate) async fn sentence(tenure: &Tenure, lost: &Lost, owner: Owner) -> String {
    let by = match lost.why() {
        WhyLost::NotHeld => forced(tenure, lost.name(), owner).await,
        _ => None,
    };
    match by {
        Some(by) => format!("`{}` was lost: {by}", lost.name()),
        None => lost.to_string(),
    }
}

/// The client that forced the release from this owner, and its reason; none if that is not why it was lost, or unknown.
pub(crate) async fn forced(tenure: &Tenure, name: &LockName, owner: Owner) -> Option<String> {
    let lock = tenure.lock(name.clone());
    let inspected = tokio::time::timeout(INSPECT_TIME, lock.inspect()).await;
    let forced = inspected.ok()?.ok()?.forced.filter(|forced| forced.owners.contains(&owner))?;
    Some(format!("its release was forced by {}: {}", who(&forced.by), plain(&forced.reason)))
}
