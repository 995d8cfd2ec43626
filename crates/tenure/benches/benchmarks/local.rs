//! The local engine: processes of one machine, without a server.

use std::time::Duration;

use tenure::Tenure;
use tenure::blocking::block_on;

use super::child::{Ready, spawn};
use super::memory::{now, pair_on};
use super::redis::verbose;

/// Microseconds for an uncontended acquire and release by one task.
pub(crate) fn pair() -> Vec<f64> {
    let folder = tempfile::tempdir().expect("a folder");
    let tenure = block_on(Tenure::connect(&url(folder.path()))).expect("a client");
    pair_on(&tenure, 20_000)
}

/// Critical sections per second of two processes that contend for one lock.
pub(crate) fn fight_rate() -> Vec<f64> {
    (0..5)
        .map(|_| {
            let folder = tempfile::tempdir().expect("a folder");
            let url = url(folder.path());
            let children: Vec<_> = (0..2).map(|_| spawn("fight", &url, "")).collect();
            let mut children: Vec<_> = children.into_iter().map(Ready::wait).collect();
            children.iter_mut().for_each(Ready::go);
            let rates: Vec<_> = children.into_iter().map(|child| child.report()[0]).collect();
            verbose(&format!("sections/s: {rates:.0?}"));
            rates.iter().sum()
        })
        .collect()
}

/// One of the two: its sections per second.
pub(crate) fn fight(lock: &tenure::blocking::Lock) {
    let (started, mut sections) = (now(), 0_u32);
    while started.elapsed() < Duration::from_secs(2) {
        lock.acquire().expect("a lock").release().expect("a release");
        sections += 1;
    }
    println!("{}", f64::from(sections) / started.elapsed().as_secs_f64());
}

fn url(folder: &std::path::Path) -> String {
    format!("local://{}/locks", folder.display())
}
