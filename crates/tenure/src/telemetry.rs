//! Telemetry: metrics `tenure_…` and events of `tracing`.
//!
//! Recorders and subscribers are foreign code, and are called on threads that renew leases and read replies:
//! their panics are caught ([`foreign::call`]). No mutex may be held that they could need: a subscriber may
//! ask the client for its health.

use std::time::Duration;

#[cfg(feature = "redis")]
use metrics::gauge;
use metrics::{counter, histogram};

use crate::client::Fallback;
#[cfg(feature = "redis")]
use crate::core::clock_step::ClockStep;
use crate::core::fence::Fence;
use crate::core::name::LockName;
use crate::error::{Error, Lost, StoreError};
use crate::foreign;

/// An acquire has ended, successfully or not.
pub(crate) fn acquired<T>(result: &Result<Option<T>, Error>, waited: Duration) {
    let outcome = match result {
        Ok(Some(_)) => "acquired",
        Ok(None) | Err(Error::Busy { .. }) => "busy",
        Err(Error::TimedOut { .. }) => "timed_out",
        Err(Error::Unreachable { .. }) => "unreachable",
        Err(Error::Unknown { .. }) => "unknown",
        Err(Error::Unreplicated { .. }) => "unreplicated",
        Err(_) => "refused",
    };
    foreign::call(|| {
        counter!("tenure_acquires_total", "outcome" => outcome).increment(1);
        histogram!("tenure_wait_seconds").record(waited);
    });
}

/// A lock was held for this long, and released.
pub(crate) fn held_for(time: Duration) {
    foreign::call(|| {
        histogram!("tenure_hold_seconds").record(time);
    });
}

/// A lease was extended.
pub(crate) fn renewed() {
    foreign::call(|| {
        counter!("tenure_renewals_total", "outcome" => "extended").increment(1);
    });
}

/// Leases could not be extended; they will be retried.
pub(crate) fn renewal_failed(count: usize, error: &StoreError) {
    foreign::call(|| {
        counter!("tenure_renewals_total", "outcome" => "failed").increment(count as u64);
        tracing::warn!(locks = count, %error, "could not renew; retrying");
    });
}

/// The renewal of one lock failed, while others of the same call may have succeeded.
pub(crate) fn renewal_of_one_failed(name: &LockName, error: &StoreError) {
    foreign::call(|| {
        counter!("tenure_renewals_total", "outcome" => "failed").increment(1);
        tracing::warn!(lock = %name, %error, "could not renew; retrying");
    });
}

/// A lease was extended, but too few replicas have confirmed it; the renewal will be retried.
pub(crate) fn renewal_unreplicated(name: &LockName, replicas: u32) {
    foreign::call(|| {
        counter!("tenure_renewals_total", "outcome" => "failed").increment(1);
        tracing::warn!(lock = %name, replicas, "too few replicas have confirmed a renewal; retrying");
    });
}

/// A lock was lost.
pub(crate) fn lost(lost: &Lost, fence: Fence) {
    foreign::call(|| {
        counter!("tenure_losses_total").increment(1);
        tracing::warn!(lock = %lost.name(), %fence, why = %lost.why(), "lock lost");
    });
}

/// A lock could not be released; its lease will end it.
pub(crate) fn release_failed(name: &LockName, error: &StoreError) {
    foreign::call(|| {
        tracing::warn!(lock = %name, %error, "could not release; the lease will end it");
    });
}

/// A connection to the store is up, for the nth time.
#[cfg(feature = "redis")]
pub(crate) fn connected(link: &'static str, epoch: u64) {
    foreign::call(|| {
        counter!("tenure_connects_total", "link" => link).increment(1);
        gauge!("tenure_link_up", "link" => link).set(1.0);
        if epoch > 1 {
            tracing::info!(link, epoch, "reconnected to the store");
        }
    });
}

/// A connection to the store was lost, or could not be made.
#[cfg(feature = "redis")]
pub(crate) fn disconnected(link: &'static str, error: &StoreError) {
    foreign::call(|| {
        gauge!("tenure_link_up", "link" => link).set(0.0);
        tracing::warn!(link, %error, "no connection to the store; retrying");
    });
}

/// The store cannot be reached, and a lock of the fallback is used instead.
pub(crate) fn fell_back(name: &LockName, fallback: Fallback, error: &Error) {
    foreign::call(|| {
        counter!("tenure_fallbacks_total").increment(1);
        let excludes = match fallback {
            Fallback::Machine => "the processes of this user on this machine",
            _ => "the tasks of this process",
        };
        tracing::warn!(lock = %name, %error, excludes, "using a lock of the fallback");
    });
}

/// A message on Tenure's channel is not Tenure's.
#[cfg(feature = "redis")]
pub(crate) fn not_understood() {
    foreign::call(|| tracing::warn!("ignored an unknown message on Tenure's channel"));
}

/// The server refuses a subscription, so that wake-ups do not arrive, and waiters poll.
#[cfg(feature = "redis")]
pub(crate) fn not_subscribed(error: &str) {
    foreign::call(|| tracing::warn!(error, "the server refuses a subscription; waiters poll"));
}

/// The clock of the store was set. Leases end by it.
#[cfg(feature = "redis")]
pub(crate) fn clock_stepped(step: ClockStep) {
    let (direction, by, meaning) = match step {
        ClockStep::Forward(by) => ("forward", by, "leases may have ended early"),
        ClockStep::Back(by) => {
            ("back", by, "a crashed holder may keep its lock for one more lease")
        }
    };
    foreign::call(|| {
        counter!("tenure_clock_steps_total", "direction" => direction).increment(1);
        tracing::warn!(direction, ?by, "the clock of the store was set: {meaning}");
    });
}
