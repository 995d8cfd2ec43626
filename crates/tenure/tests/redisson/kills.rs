//! Holders of either side that are killed.

use std::time::{Duration, Instant};

use tenure::blocking::block_on;
use tenure_testkit::{Codec, Redisson, Server};

use super::shared::{LONG, connect};
use crate::process::{Process, part, this_program};

const LEASE: Duration = Duration::from_secs(2);

/// R4: kill -9 of a holder on each side; the other side gets the lock after the lease, and not before.
#[test]
fn a_killed_holder_of_either_side_frees_the_lock() {
    let Some(redisson) = Redisson::for_test() else { return };
    let server = Server::builder().on_port().start();
    let tenure = connect(&server.url());
    let java = redisson.start(server.port().unwrap(), false, Codec::Text);
    let begin = Instant::now();
    java.run("a", "lock", "x", &LEASE.as_millis().to_string());
    java.kill();
    let guard = block_on(tenure.lock("x").acquire_within(LONG)).unwrap();
    let waited = begin.elapsed();
    assert!(waited >= LEASE && waited < LEASE + Duration::from_secs(5), "{waited:?}");
    drop(guard);

    let java = redisson.start(server.port().unwrap(), false, Codec::Default);
    let mut command = this_program();
    part(&mut command, "redisson::kills::the_holder").env("TENURE_HOLDER_URL", server.url());
    let mut holder = Process::start(&mut command);
    holder.expect("holds");
    let waiter = java.ask("a", "try-lock", "x", "20000");
    let begin = Instant::now();
    holder.kill();
    assert_eq!(waiter.answer().0, "true");
    assert!(begin.elapsed() < LEASE + Duration::from_secs(5), "{:?}", begin.elapsed());
}

#[test]
#[ignore = "the other half of the test here, which kills it"]
fn the_holder() {
    let tenure = connect(&std::env::var("TENURE_HOLDER_URL").unwrap());
    let guard = block_on(tenure.lock("x").lease(LEASE).acquire()).unwrap();
    println!("holds");
    block_on(guard.lost());
}
