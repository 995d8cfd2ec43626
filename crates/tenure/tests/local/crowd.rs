//! Many processes that contend for one lock.

use std::time::Duration;

use tenure::blocking::block_on;

use super::other::start;
use crate::{connect, now, store, until_waiting};

const CROWD: usize = 120;

/// An end that is not detected costs three seconds or more.
const AT_ONCE: Duration = Duration::from_secs(2);

/// I7: every waiter gets the lock, although each process ends after it, which wakes the waiters behind it.
#[test]
fn every_waiter_of_a_crowd_is_served() {
    let (_around, folder) = store();
    let tenure = connect(&folder);
    let guard = block_on(tenure.lock("x").acquire()).unwrap();
    let mut others: Vec<_> = (0..CROWD).map(|_| start(&folder, "pass through")).collect();
    until_waiting(&tenure, CROWD);
    let released = now();
    drop(guard);
    for other in &mut others {
        assert!(other.child.wait().unwrap().success(), "it was refused");
    }
    let took = released.elapsed();
    println!("the last waiter was served after {took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// The predecessor gave up, of which no waiter is notified; then the holder is killed.
#[test]
fn a_waiter_behind_one_that_gave_up_detects_the_end_of_the_holder() {
    let (_around, folder) = store();
    let tenure = connect(&folder);
    let mut holder = start(&folder, "hold");
    holder.expect("holds");
    let quitter = std::thread::spawn({
        let lock = tenure.lock("x");
        move || drop(block_on(lock.acquire_within(Duration::from_secs(1))))
    });
    until_waiting(&tenure, 1);
    let mut behind = start(&folder, "hold");
    until_waiting(&tenure, 2);
    quitter.join().unwrap();
    until_waiting(&tenure, 1);
    let killed = now();
    holder.kill();
    behind.expect("holds");
    let took = killed.elapsed();
    assert!(took < AT_ONCE, "{took:?}");
}

/// The holder that is killed is not the one that came last.
#[test]
fn the_end_of_any_of_several_holders_is_detected_at_once() {
    for killed in 0..2 {
        let (_around, folder) = store();
        let mut holders = [start(&folder, "take a permit"), start(&folder, "take a permit")];
        holders.iter_mut().for_each(|holder| drop(holder.expect("holds")));
        let mut waiter = start(&folder, "take a permit");
        let tenure = connect(&folder);
        until_waiting(&tenure, 1);
        let begun = now();
        holders[killed].kill();
        waiter.expect("holds");
        let took = begun.elapsed();
        assert!(took < AT_ONCE, "{took:?}");
    }
}

/// A dead waiter is passed over, wherever it is in the queue.
#[test]
fn dead_waiters_in_the_middle_of_a_queue_are_passed_over() {
    let (_around, folder) = store();
    let tenure = connect(&folder);
    let guard = block_on(tenure.lock("x").acquire()).unwrap();
    let mut others: Vec<_> = (1..=5)
        .map(|count| {
            let other = start(&folder, "hold");
            until_waiting(&tenure, count);
            other
        })
        .collect();
    (1..4).for_each(|dead| others[dead].kill());
    until_waiting(&tenure, 2);
    let released = now();
    drop(guard);
    others[0].expect("holds");
    others[0].kill();
    others[4].expect("holds");
    let took = released.elapsed();
    assert!(took < AT_ONCE, "{took:?}");
}
