//! A cluster that both use, with messages in the slots of the locks.

use std::time::Duration;

use tenure::blocking::block_on;
use tenure_testkit::{Cluster, Codec, Flavor, Redisson};

use super::shared::{LONG, SOON, connect, median, pass};

#[test]
fn a_cluster_is_shared() {
    let Some(redisson) = Redisson::for_test() else { return };
    let timeout = Duration::from_secs(60);
    let cluster = Cluster::builder(Flavor::Redis).node_timeout(timeout).replicas(0).start();
    let java = redisson.start(cluster.nodes[0].port(), true, Codec::Default);
    let tenure = connect(&cluster.url_of_one());
    let (mut by_java, mut by_tenure) = (Vec::new(), Vec::new());
    for name in ["orders/1", "orders/2", "{orders}:3", "a", "b"] {
        java.run("a", "lock", name, "");
        let lock = tenure.lock(name);
        let waiter = std::thread::spawn(move || {
            let guard = block_on(lock.acquire_within(LONG)).unwrap();
            (std::time::Instant::now(), guard)
        });
        pass(Duration::from_millis(200));
        assert!(!waiter.is_finished());
        let freed = java.ask("a", "unlock", name, "").answer().1;
        let (at, guard) = waiter.join().unwrap();
        by_java.push(at.saturating_duration_since(freed));
        let waiter = java.ask("b", "lock", name, "");
        pass(Duration::from_millis(200));
        block_on(guard.release()).unwrap();
        let freed = std::time::Instant::now();
        by_tenure.push(waiter.answer().1.saturating_duration_since(freed));
        java.run("b", "unlock", name, "");
    }
    let (by_java, by_tenure) = (median(by_java), median(by_tenure));
    assert!(by_java < SOON && by_tenure < SOON, "{by_java:?} and {by_tenure:?}");
    let error = block_on(tenure.lock("a{b").acquire()).unwrap_err();
    assert!(error.to_string().contains("different nodes"), "{error}");
}
