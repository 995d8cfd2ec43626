//! Readers of a store with many locks, beside the holders of some of them.

use std::time::Duration;

use tenure::Tenure;
use tenure::blocking::block_on;

use super::other::start;
use crate::{LONG, connect, connect_once, now, store};

const LOCKS: usize = 20_000;

/// I9, rule 10: three processes list all locks, again and again. This is progress, so that no renewal is refused
/// because of them, no holder loses its lock, and a request for another lock is granted.
#[test]
fn readers_of_many_locks_cost_no_holder_its_lock() {
    let (_around, folder) = store();
    let tenure = connect(&folder);
    for number in 0..LOCKS {
        let lock = tenure.lock(format!("many/{number}")).fixed_lease(LONG * 9);
        block_on(block_on(lock.try_acquire()).unwrap().unwrap().detach()).unwrap();
    }
    let hold = |name: &str, seconds| {
        block_on(tenure.lock(name).lease(Duration::from_secs(seconds)).acquire()).unwrap()
    };
    let held = [hold("short", 1), hold("longer", 2)];
    let mut readers = [(); 3].map(|()| start(&folder, "list repeatedly"));
    readers.iter_mut().for_each(|reader| drop(reader.expect("listed")));
    let begun = now();
    let mut taken = 0;
    while begun.elapsed() < Duration::from_secs(6) {
        let other = connect_once(&folder).unwrap();
        drop(block_on(other.lock("y").try_acquire()).unwrap().unwrap());
        held.iter().for_each(|guard| guard.ensure_held().unwrap());
        taken += 1;
    }
    println!("another lock was taken {taken} times");
    readers.iter_mut().for_each(|reader| drop(reader.expect("listed")));
}

pub(crate) fn list_repeatedly(tenure: &Tenure) {
    loop {
        let seen = block_on(tenure.list("many/", LOCKS)).unwrap().len();
        println!("listed {seen}");
        assert_eq!(seen, LOCKS);
    }
}
