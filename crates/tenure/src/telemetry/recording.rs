//! The names of the metrics, what they mean, and how they are recorded.
//!
//! A lock's name is never a label; its [`Group`] is, if it has one. Without a group every key is a constant, so that a client
//! whose process has no recorder allocates nothing for metrics.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};

/// Adds to a counter of a group. A label whose value is a literal makes a constant key.
macro_rules! count {
    ($name:literal, $by:expr, $group:expr, $label:literal => $value:literal) => {
        match $group.label() {
            None => metrics::counter!($name, $label => $value).increment($by),
            Some(group) => metrics::counter!($name, "group" => group, $label => $value).increment($by),
        }
    };
    ($name:literal, $by:expr, $group:expr, $label:literal => $value:expr) => {
        match $group.label() {
            None => metrics::counter!($name, $label => $value).increment($by),
            Some(group) => metrics::counter!($name, "group" => group, $label => $value).increment($by),
        }
    };
}

/// Adds to a gauge of a group.
macro_rules! change {
    ($name:literal, $by:expr, $group:expr) => {
        match $group.label() {
            None => metrics::gauge!($name).increment($by),
            Some(group) => metrics::gauge!($name, "group" => group).increment($by),
        }
    };
}

/// Records a value of a group.
macro_rules! record {
    ($name:literal, $value:expr, $group:expr) => {
        match $group.label() {
            None => metrics::histogram!($name).record($value),
            Some(group) => metrics::histogram!($name, "group" => group).record($value),
        }
    };
}

pub(super) use {change, count, record};

/// Says what each metric means, to a recorder that is there already.
pub(crate) fn describe() {
    describe_counter!("tenure_acquires_total", "Acquires, by outcome");
    describe_histogram!(
        "tenure_wait_seconds",
        Unit::Seconds,
        "How long an acquire took, whatever its outcome"
    );
    describe_histogram!(
        "tenure_hold_seconds",
        Unit::Seconds,
        "For how long a lock was held until its release"
    );
    describe_gauge!("tenure_held", "Locks that this process holds");
    describe_gauge!("tenure_waiting", "Tasks of this process that wait in the queue of a lock");
    describe_counter!(
        "tenure_handovers_total",
        "Grants that came through the queue, from a task of this process or from another client"
    );
    describe_counter!("tenure_renewals_total", "Renewals, by outcome");
    describe_histogram!(
        "tenure_renewal_slack_seconds",
        Unit::Seconds,
        "How much of the lease was left when a renewal was confirmed"
    );
    describe_histogram!(
        "tenure_round_trip_seconds",
        Unit::Seconds,
        "How long the store took to answer a renewal"
    );
    describe_counter!("tenure_losses_total", "Locks that were lost, by reason");
    describe_counter!("tenure_fallbacks_total", "Acquires for which the fallback was used");
    describe_gauge!("tenure_degraded_held", "Locks of the fallback that this process holds");
    describe_counter!("tenure_connects_total", "Connections that were made to the store");
    describe_gauge!("tenure_link_up", "Whether a connection to the store is up");
    describe_counter!(
        "tenure_clock_steps_total",
        "How often the clock of the store was set, by direction"
    );
}
