//! Why a lock was lost.

use std::time::Duration;

use tenure::{Guard, LockName, Lost, Owner, Tenure, WhyLost};

use crate::view::format::{plain, who};
use crate::view::output::say;

/// How long to look: what is known already is not kept back for longer.
const LOOK: Duration = Duration::from_millis(500);

/// Reports that a lock is lost, or is being lost.
pub(crate) async fn report(tenure: &Tenure, guard: &Guard) {
    match guard.ensure_held() {
        Err(lost) => say(sentence(tenure, &lost, guard.owner()).await),
        Ok(()) => say(format_args!("`{}` is being lost: it was not renewed in time", guard.name())),
    }
}

/// A sentence on the loss of a lock by this owner: with who took it away, and why, if that is how it was
/// lost.
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

/// Who took the lock away from this owner, and why; none if that is not how it was lost, or not known.
pub(crate) async fn forced(tenure: &Tenure, name: &LockName, owner: Owner) -> Option<String> {
    let lock = tenure.lock(name.clone());
    let looked = tokio::time::timeout(LOOK, lock.inspect()).await;
    let forced = looked.ok()?.ok()?.forced.filter(|forced| forced.owners.contains(&owner))?;
    Some(format!("its release was forced by {}: {}", who(&forced.by), plain(&forced.reason)))
}
