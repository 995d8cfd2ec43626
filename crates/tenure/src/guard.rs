//! A lock that is held.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::clock;
use crate::core::fence::Fence;
use crate::core::name::LockName;
use crate::driver::{Driver, Held};
use crate::error::{Error, Invalid, Lost};
use crate::handle::Handle;
use crate::owner::Owner;

/// A lock that is held. Dropping it releases the lock, from any thread, on error and on panic.
///
/// The lock can be lost while the guard lives: the store was unreachable for too long, the process
/// was stopped, or an operator took it away. [`Guard::lost`] tells at once, [`Guard::protect`]
/// cancels the work, and [`Guard::fence`] lets the place where the data lives refuse a late write.
///
/// ```
/// # tenure::blocking::block_on(async {
/// let tenure = tenure::Tenure::connect("memory:").await?;
/// let guard = tenure.lock("orders/42").acquire().await?;
///
/// let receipt = guard.protect(charge_customer(guard.fence())).await?;
/// assert_eq!(receipt, "paid");
///
/// guard.release().await?; // or just drop it
/// # Ok::<(), tenure::Error>(())
/// # }).unwrap();
/// # async fn charge_customer(fence: tenure::Fence) -> &'static str { "paid" }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped; bind it to a name"]
pub struct Guard {
    held: Arc<Held>,
    turn: u8,
    role: Role,
}

/// What the end of this guard ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The hold.
    Sole,
    /// One of the entries that this process counts.
    Counted,
    /// Nothing.
    Disarmed,
}

impl Guard {
    /// The guard of one turn: local hand-overs make several guards of one hold, one after another.
    pub(crate) fn of_turn(held: Arc<Held>, turn: u8) -> Self {
        Self { held, turn, role: Role::Sole }
    }

    pub(crate) fn counted(held: Arc<Held>) -> Self {
        Self { held, turn: 0, role: Role::Counted }
    }

    /// The hold without its guard: nothing ends with it.
    pub(crate) fn into_held(mut self) -> Arc<Held> {
        self.role = Role::Disarmed;
        self.held.clone()
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        self.held.driver()
    }

    /// Gives the guard up without releasing what it stands for: its lease ends it.
    pub(crate) fn forget(self) {
        let held = self.into_held();
        held.driver().forget(&held);
    }

    /// Gives back all permits but so many. What the store cannot be told now, it is told in the
    /// background.
    pub(crate) async fn keep(&self, permits: u32) {
        self.held.driver().give_back(&self.held, permits).await;
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        &self.held.name
    }

    /// Under which identity the lock is held.
    pub fn owner(&self) -> Owner {
        self.held.entry.owner
    }

    /// The number to send along with every write, for the place where the data lives to check.
    /// It is larger than that of every grant before.
    pub fn fence(&self) -> Fence {
        self.held.fence(self.turn)
    }

    /// How long the lock is certainly still held if no renewal succeeds; zero once it is lost.
    pub fn remaining(&self) -> Duration {
        let now = clock::now();
        match self.held.lost(now) {
            Some(_) => Duration::ZERO,
            None => self.held.deadline().since(now),
        }
    }

    /// Whether the lock is lost. Looks at the clock, so it is right even if the process was
    /// stopped or the machine suspended a moment ago.
    pub fn is_lost(&self) -> bool {
        self.held.lost(clock::now()).is_some()
    }

    /// Whether this is only a local lock, because the store could not be reached and
    /// [`Fallback::Local`](crate::Fallback::Local) was chosen: it keeps out this process alone.
    pub fn is_degraded(&self) -> bool {
        self.held.driver().is_fallback
    }

    /// An error if the lock is lost. For use right before something that cannot be undone.
    ///
    /// # Errors
    /// [`Lost`], with the reason.
    pub fn ensure_held(&self) -> Result<(), Lost> {
        self.held.lost(clock::now()).map_or(Ok(()), Err)
    }

    /// Resolves when the lock is lost, before its lease ends in the store (I9).
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future.
    pub async fn lost(&self) -> Lost {
        self.held.until_lost(self.turn).await
    }

    /// Resolves when no more than `reserve` of the lease is left because renewals fail, or when the
    /// lock is lost: for work that needs some time to end before another can begin.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future.
    pub async fn runs_out(&self, reserve: Duration) {
        let mut lost = pin!(self.lost());
        loop {
            let left = self.remaining().saturating_sub(reserve);
            if left.is_zero() {
                return;
            }
            let mut over = pin!(self.driver().alarm(clock::now() + left));
            let is_lost = poll_fn(|context| match lost.as_mut().poll(context) {
                Poll::Ready(_) => Poll::Ready(true),
                // Renewed in the meantime, it goes on.
                Poll::Pending => over.as_mut().poll(context).map(|()| false),
            });
            if is_lost.await {
                return;
            }
        }
    }

    /// A signal of the loss that outlives the borrow of the guard, for other tasks.
    pub fn lost_signal(&self) -> LostSignal {
        LostSignal { held: self.held.clone(), turn: self.turn }
    }

    /// Runs `work` while the lock is held: when the lock is lost, `work` is dropped.
    ///
    /// # Errors
    /// [`Lost`], when `work` was not finished before the lock was lost.
    ///
    /// # Cancel safety
    /// As safe as `work` itself.
    pub async fn protect<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        protect(|| self.ensure_held(), self.lost(), work).await
    }

    /// Extends the lease now: for a fixed lease, or to be sure before a long step.
    ///
    /// # Errors
    /// [`Error::Lost`] when the lock is not held any more, or the store's trouble; then the old
    /// deadline stands.
    ///
    /// # Cancel safety
    /// Dropped, the renewal may or may not have happened; the old deadline stands.
    pub async fn renew(&self) -> Result<(), Error> {
        self.held.driver().renew(&self.held).await
    }

    /// Makes sure of the whole lease: a lock that was handed over is held for a few seconds only, until
    /// its first renewal. Before work that must know how much time it has to end in.
    ///
    /// # Errors
    /// As for [`Guard::renew`].
    ///
    /// # Cancel safety
    /// As for [`Guard::renew`].
    pub async fn confirm(&self) -> Result<(), Error> {
        // A grant loses a little of its lease to the careful reckoning, and to the way it came.
        let whole = self.held.lease().duration() / 10 * 9;
        if self.remaining() < whole { self.renew().await } else { Ok(()) }
    }

    /// Releases the lock, and tells whether it was held until now.
    ///
    /// # Errors
    /// When the store refused it, or could not be reached, for as long as the client's patience or the
    /// lease lasts; or when it did not answer. The release then goes on in the background.
    ///
    /// # Cancel safety
    /// Dropped, the release goes on in the background.
    pub async fn release(mut self) -> Result<Released, Error> {
        self.driver().check_process()?;
        let role = std::mem::replace(&mut self.role, Role::Disarmed);
        let held = self.held.clone();
        if role == Role::Counted && !held.driver().leave_locally(&held) {
            return Ok(held.lost(clock::now()).map_or(Released::Now, |_| Released::AlreadyLost));
        }
        held.driver().release(&held).await
    }

    /// Gives the guard up without releasing the lock, and returns a handle with which any process
    /// can renew and release it. The watchdog stops: the lease must be renewed from now on by
    /// whoever has the handle. Nearly the whole lease is left then, because it is renewed first if it
    /// has to be, as [`Guard::confirm`] does; a fixed lease goes on as it is.
    ///
    /// # Errors
    /// [`Error::Lost`], if there is nothing to detach any more. [`Error::Invalid`], if this process
    /// counts further entries into the same hold: they end with their own guards. StoreError with the
    /// store: then the lock is released.
    ///
    /// # Cancel safety
    /// Dropped before the end, the lock is released.
    pub async fn detach(mut self) -> Result<Handle, Error> {
        self.driver().check_process()?;
        self.ensure_held()?;
        // A hand-over lasts for a few seconds only, until it is confirmed.
        if self.held.is_kept_up() {
            self.confirm().await?;
        }
        if self.role == Role::Counted && !self.held.driver().leave_locally(&self.held) {
            self.role = Role::Disarmed;
            let sentence = "a hold that others in this process stand on cannot be detached";
            return Err(Invalid::new(sentence).into());
        }
        // Its entry is counted out: from here on, an error ends the hold itself.
        self.role = Role::Sole;
        let held = &self.held;
        let handle = Handle::new(held.name.clone(), held.entry, self.fence(), held.lease());
        held.driver().detach(held)?;
        drop(self.into_held());
        Ok(handle)
    }
}

/// Runs `work` until it is done or `lost` resolves, and takes no step of it unless `ensure_held`
/// agrees.
pub(crate) async fn protect<F: Future>(
    ensure_held: impl Fn() -> Result<(), Lost>,
    lost: impl Future<Output = Lost>,
    work: F,
) -> Result<F::Output, Lost> {
    let (mut work, mut lost) = (pin!(work), pin!(lost));
    poll_fn(|context| {
        // The loss first: not one more step of the work is taken without the lock.
        ensure_held()?;
        if let Poll::Ready(lost) = lost.as_mut().poll(context) {
            return Poll::Ready(Err(lost));
        }
        work.as_mut().poll(context).map(Ok)
    })
    .await
}

impl Drop for Guard {
    fn drop(&mut self) {
        let driver = self.held.driver();
        // In a forked child it is a copy: the lock is the parent's, and so is all that is counted.
        if driver.is_inherited() {
            return;
        }
        match self.role {
            Role::Disarmed => {}
            Role::Counted if !driver.leave_locally(&self.held) => {}
            Role::Counted | Role::Sole => driver.release_in_background(&self.held),
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", self.name())
            .field("owner", &self.owner())
            .field("fence", &self.fence())
            .field("remaining", &self.remaining())
            .finish()
    }
}

/// The outcome of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The lock was held until now.
    Now,
    /// The lock had been lost before; there was nothing to release.
    AlreadyLost,
}

/// Tells of the loss of a lock, apart from its guard.
#[derive(Clone)]
pub struct LostSignal {
    held: Arc<Held>,
    turn: u8,
}

impl LostSignal {
    /// Whether the lock is lost. False once the guard has released it.
    pub fn is_lost(&self) -> bool {
        self.held.lost_for(self.turn, clock::now()).is_some()
    }

    /// Resolves when the lock is lost; never, if it is released before.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future.
    pub async fn lost(&self) -> Lost {
        self.held.until_lost(self.turn).await
    }
}

impl fmt::Debug for LostSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LostSignal").field("is_lost", &self.is_lost()).finish_non_exhaustive()
    }
}
