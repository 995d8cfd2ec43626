//! When to connect again.
//!
//! A pause is a share of how long the connection has been missing. So after a short outage a client is
//! there again at once, after a longer one it was blind for little longer than the outage took, and a
//! server that stays away is asked ever less often. Pauses are random, so that many clients that lost
//! a server together do not come back together.
//!
//! A request that finds no connection, and another connection of the same client that is up again,
//! shorten a pause, but not below a smaller share.

use std::pin::{Pin, pin};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::clock;
use crate::core::moment::Moment;

/// The shortest pause.
const FIRST: Duration = Duration::from_millis(20);

/// The longest pause while nothing is asked for.
const MOST: Duration = Duration::from_secs(2);

/// The longest pause while something is.
const MOST_WHEN_WANTED: Duration = Duration::from_secs(1);

/// A pause is at most this part of the outage, and this one while something is asked for.
const SHARE: u32 = 4;
const SHARE_WHEN_WANTED: u32 = 16;

/// A connection that did not last for this long has not ended the outage: a server that lets
/// everyone in, and throws them out again, is not to be asked without pause.
const LASTING: Duration = Duration::from_secs(1);

/// What the connections of one client tell each other.
#[derive(Default)]
pub(super) struct Pace {
    wanted: Notify,
    moved: Notify,
}

/// How long one connection has been missing.
#[derive(Default)]
pub(super) struct Outage {
    since: Option<Moment>,
    up: Option<Moment>,
}

impl Pace {
    /// There is a reason to connect soon.
    pub(super) fn want(&self) {
        self.wanted.notify_waiters();
    }

    /// The server is not the master any more: all must look where the address leads now.
    pub(super) fn move_on(&self) {
        self.moved.notify_waiters();
    }

    /// Resolves when a connection finds, from now on, that the server is not the master any more.
    pub(super) fn moved(&self) -> Pin<Box<Notified<'_>>> {
        let mut moved = Box::pin(self.moved.notified());
        moved.as_mut().enable();
        moved
    }

    /// Waits before the next attempt.
    pub(super) async fn rest(&self, outage: &mut Outage) {
        let mut wanted = pin!(self.wanted.notified());
        // What is asked for from now on counts.
        wanted.as_mut().enable();
        let (least, most) = pauses(outage.lasts(clock::now()), random());
        pause(least).await;
        let _ = tokio::time::timeout(most - least, wanted).await;
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

/// How long to wait before the next attempt: while something is asked for, and otherwise. `part` is a
/// random number from 0 to 1.
fn pauses(outage: Duration, part: f64) -> (Duration, Duration) {
    let upto = |share: u32, most: Duration| {
        let most = (outage / share).clamp(FIRST, most);
        FIRST / 2 + (most - FIRST / 2).mul_f64(part)
    };
    (upto(SHARE_WHEN_WANTED, MOST_WHEN_WANTED), upto(SHARE, MOST))
}

/// A number from 0 to 1.
fn random() -> f64 {
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

    /// How many attempts an outage of this length sees, and how long after its end the next one comes,
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
    fn blindness_is_a_share_of_the_outage() {
        for millis in [1, 20, 300, 1_000, 3_000, 10_000] {
            let outage = MS * millis;
            let (_, blind) = attempts(outage, false, 1.0);
            assert!(blind <= (outage / SHARE).max(FIRST), "{blind:?} after {outage:?}");
            let (_, blind) = attempts(outage, true, 1.0);
            assert!(blind <= (outage / SHARE_WHEN_WANTED).max(FIRST), "{blind:?} after {outage:?}");
        }
    }

    /// Ten minutes: some attempts at first, then one in two seconds at most, or two when they are
    /// asked for without pause.
    #[test]
    fn a_server_that_is_gone_is_asked_seldom() {
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
        assert_eq!(outage.lasts(at(6_100)), MS * 1_100, "it was thrown out at once");
        outage.up = Some(at(7_000));
        assert_eq!(outage.lasts(at(9_000)), Duration::ZERO, "a new one");
    }
}
