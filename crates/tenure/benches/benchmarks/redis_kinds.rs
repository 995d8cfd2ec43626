//! The other kinds on the Redis engine.

use tenure::Guard;
use tenure::blocking::block_on;

use super::redis::{client, pairs_per_second, sections_per_second, server, verbose};
use super::redis_server::cpu_of;

/// 64 readers of one process on one name: sections/s over those of 64 locks on names of their own.
pub(crate) fn rw_readers() -> Vec<f64> {
    let server = server();
    let tenure = client(&server);
    let round = || {
        let alone = pairs_per_second(&tenure, 64);
        let readers = sections_per_second((0..64).map(|_| tenure.rwlock("config").reader()));
        verbose(&format!("readers {readers:.0}/s, locks of their own {alone:.0}/s"));
        readers / alone
    };
    (0..5).map(|_| round()).collect()
}

/// Server CPU per acquire and release of a permit beside 1,000 holders, over the same beside 10.
pub(crate) fn semaphore_1000() -> Vec<f64> {
    let round = || {
        let (few, many) = (beside(10), beside(1_000));
        verbose(&format!("beside 10: {few:.2} µs, beside 1,000: {many:.2} µs"));
        many / few
    };
    (0..5).map(|_| round()).collect()
}

fn beside(holders: usize) -> f64 {
    let server = server();
    let (tenure, mut plain) = (client(&server), server.connect().expect("a connection"));
    let semaphore = tenure.semaphore("downloads", 2_000);
    block_on(async {
        let mut held: Vec<Guard> = Vec::with_capacity(holders);
        for _ in 0..holders {
            held.push(semaphore.acquire().await.expect("a permit"));
        }
        let pairs = 5_000;
        let cpu = cpu_of(&mut plain, pairs, |_| {
            block_on(async {
                for _ in 0..pairs {
                    let permit = semaphore.acquire().await.expect("a permit");
                    permit.release().await.expect("a release");
                }
            });
        });
        drop(held);
        cpu
    })
}
