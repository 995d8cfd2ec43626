//! Telemetry: metrics `tenure_…` and events of `tracing`.
//!
//! Recorders and subscribers are foreign code: their panics are caught ([`foreign::call`]). No mutex may be held that they
//! could need: a subscriber may ask the client for its health. Recorders are called on threads that renew leases and read
//! replies, and must not block. Log events of these threads go through a queue ([`log`]).

mod log;
mod recording;
pub(crate) mod spans;

use std::time::Duration;

use metrics::{counter, gauge, histogram};

use self::log::log;
use self::recording::{change, count, record};
use crate::client::Fallback;
#[cfg(feature = "redis")]
use crate::core::clock_step::ClockStep;
use crate::core::fence::Fence;
use crate::core::name::LockName;
use crate::error::{Error, Lost, StoreError, WhyLost};
use crate::foreign;
use crate::group::Group;
use crate::guard::Guard;
use crate::info::LockInfo;

/// Says what each metric means, to a recorder that is there already.
pub(crate) fn describe() {
    foreign::call(recording::describe);
}

/// The outcome of an acquire, as a label.
fn outcome<T>(result: &Result<Option<T>, Error>) -> &'static str {
    match result {
        Ok(Some(_)) => "acquired",
        Ok(None) | Err(Error::Busy { .. }) => "busy",
        Err(Error::TimedOut { .. }) => "timed_out",
        Err(Error::Unreachable { .. }) => "unreachable",
        Err(Error::Unknown { .. }) => "unknown",
        Err(Error::Unreplicated { .. }) => "unreplicated",
        Err(_) => "refused",
    }
}

/// An acquire has ended, successfully or not.
pub(crate) fn acquired(result: &Result<Option<Guard>, Error>, group: Group, waited: Duration) {
    foreign::call(|| {
        match result {
            // A constant key: this is what happens most often.
            Ok(Some(_)) => count!("tenure_acquires_total", 1, group, "outcome" => "acquired"),
            _ => count!("tenure_acquires_total", 1, group, "outcome" => outcome(result)),
        }
        record!("tenure_wait_seconds", waited, group);
        match result.as_ref().ok().and_then(|guard| guard.as_ref()?.is_handed_over_locally()) {
            Some(true) => count!("tenure_handovers_total", 1, group, "from" => "local"),
            Some(false) => count!("tenure_handovers_total", 1, group, "from" => "remote"),
            None => {}
        }
    });
}

/// An acquire waits for longer than the client was configured to find normal.
pub(crate) fn waits_long(name: &LockName, waited: Duration, info: Result<&LockInfo, &Error>) {
    foreign::call(|| match info {
        Ok(info) => {
            let holder = info.holders.first();
            let about = holder.map(|holder| &*holder.about);
            tracing::warn!(
                lock = %name,
                ?waited,
                holder = about.map(tracing::field::display),
                note = about.and_then(|about| about.note.as_deref()),
                fence = holder.map(|holder| holder.fence.value()),
                held_since = holder.map(|holder| tracing::field::debug(holder.since)),
                waiters = info.waiting,
                "still waiting for a lock"
            );
        }
        Err(error) => {
            tracing::warn!(lock = %name, ?waited, %error, "still waiting for a lock; its holder is not known");
        }
    });
}

/// A lock is held for longer than the client was configured to find normal.
pub(crate) fn held_long(name: &LockName, fence: Fence, note: Option<&str>, held: Duration) {
    let (name, note) = (name.clone(), note.map(str::to_owned));
    log(move || tracing::warn!(lock = %name, %fence, note, ?held, "a lock is held for long"));
}

/// A task waits in the queue, or does no more.
pub(crate) fn waiting(group: Group, by: f64) {
    foreign::call(|| change!("tenure_waiting", by, group));
}

/// A hold has begun, or ended.
pub(crate) fn holding(group: Group, is_degraded: bool, by: f64) {
    foreign::call(|| {
        change!("tenure_held", by, group);
        if is_degraded {
            gauge!("tenure_degraded_held").increment(by);
        }
    });
}

/// A lock was held for this long, and released.
pub(crate) fn held_for(group: Group, time: Duration) {
    foreign::call(|| record!("tenure_hold_seconds", time, group));
}

/// A lease was extended; this much of it was left.
pub(crate) fn renewed(group: Group, left: Duration) {
    foreign::call(|| {
        count!("tenure_renewals_total", 1, group, "outcome" => "extended");
        record!("tenure_renewal_slack_seconds", left, group);
    });
}

/// A lease was extended late.
pub(crate) fn renewed_late(name: &LockName, fence: Fence, left: Duration, lease: Duration) {
    let name = name.clone();
    log(move || {
        tracing::warn!(lock = %name, %fence, ?left, ?lease, "a lease was renewed late: the store or this machine is slow");
    });
}

/// The store has answered a call that renews.
pub(crate) fn round_trip(time: Duration) {
    foreign::call(|| histogram!("tenure_round_trip_seconds").record(time));
}

/// Leases could not be extended; they will be retried.
pub(crate) fn renewal_failed(count: usize, error: &StoreError) {
    renewals_failed(count);
    let error = error.clone();
    log(move || tracing::warn!(locks = count, %error, "could not renew; retrying"));
}

/// The renewal of one lock failed, while others of the same call may have succeeded.
pub(crate) fn renewal_of_one_failed(name: &LockName, error: &StoreError) {
    renewals_failed(1);
    let (name, error) = (name.clone(), error.clone());
    log(move || tracing::warn!(lock = %name, %error, "could not renew; retrying"));
}

/// A lease was extended, but too few replicas have confirmed it; the renewal will be retried.
pub(crate) fn renewal_unreplicated(name: &LockName, replicas: u32) {
    renewals_failed(1);
    let name = name.clone();
    log(move || {
        tracing::warn!(lock = %name, replicas, "too few replicas have confirmed a renewal; retrying");
    });
}

fn renewals_failed(count: usize) {
    foreign::call(|| {
        counter!("tenure_renewals_total", "outcome" => "failed").increment(count as u64);
    });
}

/// A lock was lost.
pub(crate) fn lost(lost: &Lost, fence: Fence, note: Option<&str>, group: Group, is_forced: bool) {
    let why = match lost.why() {
        _ if is_forced => "forced",
        WhyLost::LeaseEnded => "lease_ended",
        WhyLost::NotHeld => "not_held",
        WhyLost::Ended => "client_ended",
        _ => "other",
    };
    foreign::call(|| count!("tenure_losses_total", 1, group, "why" => why));
    let (lost, note) = (lost.clone(), note.map(str::to_owned));
    log(move || {
        tracing::warn!(lock = %lost.name(), %fence, note, is_forced, why = %lost.why(), "lock lost");
    });
}

/// A lock could not be released; its lease will end it.
pub(crate) fn release_failed(name: &LockName, error: &StoreError) {
    let (name, error) = (name.clone(), error.clone());
    log(move || tracing::warn!(lock = %name, %error, "could not release; the lease will end it"));
}

/// A connection to the store is up, for the nth time.
#[cfg(feature = "redis")]
pub(crate) fn connected(link: &'static str, epoch: u64) {
    foreign::call(|| {
        counter!("tenure_connects_total", "link" => link).increment(1);
        gauge!("tenure_link_up", "link" => link).set(1.0);
    });
    if epoch > 1 {
        log(move || tracing::info!(link, epoch, "reconnected to the store"));
    }
}

/// A connection to the store was lost, or could not be made.
#[cfg(feature = "redis")]
pub(crate) fn disconnected(link: &'static str, error: &StoreError) {
    foreign::call(|| gauge!("tenure_link_up", "link" => link).set(0.0));
    let error = error.clone();
    log(move || tracing::warn!(link, %error, "no connection to the store; retrying"));
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
    log(|| tracing::warn!("ignored an unknown message on Tenure's channel"));
}

/// The server refuses a subscription, so that wake-ups do not arrive, and waiters poll.
#[cfg(feature = "redis")]
pub(crate) fn not_subscribed(error: &str) {
    let error = error.to_owned();
    log(move || tracing::warn!(error, "the server refuses a subscription; waiters poll"));
}

/// A node that the URL names answers as a node of another cluster than the one in use.
#[cfg(feature = "redis")]
pub(crate) fn other_cluster(node: &impl std::fmt::Display) {
    let node = node.to_string();
    log(move || {
        tracing::warn!(node, "a node belongs to another cluster, and is not used; check the URL");
    });
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
    });
    log(move || tracing::warn!(direction, ?by, "the clock of the store was set: {meaning}"));
}
