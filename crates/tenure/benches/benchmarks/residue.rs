//! The residue in the server of names that were used once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure::Tenure;
use tenure_testkit::Server;

use super::memory::pause;
use super::pairs::runtime;
use super::redis::{client, server, verbose};
use super::redis_server::used_memory;

const NAMES: usize = 200_000;

/// After this time nothing may be left: the fence of a free lock is kept for a minute at most.
const KEPT: Duration = Duration::from_secs(65);

/// Keys that are left more than a minute after 200,000 pairs on distinct names.
pub(crate) fn keys() -> Vec<f64> {
    let server = server();
    use_names(&client(&server));
    let before = key_count(&server);
    pause(KEPT);
    let after = key_count(&server);
    verbose(&format!("{before} keys at once, {after} after {KEPT:?}"));
    vec![after]
}

/// Bytes of the server's memory per name, right after.
pub(crate) fn bytes() -> Vec<f64> {
    let server = server();
    let tenure = client(&server);
    let before = used_memory(&server);
    use_names(&tenure);
    vec![(used_memory(&server) - before) / NAMES as f64]
}

fn use_names(tenure: &Tenure) {
    let next = Arc::new(AtomicUsize::new(0));
    let tasks = (0..512).map(|_| {
        let (tenure, next) = (tenure.clone(), next.clone());
        async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= NAMES {
                    return;
                }
                let guard = tenure.lock(format!("orders/{number}")).acquire().await;
                guard.expect("a free lock").release().await.expect("a release");
            }
        }
    });
    runtime().block_on(async {
        for task in tasks.map(tokio::spawn).collect::<Vec<_>>() {
            task.await.expect("its end");
        }
    });
}

fn key_count(server: &Server) -> f64 {
    let mut plain = server.connect().expect("a connection");
    match plain.command(&["DBSIZE"]) {
        Ok(tenure_testkit::resp::Reply::Integer(count)) => count as f64,
        other => panic!("{other:?}"),
    }
}
