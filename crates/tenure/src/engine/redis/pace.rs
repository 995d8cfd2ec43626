//! The backoff between attempts to connect.
//!
//! A pause is a share of how long the connection has been missing. So after a short outage a client
//! reconnects at once, after a longer one it is disconnected for little longer than the outage took, and a
//! server that stays down is tried ever less often. Pauses have jitter, so that many clients that lost
//! a server together do not reconnect as a thundering herd.
//!
//! A request that finds no connection, or another connection of the same client that is up again,
//! shortens a pause, but not below a smaller share.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::clock;
use crate::core::moment::Moment;

/// The shortest pause.
const FIRST: Duration = Duration::from_millis(20);

/// The longest pause without requests.
const MOST: Duration = Duration::from_secs(2);

/// The longest pause with requests.
const MOST_WHEN_WANTED: Duration = Duration::from_secs(1);

/// A pause is at most this part of the outage without requests, and with requests.
const SHARE: u32 = 4;
const SHARE_WHEN_WANTED: u32 = 16;

/// A connection that did not last for this long has not ended the outage: a server that accepts connections and
/// closes them at once must not be tried without pause.
const LASTING: Duration = Duration::from_secs(1);

/// Signals between the connections of one client.
#[derive(Default)]
pub(super) struct Pace {
    wanted: Notify,
    moved: Notify,
    located: Notify,
    lost: Arc<Notify>,
}

/// How long one connection has been missing.
#[derive(Default)]
pub(super) struct Outage {
    since: Option<Moment>,
    up: Option<Moment>,
}

impl Pace {
    /// Notifies `lost` whenever a connection is lost, or could not be made for the first time.
    pub(super) fn reporting_to(lost: Arc<Notify>) -> Self {
        Self { lost, ..Self::default() }
    }

    /// A connection is lost, or could not be made for the first time.
    pub(super) fn report_lost(&self) {
        self.lost.notify_one();
    }

    /// Resolves when a connection was lost since the last call. For one task.
    pub(super) async fn lost(&self) {
        self.lost.notified().await;
    }

    /// The server is at another address than before: ends all pauses.
    pub(super) fn report_located(&self) {
        self.located.notify_waiters();
    }

    /// Shortens the pauses: there is a reason to connect soon.
    pub(super) fn want(&self) {
        self.wanted.notify_waiters();
    }

    /// The server is not the master any more: all connections must resolve the address again.
    pub(super) fn report_moved(&self) {
        self.moved.notify_waiters();
    }

    /// Resolves when a connection reports, from now on, that the server is not the master any more.
    pub(super) fn moved(&self) -> Pin<Box<Notified<'_>>> {
        let mut moved = Box::pin(self.moved.notified());
        moved.as_mut().enable();
        moved
    }

    /// Waits before the next attempt.
    pub(super) async fn back_off(&self, outage: &mut Outage) {
        let mut wanted = pin!(self.wanted.notified());
        // Requests from now on count.
        wanted.as_mut().enable();
        let (least, most) = pauses(outage.lasts(clock::now()), random());
        let pausing = async {
            pause(least).await;
            let _ = tokio::time::timeout(most - least, wanted).await;
        };
        tokio::select! {
            () = pausing => {}
            () = self.located.notified() => {}
        }
    }
}

impl Outage {
    /// The connection is up.
    pub(super) fn end(&mut self) {
        self.up = Some(clock::now());
    }

    /// How long the connection has been missing, now that it is.
    fn lasts(&mut self, now: Moment) -> Duration {
        let lasted = self.up.take().is_some_and(|up| now.since(up) >= LASTING);
        let since = self.since.filter(|_| !lasted).unwrap_or(now);
        self.since = Some(since);
        now.since(since)
    }
}

/// How long to wait before the next attempt: with requests, and without. `part` is a random number from 0 to 1.
fn pauses(outage: Duration, part: f64) -> (Duration, Duration) {
    let upto = |share: u32, most: Duration| {
        let most = (outage / share).clamp(FIRST, most);
        FIRST / 2 + (most - FIRST / 2).mul_f64(part)
    };
    (upto(SHARE_WHEN_WANTED, MOST_WHEN_WANTED), upto(SHARE, MOST))
}

/// A number from 0 to 1.
pub(super) fn random() -> f64 {
    (crate::owner::unique_number() >> 11) as f64 / (1u64 << 53) as f64
}

#[expect(clippy::disallowed_methods, reason = "the I/O thread waits before it connects again")]
pub(super) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The number of attempts during an outage of this length, and how long after its end the next one is made,
    /// if every pause is as short, or as long, as it can be.
    fn attempts(length: Duration, is_wanted: bool, part: f64) -> (u32, Duration) {
        let (mut passed, mut count) = (Duration::ZERO, 0);
        while passed < length {
            let (wanted, unwanted) = pauses(passed, part);
            assert!(wanted <= unwanted && wanted >= FIRST / 2);
            passed += if is_wanted { wanted } else { unwanted };
            count += 1;
        }
        (count, passed - length)
    }

    #[test]
    fn the_delay_after_an_outage_is_a_share_of_it() {
        for millis in [1, 20, 300, 1_000, 3_000, 10_000] {
            let outage = MS * millis;
            let (_, delay) = attempts(outage, false, 1.0);
            assert!(delay <= (outage / SHARE).max(FIRST), "{delay:?} after {outage:?}");
            let (_, delay) = attempts(outage, true, 1.0);
            assert!(delay <= (outage / SHARE_WHEN_WANTED).max(FIRST), "{delay:?} after {outage:?}");
        }
    }

    /// Ten minutes: several attempts at first, then one in two seconds at most, or two with a constant stream of
    /// requests.
    #[test]
    fn a_server_that_stays_down_is_tried_seldom() {
        let outage = MS * 600_000;
        assert!(attempts(outage, false, 0.5).0 < 700, "{:?}", attempts(outage, false, 0.5));
        assert!(attempts(outage, true, 0.5).0 < 1_400, "{:?}", attempts(outage, true, 0.5));
    }

    #[test]
    fn a_connection_that_does_not_last_has_not_ended_the_outage() {
        let at = |millis: u64| Moment::from_micros(1_000 * millis);
        let mut outage = Outage::default();
        assert_eq!(outage.lasts(at(5_000)), Duration::ZERO);
        outage.up = Some(at(6_000));
        assert_eq!(outage.lasts(at(6_100)), MS * 1_100, "it was closed at once");
        outage.up = Some(at(7_000));
        assert_eq!(outage.lasts(at(9_000)), Duration::ZERO, "a new one");
    }
}
