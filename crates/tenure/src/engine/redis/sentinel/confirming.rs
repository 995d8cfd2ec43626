//! Which replies of a master count at once, and which are confirmed by the Sentinels first.
//!
//! - A reply that took long: the master may have been stopped, replaced and continued before it answered.
//! - A reply that arrives when the Sentinels have not been asked for some time, though this client asks them every second: this
//!   process was stopped, or its machine was, and perhaps the master with it. The master may have been replaced meanwhile, and
//!   still accepts writes.
//!
//! If no majority answers, the first kind is unknown (I6). The second is used, as if the process had not been stopped: without
//! the Sentinels, a client goes on with the master that it has.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;

use super::super::address::HostPort;
use super::super::late::Late;
use super::super::resp::Reply;
use super::super::wire::Done;
use super::{ASK_EVERY, Sentinels, peer};
use crate::clock;
use crate::core::moment::Moment;
use crate::error::StoreError;
use crate::foreign;
use crate::sync::lock;

/// A reply that took this long is confirmed before it is used. No Sentinel replaces a master as fast as that: it waits for
/// `down-after-milliseconds`, asks the others, and elects a leader.
const SLOW: Duration = Duration::from_millis(500);

/// The Sentinels are asked every second, and may take one to answer: if they were last asked longer ago than this, this process
/// did not run.
const STOPPED: Duration = ASK_EVERY.saturating_add(Duration::from_millis(1500));

/// Replies that are to be confirmed.
#[derive(Default)]
pub(super) struct Confirming {
    late: Late<LateReply>,
    /// Up to when the Sentinels were followed, in microseconds.
    followed: AtomicU64,
}

/// A reply that is to be confirmed, and the master that was asked.
struct LateReply {
    master: Option<HostPort>,
    /// It counts only if a majority answers.
    is_slow: bool,
    result: Result<Reply, StoreError>,
    done: Done,
}

impl Confirming {
    /// The Sentinels were asked between two moments.
    pub(super) fn note_asked(&self, began: Moment, ended: Moment, is_answered: bool) {
        let followed = match is_answered {
            true => began,
            // Longer than its timeout: the process was stopped meanwhile.
            false if ended.since(began) >= peer::ANSWER_TIME * 3 => return,
            false => ended,
        };
        self.followed.fetch_max(followed.as_micros(), Ordering::Relaxed);
    }

    fn was_stopped(&self, now: Moment) -> bool {
        let followed = Moment::from_micros(self.followed.load(Ordering::Relaxed));
        now.since(followed) >= STOPPED
    }
}

impl Sentinels {
    /// Whether this process was stopped, and does not know yet whether the master was replaced.
    pub(in super::super) fn was_stopped(&self) -> bool {
        self.confirming.was_stopped(clock::now())
    }

    /// Has the reply to a request that is sent now confirmed, if it takes long, or this process was stopped.
    pub(in super::super) fn confirm_reply(self: &Arc<Self>, done: Done) -> Done {
        let (sent, sentinels) = (clock::now(), self.clone());
        let master = lock(&self.state).in_use.clone();
        Box::new(move |result| {
            let now = clock::now();
            let is_slow = now.since(sent) >= SLOW;
            let is_doubtful = result.is_ok() && (is_slow || sentinels.confirming.was_stopped(now));
            match sentinels.io.get().filter(|_| is_doubtful).cloned() {
                Some(io) => {
                    let reply = LateReply { master, is_slow, result, done };
                    sentinels.confirm_later(reply, &io);
                }
                None => done(result),
            }
        })
    }

    /// Adds a reply to those that the next question confirms: a master that was stalled has many of them.
    fn confirm_later(self: &Arc<Self>, reply: LateReply, io: &Handle) {
        if !self.confirming.late.add(reply) {
            return;
        }
        let sentinels = self.clone();
        drop(io.spawn(async move {
            while let Some(replies) = sentinels.confirming.late.take() {
                let named = sentinels.ask().await.ok();
                for LateReply { master, is_slow, result, done } in replies {
                    let is_named =
                        named.as_ref().map_or(!is_slow, |it| Some(it) == master.as_ref());
                    let is_same = is_named && lock(&sentinels.state).in_use == master;
                    let replaced =
                        "the answer came so late that the master may have been replaced meanwhile";
                    let result = if is_same { result } else { Err(StoreError::unknown(replaced)) };
                    foreign::call(|| done(result));
                }
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_was_stopped_is_noticed() {
        let at = |millis: u64| Moment::from_micros(1_000_000_000 + 1000 * millis);
        let confirming = Confirming::default();
        assert!(confirming.was_stopped(at(0)), "never asked");
        confirming.note_asked(at(0), at(3), true);
        confirming.note_asked(at(1000), at(2000), false);
        assert!(!confirming.was_stopped(at(4000)), "no Sentinel answers");
        assert!(confirming.was_stopped(at(4500)));
        confirming.note_asked(at(3000), at(60_000), false);
        assert!(confirming.was_stopped(at(60_000)), "stopped while it asked");
        confirming.note_asked(at(60_000), at(60_001), true);
        assert!(!confirming.was_stopped(at(60_001)));
    }
}
