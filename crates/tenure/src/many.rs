//! Several locks at once.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::client::Tenure;
use crate::clock;
use crate::core::moment::Moment;
use crate::driver::Spec;
use crate::error::{Error, Invalid, Lost};
use crate::guard::{Guard, Released, protect};
use crate::lock::Lock;
use crate::wait::Wait;

/// Acquires several locks, all of them or none, also in different stores.
///
/// Every caller acquires them in the same order, by name, so two callers that want the same locks cannot
/// deadlock. If all are free, one trip to each store is enough.
///
/// # Examples
///
/// ```
/// # tenure::blocking::block_on(async {
/// use std::time::Duration;
/// use tenure::{Wait, acquire_all};
///
/// let tenure = tenure::Tenure::connect("memory:").await?;
/// let accounts = [tenure.lock("account/7"), tenure.lock("account/3")];
///
/// let guards = acquire_all(accounts, Wait::within(Duration::from_secs(5))).await?;
/// guards.protect(transfer()).await?; // cancelled if one of them is lost
/// guards.release().await?; // or just drop it
/// # Ok::<(), tenure::Error>(())
/// # }).unwrap();
/// # async fn transfer() {}
/// ```
///
/// # Errors
/// As for [`Lock::acquire_with`], for the first lock that could not be acquired. A lock that is named twice is
/// refused.
///
/// # Cancel safety
/// This function is cancel safe: if the future is dropped, all grants are released.
pub async fn acquire_all(
    locks: impl IntoIterator<Item = Lock>,
    wait: Wait,
) -> Result<Guards, Error> {
    let locks = in_order(locks.into_iter().collect())?;
    let started = clock::now();
    let mut guards = Vec::with_capacity(locks.len());
    while guards.len() < locks.len() {
        guards.extend(try_all(&locks[guards.len()..]).await?);
        // Wait for the first lock that is taken. The locks after it in the order were released: holding
        // them while waiting could cause a deadlock.
        if let Some(taken) = locks.get(guards.len()) {
            let wait = wait.after(clock::now().since(started));
            guards.push(taken.acquire_with(wait).await?);
        }
    }
    // A fixed lease may have ended while another lock was waited for.
    match guards.iter().find_map(|guard| guard.ensure_held().err()) {
        Some(lost) => Err(lost.into()),
        None => Ok(Guards { guards }),
    }
}

/// The locks sorted by name, and by store within a name.
fn in_order(locks: Vec<Lock>) -> Result<Vec<Lock>, Error> {
    let mut keyed = Vec::with_capacity(locks.len());
    for lock in locks {
        keyed.push(((lock.spec()?.name.clone(), lock.tenure().place()), lock));
    }
    keyed.sort_by(|(one, _), (other, _)| one.cmp(other));
    if let Some(twice) = keyed.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        let name = &twice[0].0.0;
        return Err(Invalid::new(format!("`{name}` is named twice: it can be held once")).into());
    }
    Ok(keyed.into_iter().map(|(_, lock)| lock).collect())
}

/// One attempt at all of them. Returns the guards before the first lock that is taken; the others are
/// released.
async fn try_all(locks: &[Lock]) -> Result<Vec<Guard>, Error> {
    let mut attempts = Vec::with_capacity(locks.len());
    for run in
        locks.chunk_by(|one, next| Arc::ptr_eq(one.tenure().driver(), next.tenure().driver()))
    {
        let specs = run.iter().map(Lock::spec).collect::<Result<Vec<Arc<Spec>>, Error>>()?;
        attempts.push(attempt(run[0].tenure(), specs));
    }
    let granted: Vec<_> = join_all(attempts).await.into_iter().flatten().collect();
    Ok(granted.into_iter().map_while(|guard| guard).collect())
}

async fn attempt(tenure: &Tenure, specs: Vec<Arc<Spec>>) -> Vec<Option<Guard>> {
    let driver = tenure.driver();
    let granted = driver.try_all(&specs).await;
    let started = clock::now();
    let confirm = async |(spec, guard): (&Arc<Spec>, Option<Guard>)| {
        let mut guard = driver.confirm(spec, guard?, Moment::NEVER).await.ok()?;
        // A task of this client holds the fallback's own: it is waited for alone.
        if tenure.is_beside_the_fallback(spec, guard.owner()) {
            return None;
        }
        guard.begin(clock::now().since(started));
        Some(guard)
    };
    join_all(specs.iter().zip(granted).map(confirm).collect()).await
}

/// The guard of several locks. Dropping it releases all of them.
#[must_use = "the locks are released as soon as the guard is dropped; bind it to a name"]
pub struct Guards {
    guards: Vec<Guard>,
}

impl Guards {
    /// Returns the guard of one lock.
    pub fn get(&self, name: &str) -> Option<&Guard> {
        self.guards.iter().find(|guard| guard.name().as_str() == name)
    }

    /// Returns an iterator over the guards, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Guard> {
        self.guards.iter()
    }

    /// Returns how long all of them are certainly still held if no renewal succeeds.
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(Guard::remaining).min().unwrap_or(Duration::MAX)
    }

    /// Returns whether one of them is lost.
    pub fn is_lost(&self) -> bool {
        self.ensure_held().is_err()
    }

    /// Returns whether one of them excludes fewer clients than one of the store does; see [`Guard::is_degraded`].
    pub fn is_degraded(&self) -> bool {
        self.guards.iter().any(Guard::is_degraded)
    }

    /// Checks that all of them are still held.
    ///
    /// # Errors
    /// Returns [`Lost`], with the lock and the reason.
    pub fn ensure_held(&self) -> Result<(), Lost> {
        self.guards.iter().try_for_each(Guard::ensure_held)
    }

    /// Completes when one of them is lost (I9).
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub async fn lost(&self) -> Lost {
        let mut signals: Vec<_> = self.guards.iter().map(|guard| Box::pin(guard.lost())).collect();
        poll_fn(|context| {
            let mut polled = signals.iter_mut().map(|signal| signal.as_mut().poll(context));
            polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
    }

    /// Runs `work` while all are held. When one is lost, `work` is dropped.
    ///
    /// # Errors
    /// Returns [`Lost`] if `work` was not finished before.
    ///
    /// # Cancel safety
    /// As safe as `work` itself.
    pub async fn protect<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        protect(|| self.ensure_held(), self.lost(), work).await
    }

    /// Releases all of them, and returns whether all were held until now.
    ///
    /// # Errors
    /// As for [`Guard::release`], for the first lock that failed; the others are released nevertheless.
    ///
    /// # Cancel safety
    /// As for [`Guard::release`].
    pub async fn release(self) -> Result<Released, Error> {
        let mut outcome = Released::Now;
        for released in join_all(self.guards.into_iter().map(Guard::release).collect()).await {
            if released? == Released::AlreadyLost {
                outcome = Released::AlreadyLost;
            }
        }
        Ok(outcome)
    }

    /// Returns the guards.
    pub fn into_guards(self) -> Vec<Guard> {
        self.guards
    }
}

impl fmt::Debug for Guards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.guards).finish()
    }
}

/// The outputs of futures that are polled concurrently.
async fn join_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
            }
        }
        if outputs.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
