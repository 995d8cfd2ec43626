//! The scripts against the table: the same random operations, at the same given time, must have the
//! same outcomes, wake-ups and state.
//!
//! - [`caller`] calls the scripts; [`slots`], [`answers`], [`misuse`] and [`keeping`] check each script against
//!   the contract in its header.
//! - [`wire`] tests the connection.
//! - [`clock`], [`damage`], [`spreading`], [`memory`], [`parking`] and [`bounds`]: a clock that is set, keys
//!   that Tenure did not write, a string that becomes a hash, a server out of memory, waiters that cannot be
//!   reached, and very many holders and waiters.

/// Makes a test of each case for every kind of server, so that a failure reads `valkey::…`.
macro_rules! on_every_server {
    ($($case:ident),+ $(,)?) => {
        on_every_server! { @on redis, Redis, $($case),+ }
        on_every_server! { @on redis_6, Redis6, $($case),+ }
        on_every_server! { @on valkey, Valkey, $($case),+ }
    };
    (@on $module:ident, $flavor:ident, $($case:ident),+) => {
        mod $module {
            use tenure_testkit::{Flavor, Server};
            $(
                #[test]
                fn $case() {
                    if !Flavor::$flavor.is_left_out() {
                        super::$case(&Server::builder().flavor(Flavor::$flavor).start());
                    }
                }
            )+
        }
    };
}

mod answers;
mod bounds;
mod caller;
mod clock;
mod damage;
mod keeping;
mod memory;
mod misuse;
mod parking;
mod slots;
mod spreading;
mod wire;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use proptest::test_runner::{Config, TestCaseError};
use tenure_testkit::Server;

use super::batch::Batched;
use super::resp::{Command, Reply};
use super::scripts::{self, Script};
use super::*;
use crate::core::lease::Lease;
use crate::core::moment::Now;
use crate::core::table::operation::{self, Lock, Operation, operations};
use crate::core::table::{Effects, Table};
use crate::engine::{Queueing, Wakeup};
use crate::owner::{Entry, Owner};
use caller::{Caller, common, convert};

/// The table and the scripts side by side.
struct Twins {
    table: Table,
    caller: Caller,
    owners: Vec<Owner>,
    about: Arc<About>,
    /// The holder at the last inspection.
    holder: Option<u8>,
}

impl Twins {
    fn new(server: &Server) -> Self {
        Self {
            table: Table::default(),
            caller: Caller::new(server),
            owners: (0..5).map(|_| Owner::new()).collect(),
            about: Arc::new(About::this_process()),
            holder: None,
        }
    }

    /// Performs an operation on both, and compares.
    fn perform(&mut self, operation: &Operation) -> Result<(), String> {
        let mut effects = Effects::new();
        let now = Now { clock: self.caller.now, wall: self.caller.now };
        match *operation {
            Operation::Acquire { lock, owner, number, lease, queue } => {
                let entry = self.entry(owner, number);
                let request = AcquireRequest {
                    name: LockName::new(lock.name()).unwrap(),
                    entry,
                    shape: lock.shape(owner, entry.number),
                    lease: Lease::new(Duration::from_millis(lease.into())).unwrap(),
                    about: self.about.clone(),
                    queue: queue.map(|queue| Queueing {
                        heartbeat: Duration::from_millis(queue.heartbeat.into()),
                        claim: Duration::from_millis(queue.claim.into()),
                        fences: queue.fences,
                    }),
                };
                let expected = self.table.acquire(&request, 1, now, &mut effects);
                self.compare(&request, &expected)?;
            }
            Operation::Renew { lock, owner, lease } => {
                let renewal = Renewal {
                    name: LockName::new(lock.name()).unwrap(),
                    owner: self.owners[usize::from(owner)],
                    lease: Lease::new(Duration::from_millis(lease.into())).unwrap(),
                };
                let expected = self.table.renew(&renewal, now, &mut effects);
                self.compare(&renewal, &expected)?;
            }
            Operation::Release { lock, owner, number, linger, keep } => {
                let request = ReleaseRequest {
                    name: LockName::new(lock.name()).unwrap(),
                    entry: self.entry(owner, number),
                    linger: Duration::from_millis(linger.into()),
                    keep: keep.into(),
                    is_contended: false,
                };
                let expected = self.table.release(&request, now, &mut effects);
                self.compare(&request, &expected)?;
            }
            Operation::Cancel { lock, owner, number } => {
                let request = CancelRequest {
                    name: LockName::new(lock.name()).unwrap(),
                    entry: self.entry(owner, number),
                };
                self.table.cancel(&request, now, &mut effects);
                self.compare(&request, &())?;
            }
            Operation::Force { lock, owner } => self.force(lock, owner, now, &mut effects)?,
            Operation::Inspect { .. } => {}
            Operation::Pass { millis, .. } => {
                self.caller.pass(Duration::from_millis(millis.into()));
                return Ok(());
            }
        }
        self.compare_state(operation.lock(), now, &mut effects)?;
        self.compare_wakeups(effects)
    }

    fn compare<O>(&mut self, operation: &O, expected: &O::Outcome) -> Result<(), String>
    where
        O: Batched,
        O::Outcome: PartialEq + std::fmt::Debug,
    {
        let client = self.caller.client.clone();
        let ask = |it: &mut Command| operation.arguments(common(&client), it);
        let values = self.call(O::script(), operation.name(), ask);
        // Sent twice, it acts once (I5): the state and the wake-ups compared below would show it.
        self.call(O::script(), operation.name(), ask);
        let mut lines = batch::lines(&values).map_err(|it| it.to_string())?;
        let outcome = batch::read(operation, lines.next());
        let outcome = outcome.map_err(|it| it.to_string())?;
        same("outcome", &outcome, expected)
    }

    fn force(
        &mut self,
        lock: Lock,
        owner: Option<u8>,
        now: Now,
        effects: &mut Effects,
    ) -> Result<(), String> {
        let expected = owner.map(|owner| self.owners[usize::from(owner)]);
        let request = ForceRequest {
            name: LockName::new(lock.name()).unwrap(),
            expected,
            reason: "a test".into(),
            by: self.about.clone(),
        };
        let outcome = self.table.force_release(&request, now, effects);
        let expected = expected.map(|owner| owner.to_string()).unwrap_or_default();
        let record = format!("{} a%20test", records::client(&self.about));
        let values = self.call(&scripts::FORCE, &request.name, |command| {
            [&expected, &record, "60000"].iter().for_each(|argument| command.push(argument));
        });
        let taken = values.array().and_then(|values| values[1].array()).unwrap_or_default().iter();
        let mut taken: Vec<Owner> = taken.filter_map(|owner| owner.text()?.parse().ok()).collect();
        let mut owners = match outcome {
            ForceOutcome::Released(owners) => owners,
            ForceOutcome::NotHeld => Vec::new(),
        };
        taken.sort_unstable();
        owners.sort_unstable();
        same("owners forced out", &taken, &owners)
    }

    /// Every wake-up of the table is received from the server; in the same order, except for several owners that lose a
    /// lock at once.
    fn compare_wakeups(&mut self, effects: Effects) -> Result<(), String> {
        let mut expected: Vec<_> = effects.into_iter().map(|(_, wakeup)| wakeup).collect();
        let mut received = Vec::new();
        for _ in &expected {
            let message = convert(self.caller.receiver.read().map_err(|error| error.to_string())?);
            let text = message.array().and_then(|words| words.last()?.text()).unwrap_or_default();
            received.push(subscriber::read(text).ok_or(text)?);
        }
        let order = |wakeup: &Wakeup| match wakeup {
            Wakeup::Lost { owner, .. } => (0, Some(*owner)),
            _ => (1, None),
        };
        expected.sort_by_key(order);
        received.sort_by_key(order);
        same("wake-ups", &received, &expected)
    }

    /// Holders and waiters are the same to the microsecond.
    fn compare_state(&mut self, lock: Lock, now: Now, effects: &mut Effects) -> Result<(), String> {
        let name = LockName::new(lock.name()).unwrap();
        let mut expected = self.table.inspect(&name, now, effects);
        let holder = expected.holders.first().map(|it| it.owner);
        let holder = self.owners.iter().position(|owner| Some(*owner) == holder);
        self.holder = holder.and_then(|at| at.try_into().ok());
        let shown = [LockInfo::WAITERS_SHOWN, LockInfo::HOLDERS_SHOWN].map(|it| it.to_string());
        let values = self.call(&scripts::INSPECT, &name, |command| {
            shown.iter().for_each(|most| command.push(most));
        });
        let about = [(self.caller.client.clone(), (*self.about).clone())];
        let mut info =
            records::read_lock(name, &values.array().ok_or("no array")?[1], &about.into())
                .ok_or("not understood")?;
        // With a fence that ran ahead of the clock, "since" is wrong by microseconds.
        for (seen, expected) in info.holders.iter_mut().zip(&expected.holders) {
            seen.since = expected.since;
        }
        for record in [&mut info.forced, &mut expected.forced].into_iter().flatten() {
            record.owners.sort_unstable();
        }
        same("state", &info, &expected)
    }

    fn call(
        &mut self,
        script: &Script,
        name: &LockName,
        arguments: impl FnOnce(&mut Command),
    ) -> Reply {
        self.caller.run(script, &[name], arguments)
    }

    /// The same operation on a contended mutex: acquires wait, and releases are the holder's. Most owners have one
    /// entry.
    fn in_demand(&self, operation: &Operation) -> Operation {
        let mut operation = operation.on(Lock::Mutex);
        let holder = self.holder;
        match &mut operation {
            Operation::Acquire { owner, queue, number, .. } => {
                *owner = if (*owner, *number) == (3, 0) { 3 } else { *owner / 2 * 2 };
                let usual = operation::Queue { heartbeat: 150, claim: 50, fences: 3 };
                *queue = queue.or(Some(usual));
            }
            Operation::Release { owner, linger, keep, .. } => {
                (*owner, *keep) = (holder.unwrap_or(*owner), *keep / 2);
                *linger = if *linger < 40 { 0 } else { *linger };
            }
            Operation::Renew { owner, .. } => *owner = holder.unwrap_or(*owner),
            Operation::Pass { millis, .. } => *millis /= 2,
            // The record of a forced release stays for longer than a sequence takes.
            Operation::Force { owner: None, lock } => {
                operation = Operation::Inspect { lock: *lock }
            }
            Operation::Cancel { .. } | Operation::Force { .. } | Operation::Inspect { .. } => {}
        }
        operation
    }

    fn entry(&self, owner: u8, number: u8) -> Entry {
        let number = if owner.is_multiple_of(2) { 0 } else { number + 1 };
        Entry { owner: self.owners[usize::from(owner)], number: number.into() }
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, expected: &T) -> Result<(), String> {
    if got == expected {
        return Ok(());
    }
    Err(format!("different {what}:\n  script {got:?}\n  table  {expected:?}"))
}

/// 150 sequences, or `PROPTEST_CASES`, up to 5,000: each takes milliseconds.
fn config() -> Config {
    let cases = std::env::var("PROPTEST_CASES").map_or(150, |_| Config::default().cases.min(5_000));
    Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() }
}

on_every_server!(
    the_scripts_do_what_the_table_does,
    the_fast_path_is_taken_often_and_does_what_the_table_does,
    requests_of_one_call_are_served_in_order,
);

/// I1, I3, I4, I5, I10, which the table upholds.
fn the_scripts_do_what_the_table_does(server: &Server) {
    let mut runner = proptest::test_runner::TestRunner::new(config());
    let result = runner.run(&(0..Lock::ALL.len(), operations()), |(only, operations)| {
        // One lock at a time: the table has one counter of fences for all of them.
        let only = Lock::ALL[only];
        let mut twins = Twins::new(server);
        for operation in operations.iter().map(|operation| operation.on(only)) {
            twins.perform(&operation).map_err(|difference| {
                TestCaseError::fail(format!("{operation:?}: {difference}"))
            })?;
        }
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

/// The same on a contended mutex: nearly every request waits, and the holder releases soon. So the fast path is
/// compared with the table as often as the full rules.
fn the_fast_path_is_taken_often_and_does_what_the_table_does(server: &Server) {
    let scripts = [&scripts::ACQUIRE, &scripts::RENEW, &scripts::RELEASE];
    let (fast, sequences) = (Cell::new([0; 3]), Cell::new(0));
    let mut runner = proptest::test_runner::TestRunner::new(config());
    let result = runner.run(&operations(), |operations| {
        let mut twins = Twins::new(server);
        twins.caller.counts_fast_path = true;
        for operation in &operations {
            // A fence is a time: the next one is later. And some leases and waiters must expire.
            twins.caller.pass(Duration::from_millis(4));
            let operation = twins.in_demand(operation);
            twins.perform(&operation).map_err(|difference| {
                TestCaseError::fail(format!("{operation:?}: {difference}"))
            })?;
        }
        let counts = scripts.map(|script| twins.caller.fast_path_count(script));
        fast.set(std::array::from_fn(|at| fast.get()[at] + counts[at]));
        sequences.set(sequences.get() + 1);
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    assert!(fast.get().iter().all(|count| *count > sequences.get() / 2), "{fast:?}");
}

/// I10: in one call over many keys, the plain case does not overtake an earlier request for the
/// same lock that is not plain.
fn requests_of_one_call_are_served_in_order(server: &Server) {
    let key = keys::lock_key(&LockName::new("x").unwrap());
    let text = &scripts::ACQUIRE.text;
    let (first, second) = (Owner::new().to_string(), Owner::new().to_string());
    let mut words = vec!["EVAL", text, "2", &key, &key, "nonce client 60000"];
    let [first, second] = [first, second].map(|owner| format!(" 00030000 {owner} client"));
    words.extend([&first, "90000", "0 m1 1 15000 3000 1 a%20note"]);
    words.extend([&second, "90000", "+15000 3000 1"]);
    let reply = convert(server.connect().unwrap().command(&words).unwrap());
    let lines: Vec<_> = batch::lines(&reply).unwrap().collect();
    assert!(lines[0].starts_with("1 ") && lines[1].starts_with("2 0 "), "{lines:?}");
}
