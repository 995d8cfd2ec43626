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

/// How often to look who leads.
const RETRY: Duration = Duration::from_secs(2);

/// An election: one of the candidates leads, until it resigns, crashes or is cut off; then the next
/// in line does. The terms are those that users know from Kubernetes: lease 15 s, renew deadline
/// 10 s, retry 2 s.
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
        Self { lock: lock.fair().lease(lease), lease, renew_deadline: None, retry }
    }

    /// The name under which to stand: others see it. Without one they see host, process and
    /// program.
    #[must_use]
    pub fn candidate(mut self, name: impl Into<String>) -> Self {
        self.lock = self.lock.note(name);
        self
    }

    /// For how long a leader that crashed is still the leader; 15 s if not set. It is renewed every
    /// third of that.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        (self.lock, self.lease) = (self.lock.lease(lease), lease);
        self
    }

    /// How long a leader goes on without a confirmed renewal before it steps down; two thirds of the
    /// lease if not set, which is 10 s unless the lease is.
    /// It must be shorter than the lease, and at least half of it: the difference is the time in
    /// which nobody leads, and work that was begun can end.
    #[must_use]
    pub fn renew_deadline(mut self, time: Duration) -> Self {
        self.renew_deadline = Some(time);
        self
    }

    /// How often [`Election::changes`] looks who leads; 2 s if not set.
    #[must_use]
    pub fn retry(mut self, time: Duration) -> Self {
        self.retry = time;
        self
    }

    /// Waits until this candidate leads.
    ///
    /// # Errors
    /// Bad input, or trouble with the store that lasts.
    ///
    /// # Cancel safety
    /// As for [`Lock::acquire`]: dropped, it does not stand any more.
    pub async fn campaign(&self) -> Result<Leadership, Error> {
        self.campaign_with(Wait::forever()).await
    }

    /// Waits for this time at most.
    ///
    /// # Errors
    /// [`Error::TimedOut`], bad input, or trouble with the store that lasts.
    ///
    /// # Cancel safety
    /// As for [`Election::campaign`].
    pub async fn campaign_within(&self, time: Duration) -> Result<Leadership, Error> {
        self.campaign_with(Wait::within(time)).await
    }

    /// Leads at once, or not: none if another leads, or others stand.
    ///
    /// # Errors
    /// Bad input, or trouble with the store.
    ///
    /// # Cancel safety
    /// As for [`Lock::try_acquire`].
    pub async fn try_campaign(&self) -> Result<Option<Leadership>, Error> {
        let reserve = self.reserve()?;
        let guard = self.lock.try_acquire().await?;
        Ok(guard.map(|guard| Leadership { guard, reserve }))
    }

    /// Who leads, if anyone does.
    ///
    /// # Errors
    /// As for [`Lock::inspect`].
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        Ok(leader(self.lock.inspect().await?))
    }

    /// The leader, and behind it those who stand, in the order in which they will follow.
    ///
    /// # Errors
    /// As for [`Lock::inspect`].
    pub async fn participants(&self) -> Result<Vec<Arc<About>>, Error> {
        let info = self.lock.inspect().await?;
        let leaders = info.holders.into_iter().map(|holder| holder.about);
        Ok(leaders.chain(info.waiters.into_iter().map(|waiter| waiter.about)).collect())
    }

    /// Follows who leads, without standing.
    pub fn changes(&self) -> Changes {
        Changes { election: self.clone(), last: None }
    }

    /// The same for code that is not async.
    pub fn blocking(self) -> crate::blocking::Election {
        crate::blocking::Election::new(self)
    }

    async fn campaign_with(&self, wait: Wait) -> Result<Leadership, Error> {
        let reserve = self.reserve()?;
        let guard = self.lock.acquire_with(wait).await?;
        guard.confirm().await?;
        Ok(Leadership { guard, reserve })
    }

    /// What must be left of the lease.
    fn reserve(&self) -> Result<Duration, Error> {
        // Renewals come every third of the lease, so one must fit in with room to spare.
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

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The name under which it stood; host, process and program if it gave none.
    pub candidate: Arc<str>,
    /// Where it runs.
    pub about: Arc<About>,
    /// Its identity.
    pub owner: Owner,
    /// Its term: larger than that of every leader before.
    pub fence: Fence,
    /// Since when it leads.
    pub since: SystemTime,
}

fn leader(info: LockInfo) -> Option<Leader> {
    let HolderInfo { owner, about, fence, since, .. } = info.holders.into_iter().next()?;
    let candidate = about.note.clone().unwrap_or_else(|| about.to_string().into());
    Some(Leader { candidate, about, owner, fence, since })
}

/// The right to lead. Dropping it resigns.
#[derive(Debug)]
#[must_use = "dropping it resigns; bind it to a name"]
pub struct Leadership {
    guard: Guard,
    /// What must be left of the lease.
    reserve: Duration,
}

impl Leadership {
    /// The term of this leader, to be sent along with everything it does: larger than that of every
    /// leader before.
    pub fn fence(&self) -> Fence {
        self.guard.fence()
    }

    /// Under which identity it leads.
    pub fn owner(&self) -> Owner {
        self.guard.owner()
    }

    /// How much of the lease is left when it steps down: the time in which work that was begun can
    /// end.
    pub fn reserve(&self) -> Duration {
        self.reserve
    }

    /// The lock behind it.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Whether it leads: false from the renew deadline on.
    pub fn is_leader(&self) -> bool {
        self.ensure_leader().is_ok()
    }

    /// An error if it does not lead any more. For use right before something that cannot be undone.
    ///
    /// # Errors
    /// [`Lost`], with the reason.
    pub fn ensure_leader(&self) -> Result<(), Lost> {
        self.guard.ensure_held()?;
        if self.guard.remaining() > self.reserve {
            return Ok(());
        }
        Err(Lost { name: self.guard.name().clone(), why: WhyLost::SteppedDown })
    }

    /// Resolves when it does not lead any more: at the renew deadline, well before another can lead,
    /// or as soon as it is taken away (I9).
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future.
    pub async fn deposed(&self) -> Lost {
        loop {
            if let Err(lost) = self.ensure_leader() {
                return lost;
            }
            self.guard.runs_out(self.reserve).await;
        }
    }

    /// Runs `work` while it leads: when it does not any more, `work` is dropped.
    ///
    /// # Errors
    /// [`Lost`], when `work` was not finished before.
    ///
    /// # Cancel safety
    /// As safe as `work` itself.
    pub async fn protect<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        protect(|| self.ensure_leader(), self.deposed(), work).await
    }

    /// Resigns; the next in line leads at once.
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

/// Follows who leads.
#[derive(Debug)]
pub struct Changes {
    election: Election,
    /// What was told last; none before the first time.
    last: Option<Option<Leader>>,
}

impl Changes {
    /// Who leads, as soon as it is another than was told before; the first time at once. None while
    /// nobody leads. It looks every 2 s, or as often as [`Election::retry`] says, so a leader of a
    /// shorter time may not be told.
    ///
    /// # Errors
    /// As for [`Lock::inspect`]. It may be called again.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future.
    pub async fn next(&mut self) -> Result<Option<Leader>, Error> {
        loop {
            let now = self.election.leader().await?;
            // The term tells leaders apart; `since` may be told more exactly later.
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
