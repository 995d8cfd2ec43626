//! The scripts against the table: the same random operations, at the same given time, must have the
//! same outcomes, wake-ups and state.
//!
//! - [`twins`] compares both; [`caller`] calls the scripts; [`slots`], [`answers`], [`misuse`] and [`keeping`] check each script against
//!   the contract in its header.
//! - [`wire`] tests the connection, [`confirmations`] what replicas confirm; [`proposals`] and [`marker`] a node of a
//!   quorum.
//! - [`clock`], [`damage`], [`conversion`], [`memory`], [`parking`] and [`bounds`]: a clock that is set, keys
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
mod confirmations;
mod conversion;
mod damage;
mod keeping;
mod marker;
mod memory;
mod misuse;
mod parking;
mod proposals;
mod slots;
mod twins;
mod wire;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError};
use tenure_testkit::Server;

use super::batch::Batched;
use super::resp::{Command, Reply};
use super::scripts::{self, Script};
use super::*;
use crate::core::fence::Fence;
use crate::core::lease::Lease;
use crate::core::moment::Now;
use crate::core::table::operation::{self, Lock, Operation, node_operations, operations};
use crate::core::table::{Effects, Table};
use crate::engine::{Queueing, Wakeup};
use crate::owner::{Entry, Owner};
use caller::{Caller, common, convert};
use twins::Twins;

/// 150 sequences, or `PROPTEST_CASES`, up to 5,000: each takes milliseconds.
fn config() -> Config {
    let cases = std::env::var("PROPTEST_CASES").map_or(150, |_| Config::default().cases.min(5_000));
    Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() }
}

on_every_server!(
    the_scripts_do_what_the_table_does,
    the_scripts_of_a_node_do_what_the_table_does,
    the_fast_path_is_taken_often_and_does_what_the_table_does,
    the_fast_path_of_a_node_is_taken_often_and_does_what_the_table_does,
    requests_of_one_call_are_served_in_order,
);

/// I1, I3, I4, I5, I10, which the table upholds.
fn the_scripts_do_what_the_table_does(server: &Server) {
    compare_sequences(server, operations());
}

/// The same on a node of a quorum, whose clients propose, repair and commit fences.
fn the_scripts_of_a_node_do_what_the_table_does(server: &Server) {
    compare_sequences(server, node_operations());
}

fn compare_sequences(server: &Server, sequences: impl Strategy<Value = Vec<Operation>>) {
    let mut runner = proptest::test_runner::TestRunner::new(config());
    let result = runner.run(&(0..Lock::ALL.len(), sequences), |(only, operations)| {
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
    compare_contended(server, operations());
}

/// The same with proposals.
fn the_fast_path_of_a_node_is_taken_often_and_does_what_the_table_does(server: &Server) {
    compare_contended(server, node_operations());
}

fn compare_contended(server: &Server, sequences: impl Strategy<Value = Vec<Operation>>) {
    let scripts = [&scripts::ACQUIRE, &scripts::RENEW, &scripts::RELEASE];
    let (fast, count) = (Cell::new([0; 3]), Cell::new(0));
    let mut runner = proptest::test_runner::TestRunner::new(config());
    let result = runner.run(&sequences, |operations| {
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
        count.set(count.get() + 1);
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    assert!(fast.get().iter().all(|it| *it > count.get() / 3), "{fast:?}");
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
