//! A slot of a cluster that is in transit: keys of one lock are at two nodes. Redisson's own scripts declare all their keys,
//! and so the server refuses them there.

use std::thread::{self, JoinHandle};
use std::time::Duration;

use tenure::blocking::block_on;
use tenure::{Error, Owner, Tenure};
use tenure_testkit::resp::Reply;
use tenure_testkit::{Cluster, Flavor, KeyOrder};

use super::shared::{LONG, connect, pass};

/// Long enough for many requests.
const MOMENT: Duration = Duration::from_millis(700);

/// A cluster, and the slot of a lock that moves.
struct Moving {
    cluster: Cluster,
    slot: u16,
    from: usize,
    to: usize,
}

impl Moving {
    fn of(flavor: Flavor, name: &str) -> Self {
        let timeout = Duration::from_secs(60);
        let cluster = Cluster::builder(flavor).node_timeout(timeout).replicas(0).start();
        let slot = Cluster::slot(name);
        let from = cluster.owner(slot);
        Self { cluster, slot, from, to: (from + 1) % 3 }
    }

    /// From now on it is in transit, and these keys are at the other node.
    fn begin(&self, keys: &[String]) {
        self.cluster.begin_migration(self.slot, self.to);
        let port = self.cluster.nodes[self.to].port().to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        words.extend(keys.iter().map(String::as_str));
        if !keys.is_empty() {
            assert_eq!(self.cluster.command(self.from, &words), Reply::Simple("OK".into()));
        }
    }

    /// The keys at a node.
    fn keys(&self, node: usize, pattern: &str) -> Vec<String> {
        let Reply::Array(Some(keys)) = self.cluster.command(node, &["KEYS", pattern]) else {
            panic!("node {node} did not list its keys")
        };
        let text = |key| match key {
            Reply::Bulk(Some(bytes)) => String::from_utf8(bytes).unwrap(),
            other => panic!("{other:?}"),
        };
        keys.into_iter().map(text).collect()
    }

    /// Panics where a key is at both nodes.
    fn finish(&self) {
        self.cluster.move_keys(self.slot, self.to, KeyOrder::AsStored, 1000);
        self.cluster.finish_migration(self.slot, self.to);
    }
}

fn fenced(cluster: &Cluster) -> Tenure {
    block_on(Tenure::builder().redisson_fenced().connect(&cluster.url())).unwrap()
}

fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    thread::spawn(move || block_on(work))
}

/// I4: the key of a free lock is at neither node, so a request is sent to the target; the last token is still at the source.
/// It looked absent, and the first token was granted again.
#[test]
fn a_token_does_not_go_back_while_its_slot_moves() {
    for flavor in Cluster::flavors() {
        let moving = Moving::of(flavor, "orders");
        let tenure = fenced(&moving.cluster);
        let lock = tenure.lock("orders");
        let mut last = tenure::Fence::NONE;
        for _ in 0..5 {
            last = block_on(lock.acquire()).unwrap().fence();
        }
        // The release of the last hold is in flight.
        drop(block_on(lock.acquire_within(LONG)).map(|guard| block_on(guard.release())));
        moving.begin(&[]);
        let error = block_on(lock.try_acquire()).unwrap_err();
        assert!(error.to_string().contains("moves the slot"), "{error}");
        assert!(!matches!(error, Error::Unknown { .. }), "nothing was changed: {error:?}");
        let waiter = {
            let lock = lock.clone();
            spawn(async move { lock.acquire_within(LONG).await.unwrap().fence() })
        };
        pass(MOMENT);
        assert!(!waiter.is_finished());
        assert_eq!(moving.keys(moving.to, "*orders*"), [""; 0], "nothing was written");
        moving.finish();
        assert!(waiter.join().unwrap() > last);
    }
}

/// I2: a fenced lock that is held has all that it needs in its own key: it is renewed, entered again and released in transit.
#[test]
fn a_fenced_lock_is_kept_while_its_slot_moves() {
    for flavor in Cluster::flavors() {
        let moving = Moving::of(flavor, "orders");
        let tenure = fenced(&moving.cluster);
        let lock = tenure.lock("orders").lease(Duration::from_secs(2)).owner(Owner::new());
        let held = block_on(lock.acquire()).unwrap();
        moving.begin(&["orders".to_owned()]);
        pass(Duration::from_secs(3));
        held.ensure_held().unwrap();
        let again = block_on(lock.acquire()).unwrap();
        assert_eq!(again.fence(), held.fence());
        block_on(again.release()).unwrap();
        block_on(held.release()).unwrap();
        moving.finish();
        drop(block_on(lock.acquire()).unwrap());
    }
}

/// I1: the hash of a read-write lock is at one node, and the leases of its readers are at the other. A reader that left found
/// no lease of the others, and so deleted the lock.
#[test]
fn a_writer_is_not_admitted_beside_a_reader_while_the_slot_moves() {
    for flavor in Cluster::flavors() {
        for first in ["[rt]*w*", "{rw}:*"] {
            let moving = Moving::of(flavor, "rw");
            let (ann, bob) = (connect(&moving.cluster.url()), connect(&moving.cluster.url()));
            let read = || ann.rwlock("rw").reader().owner(Owner::new()).lease(LONG);
            let (leaving, staying) =
                (block_on(read().acquire()).unwrap(), block_on(read().acquire()).unwrap());
            let keys = moving.keys(moving.from, first);
            moving.begin(&keys);
            let leaving = spawn(leaving.release());
            pass(MOMENT);
            let writer = block_on(bob.rwlock("rw").try_write()).unwrap();
            assert!(writer.is_none(), "{first} has moved: the other reader is there");
            let writer = spawn(async move { bob.rwlock("rw").write_within(LONG).await });
            pass(MOMENT);
            assert!(!writer.is_finished());
            staying.ensure_held().unwrap();
            moving.finish();
            // If not in time, it is released in the background.
            if let Err(error) = leaving.join().unwrap() {
                assert!(error.to_string().contains("moves the slot"), "{error}");
            }
            pass(MOMENT);
            assert!(!writer.is_finished(), "the other reader is there");
            block_on(staying.release()).unwrap();
            drop(writer.join().unwrap().unwrap());
        }
    }
}

/// I1, I7: no permit is granted twice or lost: the holders that Tenure keeps may be at the other node. A latch is counted
/// down once.
#[test]
fn permits_and_counts_wait_while_their_slot_moves() {
    for flavor in Cluster::flavors() {
        for first in ["p", "tenure_*"] {
            let moving = Moving::of(flavor, "p");
            let (tenure, owner) = (connect(&moving.cluster.url()), Owner::new());
            let semaphore = tenure.semaphore("p", 2);
            let mut names = (0..).map(|number| format!("latch{number}"));
            let name = names.find(|name| Cluster::slot(name) == moving.slot).unwrap();
            let latch = tenure.latch(&name, 2);
            let one = block_on(semaphore.acquire()).unwrap();
            block_on(latch.set_count()).unwrap();
            block_on(latch.count_down_as(owner)).unwrap();
            let mut keys = moving.keys(moving.from, first);
            if first == "p" {
                keys.push(name.clone());
            }
            moving.begin(&keys);
            let two = spawn(async move { semaphore.acquire_within(LONG).await });
            let waiting = latch.clone();
            let open = spawn(async move { waiting.wait_within(LONG).await });
            pass(MOMENT);
            assert!(!two.is_finished() && !open.is_finished());
            moving.finish();
            let two = two.join().unwrap().unwrap();
            assert!(block_on(tenure.semaphore("p", 2).try_acquire()).unwrap().is_none());
            for guard in [one, two] {
                block_on(guard.release()).unwrap();
            }
            assert_eq!(block_on(tenure.semaphore("p", 2).available()).unwrap(), 2);
            block_on(latch.count_down_as(owner)).unwrap();
            assert_eq!(block_on(latch.count()).unwrap(), 1, "an owner counts once");
            block_on(latch.count_down()).unwrap();
            open.join().unwrap().unwrap();
        }
    }
}

/// R30: a plain lock has one key, which is always at the node that was asked: it works in transit.
#[test]
fn a_plain_lock_works_while_its_slot_moves() {
    for flavor in Cluster::flavors() {
        let moving = Moving::of(flavor, "x");
        let tenure = connect(&moving.cluster.url());
        let lock = tenure.lock("x").lease(Duration::from_secs(2));
        let held = block_on(lock.acquire()).unwrap();
        moving.begin(&[]);
        pass(Duration::from_secs(3));
        held.ensure_held().unwrap();
        assert!(block_on(tenure.lock("x").try_acquire()).unwrap().is_none());
        let waiter = {
            let lock = lock.clone();
            spawn(async move { lock.acquire_within(LONG).await.unwrap() })
        };
        pass(MOMENT);
        assert!(!waiter.is_finished());
        block_on(held.release()).unwrap();
        let held = waiter.join().unwrap();
        assert_eq!(moving.keys(moving.to, "x"), ["x"], "taken at the target");
        moving.finish();
        block_on(held.release()).unwrap();
    }
}
