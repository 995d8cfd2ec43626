//! A held lock.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::client::Fallback;
use crate::clock;
use crate::core::fence::Fence;
use crate::core::name::LockName;
use crate::driver::{Driver, Held};
use crate::error::{Error, Invalid, Lost};
use crate::events::EventKind;
use crate::handle::Handle;
use crate::owner::Owner;
use crate::telemetry::spans::{self, Scope};

/// A held lock. Dropping the guard releases the lock, from any thread, on error and on panic.
///
/// The lock can be lost while the guard lives: the store was unreachable for too long, the process
/// was stopped, or an operator took it away. [`Guard::lost`] reports it at once, [`Guard::protect`]
/// cancels the work, and with [`Guard::fence`] the database can refuse a late write.
///
/// # Examples
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
    /// It came through the queue.
    was_queued: bool,
    /// Covers its life, if there is a subscriber of `tracing`.
    span: Option<Box<Scope>>,
}

/// What ends when this guard is dropped.
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
        Self { held, turn, role: Role::Sole, was_queued: false, span: None }
    }

    pub(crate) fn counted(held: Arc<Held>) -> Self {
        Self { held, turn: 0, role: Role::Counted, was_queued: false, span: None }
    }

    /// The hold without its guard: dropping it has no effect.
    pub(crate) fn into_held(mut self) -> Arc<Held> {
        self.role = Role::Disarmed;
        self.held.clone()
    }

    pub(crate) fn held(&self) -> &Arc<Held> {
        &self.held
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        self.held.driver()
    }

    /// Reports that it is about to be returned to its caller, who has waited for so long, and begins the span of its life.
    pub(crate) fn begin(&mut self, waited: Duration) {
        if let Some(is_local) = self.is_handed_over_locally() {
            self.held.report(self.turn, EventKind::HandedOver { is_local });
        }
        self.held.report(self.turn, EventKind::Acquired { waited });
        self.span = spans::hold(self);
    }

    /// Whether it came directly from its last holder, and then whether that was a task of this process.
    pub(crate) fn is_handed_over_locally(&self) -> Option<bool> {
        match self.role {
            Role::Counted => None,
            _ if self.turn > 0 => Some(true),
            _ => self.was_queued.then_some(false),
        }
    }

    /// Notes that it came through the queue.
    pub(crate) fn queued(mut self) -> Self {
        self.was_queued = true;
        self
    }

    /// Consumes the guard without releasing its hold, which ends with its lease.
    pub(crate) fn forget(self) {
        let held = self.into_held();
        held.driver().forget(&held);
    }

    /// Gives back all permits but `permits`. If the store cannot be reached, this is retried in the
    /// background.
    pub(crate) async fn keep(&self, permits: u32) {
        self.held.driver().give_back(&self.held, permits).await;
    }

    /// Returns the lock's name.
    pub fn name(&self) -> &LockName {
        &self.held.name
    }

    /// Returns the owner under which the lock is held.
    pub fn owner(&self) -> Owner {
        self.held.entry.owner
    }

    /// Returns the fencing token to send along with every write, for the database to check. It is larger
    /// than that of every earlier grant.
    pub fn fence(&self) -> Fence {
        self.held.fence(self.turn)
    }

    /// Returns how long the lock is certainly still held if no renewal succeeds; zero once it is lost.
    pub fn remaining(&self) -> Duration {
        let now = clock::now();
        match self.held.lost(now) {
            Some(_) => Duration::ZERO,
            None => self.held.deadline().since(now),
        }
    }

    /// Returns whether the lock is lost. It checks the clock, so it is correct even right after the process
    /// was stopped or the machine was suspended.
    pub fn is_lost(&self) -> bool {
        self.held.lost(clock::now()).is_some()
    }

    /// Returns whether this lock excludes fewer clients than one of the store does, because the store could not be reached
    /// and the client has a [`Fallback`].
    pub fn is_degraded(&self) -> bool {
        self.fallback().is_some()
    }

    /// Returns the fallback that this lock comes from; none if it comes from the store.
    pub fn fallback(&self) -> Option<Fallback> {
        self.held.driver().fallback()
    }

    /// Checks that the lock is still held. For use right before a step that cannot be undone.
    ///
    /// # Errors
    /// Returns [`Lost`], with the reason.
    pub fn ensure_held(&self) -> Result<(), Lost> {
        self.held.lost(clock::now()).map_or(Ok(()), Err)
    }

    /// Completes when the lock is lost, before its lease ends in the store (I9).
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub async fn lost(&self) -> Lost {
        self.held.until_lost(self.turn).await
    }

    /// Completes when at most `reserve` of the lease is left because renewals fail, or when the lock is
    /// lost. For work that needs some time to end before another holder can begin.
    ///
    /// # Cancel safety
    /// This method is cancel safe.
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
                // If the lease was renewed in the meantime, the loop continues.
                Poll::Pending => over.as_mut().poll(context).map(|()| false),
            });
            if is_lost.await {
                return;
            }
        }
    }

    /// Returns a signal of the loss that does not borrow the guard, for other tasks.
    pub fn lost_signal(&self) -> LostSignal {
        LostSignal { held: self.held.clone(), turn: self.turn }
    }

    /// Runs `work` while the lock is held. When the lock is lost, `work` is dropped.
    ///
    /// # Errors
    /// Returns [`Lost`] if `work` was not finished before the lock was lost.
    ///
    /// # Cancel safety
    /// As safe as `work` itself.
    pub async fn protect<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        protect(|| self.ensure_held(), self.lost(), work).await
    }

    /// Extends the lease now: for a fixed lease, or before a long step.
    ///
    /// # Errors
    /// Returns [`Error::Lost`] if the lock is not held any more, or an error if the store fails; the old
    /// deadline then stands.
    ///
    /// # Cancel safety
    /// If the future is dropped, the renewal may or may not have happened; the old deadline stands.
    pub async fn renew(&self) -> Result<(), Error> {
        self.held.driver().renew(&self.held).await
    }

    /// Ensures that nearly the whole lease is left: a lock that was handed over is held for a few seconds
    /// only, until its first renewal. For use before work that must know how much time it has to end.
    ///
    /// # Errors
    /// As for [`Guard::renew`].
    ///
    /// # Cancel safety
    /// As for [`Guard::renew`].
    pub async fn confirm(&self) -> Result<(), Error> {
        // A grant loses a little of its lease to the drift allowance and to the round trip.
        let whole = self.held.lease().duration() / 10 * 9;
        if self.remaining() < whole { self.renew().await } else { Ok(()) }
    }

    /// Releases the lock, and returns whether it was held until now.
    ///
    /// # Errors
    /// Returns an error if the store refused or could not be reached for as long as the client's patience or
    /// the lease lasts, or if it did not answer. The release then continues in the background.
    ///
    /// # Cancel safety
    /// If the future is dropped, the release continues in the background.
    pub async fn release(mut self) -> Result<Released, Error> {
        self.driver().check_process()?;
        let role = std::mem::replace(&mut self.role, Role::Disarmed);
        let held = self.held.clone();
        if role == Role::Counted && !held.driver().leave_locally(&held) {
            return Ok(held.lost(clock::now()).map_or(Released::Now, |_| Released::AlreadyLost));
        }
        held.driver().release(&held).await
    }

    /// Consumes the guard without releasing the lock, and returns a handle with which any process can renew
    /// and release it. The watchdog stops: from now on the process with the handle must renew the lease.
    /// Nearly the whole lease is left, because it is renewed first if necessary, as [`Guard::confirm`] does;
    /// a fixed lease stays as it is.
    ///
    /// # Errors
    /// Returns [`Error::Lost`] if the lock is lost, and [`Error::Invalid`] if this process counts further
    /// entries into the same hold: they end with their own guards; or if it is a lock of a [`Fallback`],
    /// which only this client has: it is released. If the store fails, its error is returned
    /// and the lock is released.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock is released.
    pub async fn detach(mut self) -> Result<Handle, Error> {
        self.driver().check_process()?;
        self.ensure_held()?;
        if self.is_degraded() {
            let sentence = "a lock of the fallback cannot be detached: the store does not have it";
            return Err(Invalid::new(sentence).into());
        }
        // A claim lease lasts for a few seconds only, until it is confirmed.
        if self.held.is_kept_up() {
            self.confirm().await?;
        }
        if self.role == Role::Counted && !self.held.driver().leave_locally(&self.held) {
            self.role = Role::Disarmed;
            let sentence = "a hold that other guards of this process share cannot be detached";
            return Err(Invalid::new(sentence).into());
        }
        // Its entry is counted out: from here on, an error ends the hold itself.
        self.role = Role::Sole;
        let held = &self.held;
        let entry = held.driver().entry_to_detach(held).await?;
        self.ensure_held()?;
        let handle = Handle::new(held.name.clone(), entry, self.fence(), held.lease());
        held.driver().detach(held)?;
        drop(self.into_held());
        Ok(handle)
    }
}

/// Runs `work` until it is done or `lost` completes, and polls it only while `ensure_held` succeeds.
pub(crate) async fn protect<F: Future>(
    ensure_held: impl Fn() -> Result<(), Lost>,
    lost: impl Future<Output = Lost>,
    work: F,
) -> Result<F::Output, Lost> {
    let (mut work, mut lost) = (pin!(work), pin!(lost));
    poll_fn(|context| {
        // The loss first: the work is not polled again without the lock.
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
        // In a forked child this is a copy: the lock and its counted entries are the parent's.
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

/// A signal of the loss of a lock, without its guard. Made by [`Guard::lost_signal`].
#[derive(Clone)]
pub struct LostSignal {
    held: Arc<Held>,
    turn: u8,
}

impl LostSignal {
    /// Returns whether the lock is lost. False once the guard has released it.
    pub fn is_lost(&self) -> bool {
        self.held.lost_for(self.turn, clock::now()).is_some()
    }

    /// Completes when the lock is lost; never, if it is released before.
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub async fn lost(&self) -> Lost {
        self.held.until_lost(self.turn).await
    }
}

impl fmt::Debug for LostSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LostSignal").field("is_lost", &self.is_lost()).finish_non_exhaustive()
    }
}
