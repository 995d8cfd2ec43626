//! The stages of the source documents: how the lock was made at the time, what broke it, and what is asked of it.

mod crashes;
mod crowds;
mod several;

use crate::checker::{Bounds, QueueBounds};
use crate::experiment::{Experiment, Outcome};
use crate::historic::{Expiry, Recipe, Release, Renewal, Wait};
use crate::servers::Needs;
use crate::time::millis;

/// One stage of the history of distributed locks.
pub struct Stage {
    /// Its number, from 1.
    pub number: usize,
    /// How the lock is made, in a few words.
    pub title: &'static str,
    /// The idea, in two sentences.
    pub idea: &'static str,
    /// The fault that is injected.
    pub fault: &'static str,
    /// What Tenure does about it.
    pub remedy: &'static str,
    pub(crate) recipe: Recipe,
    pub(crate) needs: Needs,
    /// The lease of both locks, in milliseconds.
    pub(crate) lease: u64,
    /// Replicas that must have Tenure's lock.
    pub(crate) replicas: u32,
    pub(crate) stock: Option<usize>,
    pub(crate) queue: Option<QueueBounds>,
    /// What the clients do, and what is done to them: the same for both locks.
    pub(crate) play: fn(&mut Experiment) -> Outcome,
}

impl Stage {
    /// What is asked of a history of this stage.
    pub fn bounds(&self) -> Bounds {
        // A lock may stay with a crashed holder for its lease, and a little longer.
        let stuck_after = (self.lease.min(2_000) + 1_000) * 1_000;
        Bounds { stuck_after, stock: self.stock, queue: self.queue }
    }

    /// The stage of a number.
    pub fn of(number: usize) -> Option<&'static Self> {
        ALL.iter().find(|stage| stage.number == number)
    }
}

/// The recipe of a stage's lock.
pub(crate) fn recipe(number: usize) -> Option<Recipe> {
    Stage::of(number).map(|stage| stage.recipe)
}

/// The first lock: `SETNX` and `DEL`. What later stages have mended is named where it changes.
const FIRST: Recipe = Recipe {
    expiry: Expiry::None,
    release: Release::Del,
    renewal: Renewal::None,
    wait: Wait::Poll(millis(50)),
};

const WITH_EXPIRY: Recipe = Recipe { expiry: Expiry::Atomic, ..FIRST };

const WITH_SCRIPT: Recipe = Recipe { release: Release::Script, ..WITH_EXPIRY };

const WITH_WATCHDOG: Recipe = Recipe { renewal: Renewal::Checked, ..WITH_SCRIPT };

/// What most stages have in common.
const PLAIN: Stage = Stage {
    number: 0,
    title: "",
    idea: "",
    fault: "",
    remedy: "",
    recipe: FIRST,
    needs: Needs::One,
    lease: 1_000,
    replicas: 0,
    stock: None,
    queue: None,
    play: crashes::holder_is_killed,
};

/// All stages, in order.
pub const ALL: [Stage; 13] = [
    Stage {
        number: 1,
        title: "SETNX without expiry",
        idea: "The key is the lock: SETNX creates it for one client alone, and DEL removes it. A client that is \
               killed in between never deletes it.",
        fault: "the holder is killed (SIGKILL)",
        remedy: "Every grant has a lease, and the lock is free when the lease ends.",
        recipe: FIRST,
        play: crashes::holder_is_killed,
        ..PLAIN
    },
    Stage {
        number: 2,
        title: "SETNX, then EXPIRE",
        idea: "The key gets an expiry, by a second command. Between the two the key has none, and a client may die \
               right there.",
        fault: "the holder is killed between the two commands",
        remedy: "Owner, lease and fence are written in one atomic step.",
        recipe: Recipe { expiry: Expiry::Second, ..FIRST },
        play: crashes::holder_is_killed_within_its_acquire,
        ..PLAIN
    },
    Stage {
        number: 3,
        title: "SET NX PX, released by DEL",
        idea: "One command sets key and expiry. The release deletes the key, also one that another client has set.",
        fault: "the holder is stopped past its lease (SIGSTOP), goes on and releases",
        remedy: "Only the owner can release; a holder that was stopped knows that it has lost the lock.",
        recipe: WITH_EXPIRY,
        play: crashes::late_release,
        ..PLAIN
    },
    Stage {
        number: 4,
        title: "GET, compare, DEL",
        idea: "The value names the owner, and the client compares before it deletes. But the key may expire, and pass to \
               another client, between GET and DEL.",
        fault: "the holder is stopped within its release, past its lease",
        remedy: "The store compares and releases in one atomic step.",
        recipe: Recipe { release: Release::GetDel, ..WITH_EXPIRY },
        play: crashes::stopped_within_the_release,
        ..PLAIN
    },
    Stage {
        number: 5,
        title: "a script releases, nothing renews",
        idea: "A script compares and deletes atomically. The lease is a guess of how long the work takes.",
        fault: "the work takes twice as long as the lease",
        remedy: "A watchdog on a thread of its own renews the lease while the guard lives.",
        recipe: WITH_SCRIPT,
        play: crashes::work_outlives_the_lease,
        ..PLAIN
    },
    Stage {
        number: 6,
        title: "a watchdog that does not compare the owner",
        idea: "A thread extends the key while the client works. It extends whatever key is there, and so the lock of \
               another client.",
        fault: "the holder is stopped past its lease and goes on; then the next holder is killed",
        remedy: "A renewal needs the owner, never creates a lock, and its refusal notifies the late holder.",
        recipe: Recipe { renewal: Renewal::Unchecked, ..WITH_SCRIPT },
        play: crashes::stopped_renewer,
        ..PLAIN
    },
    Stage {
        number: 7,
        title: "a lock that is not re-entrant",
        idea: "The lock has one owner and one entry. A function that acquires it calls another one that does the same, \
               and waits for itself.",
        fault: "the holder acquires again",
        remedy: "An owner enters as often as it likes, and the last release ends the hold.",
        recipe: WITH_WATCHDOG,
        play: crashes::nested_acquire,
        ..PLAIN
    },
    Stage {
        number: 8,
        title: "waiting by polling",
        idea: "A client that finds the lock taken tries again after a while. Which client is the first to try after a \
               release is luck.",
        fault: "eight clients wait, and use the lock for 20 ms each",
        remedy: "One queue in the order of arrival, and a release names the next holder.",
        recipe: Recipe { wait: Wait::Poll(millis(100)), ..WITH_WATCHDOG },
        needs: Needs::OneAlone,
        queue: Some(QueueBounds { gap: 10_000, requests: 6.0 }),
        play: crowds::eight_wait,
        ..PLAIN
    },
    Stage {
        number: 9,
        title: "a message wakes all waiters",
        idea: "The release publishes a message, and clients need not poll. All waiters are woken, all ask at once, and all but one \
               have asked in vain.",
        fault: "sixteen clients wait, and use the lock for 20 ms each",
        remedy: "One waiter is woken, and it is the holder already.",
        recipe: Recipe { wait: Wait::Message, ..WITH_WATCHDOG },
        needs: Needs::OneAlone,
        queue: Some(QueueBounds { gap: 10_000, requests: 6.0 }),
        play: crowds::sixteen_wait,
        ..PLAIN
    },
    Stage {
        number: 10,
        title: "one master and its replicas",
        idea: "A replica takes over when the master dies. Replication is asynchronous, so it may not know of the last grants.",
        fault: "replication is cut, a client acquires, and the master is killed; the Sentinels promote a replica",
        remedy: "`wait_replicas`: a grant counts only when a replica has it. (Without it the fence still refuses the late holder.)",
        recipe: WITH_WATCHDOG,
        needs: Needs::Failover,
        lease: 2_000,
        replicas: 1,
        play: several::failover,
        ..PLAIN
    },
    Stage {
        number: 11,
        title: "Redlock, and a clock that jumps",
        idea: "A majority of independent servers grants the lock. Each of them ends the lease by its own clock, which can be set.",
        fault: "the holder is cut off from one of three servers; then the clock of another one is set forward by a minute",
        remedy: "A node whose clock was set does not vote.",
        recipe: WITH_SCRIPT,
        needs: Needs::ThreeClocks,
        lease: 10_000,
        play: several::clock_jumps,
        ..PLAIN
    },
    Stage {
        number: 12,
        title: "Redlock, and a node that restarts empty",
        idea: "The majority remembers the holder. A server that restarts without its data has forgotten it, and votes again at once.",
        fault: "the holder is cut off from one of three servers; then another one is killed and restarted without its data",
        remedy: "A node that lost its data does not vote until every lease that it may have forgotten has ended.",
        recipe: WITH_SCRIPT,
        needs: Needs::Three,
        lease: 10_000,
        play: several::restart_without_data,
        ..PLAIN
    },
    Stage {
        number: 13,
        title: "no fence: the oversell",
        idea: "The lock is as right as it can be. A holder that is stopped between reading and writing still writes too late.",
        fault: "the holder is stopped past its lease after it has read how many items are left, and then sells one",
        remedy: "Every grant has a fence, a number that grows; the data refuses a writer with a smaller one.",
        recipe: WITH_WATCHDOG,
        stock: Some(10),
        play: crashes::late_writer,
        ..PLAIN
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_numbered_in_order_and_described() {
        for (index, stage) in ALL.iter().enumerate() {
            assert_eq!(stage.number, index + 1);
            assert_eq!(stage.idea.matches(". ").count(), 1, "two sentences: {}", stage.idea);
            assert!(stage.idea.ends_with('.') && !stage.fault.ends_with('.'), "{}", stage.number);
            assert!(!stage.title.is_empty() && !stage.remedy.is_empty());
        }
    }
}
