//! Leader election.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::clock;
use crate::core::fence::Fence;
use crate::error::{Error, Invalid, Lost, WhyLost};
use crate::guard::{Guard, Released, protect};
use crate::info::{About, HolderInfo, LockInfo};
use crate::lock::Lock;
use crate::owner::Owner;
use crate::wait::Wait;

/// The lease of a leader that does not choose another.
const LEASE: Duration = Duration::from_secs(15);

/// How often to poll for the leader.
const RETRY: Duration = Duration::from_secs(2);

/// A leader election: one of the candidates leads until it resigns, crashes or loses its connection; then
/// the next candidate in the queue leads. The defaults are those of Kubernetes: lease 15 s, renew deadline
/// 10 s, retry 2 s.
///
/// # Examples
///
/// ```
/// # tenure::blocking::block_on(async {
/// let tenure = tenure::Tenure::connect("memory:").await?;
/// let election = tenure.election("scheduler").candidate("node-1");
///
/// let leadership = election.campaign().await?;
/// assert_eq!(&*election.leader().await?.unwrap().candidate, "node-1");
/// leadership.protect(schedule(leadership.fence())).await?; // dropped when no longer the leader
/// leadership.resign().await?;
/// # Ok::<(), tenure::Error>(())
/// # }).unwrap();
/// # async fn schedule(fence: tenure::Fence) {}
/// ```
#[derive(Clone)]
pub struct Election {
    lock: Lock,
    lease: Duration,
    /// Two thirds of the lease, if not set.
    renew_deadline: Option<Duration>,
    retry: Duration,
}

impl Election {
    pub(crate) fn new(lock: Lock) -> Self {
        let (lease, retry) = (LEASE, RETRY);
        Self {
            lock: lock.fair().lease(lease).without_fallback(),
            lease,
            renew_deadline: None,
            retry,
        }
    }

    /// Sets the candidate's name, as others see it. The default is host, process and program.
    #[must_use]
    pub fn candidate(mut self, name: impl Into<String>) -> Self {
        self.lock = self.lock.note(name);
        self
    }

    /// Sets for how long a leader that crashed is still the leader. The default is 15 s. It is renewed
    /// every third of that.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        (self.lock, self.lease) = (self.lock.lease(lease), lease);
        self
    }

    /// Sets how long a leader continues without a confirmed renewal before it steps down. The default is
    /// two thirds of the lease, which is 10 s by default.
    ///
    /// It must be shorter than the lease, and at least half of it: the difference is the time without a
    /// leader, in which started work can end.
    #[must_use]
    pub fn renew_deadline(mut self, time: Duration) -> Self {
        self.renew_deadline = Some(time);
        self
    }

    /// Leads only when replicas of the server have the leadership, as [`Lock::wait_replicas`] does.
    #[must_use]
    pub fn wait_replicas(mut self, count: u32, within: Duration) -> Self {
        self.lock = self.lock.wait_replicas(count, within);
        self
    }

    /// Waits for replicas also at renewals, as [`Lock::wait_replicas_on_renewal`] does.
    #[must_use]
    pub fn wait_replicas_on_renewal(mut self, count: u32, within: Duration) -> Self {
        self.lock = self.lock.wait_replicas_on_renewal(count, within);
        self
    }

    /// Sets how often [`Election::changes`] polls for the leader. The default is 2 s.
    #[must_use]
    pub fn retry(mut self, time: Duration) -> Self {
        self.retry = time;
        self
    }

    /// Waits until this candidate leads.
    ///
    /// # Errors
    /// Returns an error if the input is invalid or the store keeps failing.
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`]: if the future is dropped, the candidate leaves the queue.
    pub async fn campaign(&self) -> Result<Leadership, Error> {
        self.campaign_with(Wait::forever()).await
    }

    /// Waits for at most `time`.
    ///
    /// # Errors
    /// Returns [`Error::TimedOut`] after `time`, or an error as [`Election::campaign`] does.
    ///
    /// # Cancel safety
    /// As for [`Election::campaign`].
    pub async fn campaign_within(&self, time: Duration) -> Result<Leadership, Error> {
        self.campaign_with(Wait::within(time)).await
    }

    /// Makes one attempt: returns `None` if another candidate leads, or others wait.
    ///
    /// # Errors
    /// Returns an error if the input is invalid or the store fails.
    ///
    /// # Cancel safety
    /// As for [`Lock::try_acquire`].
    pub async fn try_campaign(&self) -> Result<Option<Leadership>, Error> {
        let reserve = self.reserve()?;
        let guard = self.lock.try_acquire().await?;
        Ok(guard.map(|guard| Leadership { guard, reserve }))
    }

    /// Returns the current leader, if there is one.
    ///
    /// # Errors
    /// As for [`Lock::inspect`].
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        Ok(leader(self.lock.inspect().await?))
    }

    /// Returns the leader, followed by the waiting candidates in the order in which they will lead.
    ///
    /// # Errors
    /// As for [`Lock::inspect`].
    pub async fn participants(&self) -> Result<Vec<Arc<About>>, Error> {
        let info = self.lock.inspect().await?;
        let leaders = info.holders.into_iter().map(|holder| holder.about);
        Ok(leaders.chain(info.waiters.into_iter().map(|waiter| waiter.about)).collect())
    }

    /// Follows the leader without being a candidate.
    pub fn changes(&self) -> Changes {
        Changes { election: self.clone(), last: None }
    }

    /// Returns the same election for code that is not async.
    pub fn blocking(self) -> crate::blocking::Election {
        crate::blocking::Election::new(self)
    }

    async fn campaign_with(&self, wait: Wait) -> Result<Leadership, Error> {
        let reserve = self.reserve()?;
        let guard = self.lock.acquire_with(wait).await?;
        guard.confirm().await?;
        Ok(Leadership { guard, reserve })
    }

    /// How much of the lease must be left.
    fn reserve(&self) -> Result<Duration, Error> {
        // Renewals are sent every third of the lease, so at least one must fit in.
        let lease = self.lease;
        let deadline = self.renew_deadline.unwrap_or(lease / 3 * 2);
        if deadline >= lease || deadline < lease / 2 {
            return Err(Invalid::new(format!(
                "the renew deadline must be below the lease of {lease:?} and at least half of it, \
                 not {deadline:?}"
            ))
            .into());
        }
        Ok(lease - deadline)
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Election").field(&self.lock).finish()
    }
}

/// The leader of an election.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The candidate's name; host, process and program if it has none.
    pub candidate: Arc<str>,
    /// Where it runs.
    pub about: Arc<About>,
    /// Its identity.
    pub owner: Owner,
    /// Its term: larger than that of every earlier leader.
    pub fence: Fence,
    /// When it became the leader.
    pub since: SystemTime,
}

fn leader(info: LockInfo) -> Option<Leader> {
    let HolderInfo { owner, about, fence, since, .. } = info.holders.into_iter().next()?;
    let candidate = about.note.clone().unwrap_or_else(|| about.to_string().into());
    Some(Leader { candidate, about, owner, fence, since })
}

/// The leadership of an election. Dropping it resigns.
#[derive(Debug)]
#[must_use = "dropping it resigns; bind it to a name"]
pub struct Leadership {
    guard: Guard,
    /// How much of the lease must be left.
    reserve: Duration,
}

impl Leadership {
    /// Returns the term of this leader, to be sent along with every write: it is larger than that of every
    /// earlier leader.
    pub fn fence(&self) -> Fence {
        self.guard.fence()
    }

    /// Returns the identity of the leader.
    pub fn owner(&self) -> Owner {
        self.guard.owner()
    }

    /// Returns how much of the lease is left when it steps down: the time in which started work can end.
    pub fn reserve(&self) -> Duration {
        self.reserve
    }

    /// Returns the guard of the underlying lock.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Returns whether it leads: false from the renew deadline on.
    pub fn is_leader(&self) -> bool {
        self.ensure_leader().is_ok()
    }

    /// Checks that it still leads. For use right before a step that cannot be undone.
    ///
    /// # Errors
    /// Returns [`Lost`], with the reason.
    pub fn ensure_leader(&self) -> Result<(), Lost> {
        self.guard.ensure_held()?;
        if self.guard.remaining() > self.reserve {
            return Ok(());
        }
        Err(Lost { name: self.guard.name().clone(), why: WhyLost::SteppedDown })
    }

    /// Completes when it does not lead any more: at the renew deadline, well before another candidate can
    /// lead, or as soon as the leadership is taken away (I9).
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub async fn deposed(&self) -> Lost {
        loop {
            if let Err(lost) = self.ensure_leader() {
                return lost;
            }
            self.guard.runs_out(self.reserve).await;
        }
    }

    /// Runs `work` while it leads. When it does not lead any more, `work` is dropped.
    ///
    /// # Errors
    /// Returns [`Lost`] if `work` was not finished before.
    ///
    /// # Cancel safety
    /// As safe as `work` itself.
    pub async fn protect<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        protect(|| self.ensure_leader(), self.deposed(), work).await
    }

    /// Resigns; the next candidate leads at once.
    ///
    /// # Errors
    /// As for [`Guard::release`].
    ///
    /// # Cancel safety
    /// As for [`Guard::release`].
    pub async fn resign(self) -> Result<Released, Error> {
        self.guard.release().await
    }
}

/// Follows the leader of an election, made by [`Election::changes`].
#[derive(Debug)]
pub struct Changes {
    election: Election,
    /// The last returned leader; none before the first call.
    last: Option<Option<Leader>>,
}

impl Changes {
    /// Waits until the leader differs from the last returned one, and returns it; the first call returns at
    /// once. `None` means that there is no leader. It polls every 2 s, or as often as [`Election::retry`]
    /// says, so a leader for a shorter time may be missed.
    ///
    /// # Errors
    /// As for [`Lock::inspect`]. It may be called again after an error.
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub async fn next(&mut self) -> Result<Option<Leader>, Error> {
        loop {
            let now = self.election.leader().await?;
            // The term distinguishes leaders; `since` may become more exact later.
            let term = |leader: &Option<Leader>| leader.as_ref().map(|leader| leader.fence);
            if self.last.as_ref().is_none_or(|last| term(last) != term(&now)) {
                self.last = Some(now.clone());
                return Ok(now);
            }
            let next = clock::now() + self.election.retry;
            self.election.lock.tenure().driver().alarm(next).await;
        }
    }
}
