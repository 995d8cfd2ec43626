//! The testkit's cluster is real: it fails over, migrates slots, and ends with its test.

use std::ops::RangeInclusive;

use rustix::process::{Pid, test_kill_process};
use tenure_testkit::resp::Reply;
use tenure_testkit::{Cluster, Flavor, KeyOrder};

fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    test_kill_process(pid.expect("a process id is positive")).is_ok()
}

fn ok() -> Reply {
    Reply::Simple("OK".into())
}

/// The keys of one slot.
fn keys(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{{tag}}:{number}")).collect()
}

fn set(cluster: &Cluster, key: &str, value: &str) {
    let owner = cluster.owner(Cluster::slot(key));
    assert_eq!(cluster.command(owner, &["SET", key, value]), ok());
}

fn value_of(cluster: &Cluster, key: &str) -> Option<String> {
    cluster.command(cluster.owner(Cluster::slot(key)), &["GET", key]).text()
}

/// The keys of a slot that a node has, in its order.
fn keys_in(cluster: &Cluster, node: usize, slot: u16) -> Vec<String> {
    let reply = cluster.command(node, &["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100"]);
    let Reply::Array(Some(keys)) = reply else { panic!("{reply:?}") };
    keys.iter().filter_map(Reply::text).collect()
}

fn sorted(mut keys: Vec<String>) -> Vec<String> {
    keys.sort();
    keys
}

/// Runs a test, unless `TENURE_TEST_ONLY` leaves its kind of server out.
fn on(flavor: Flavor, test: fn(Flavor)) {
    if Cluster::flavors().any(|it| it == flavor) {
        test(flavor);
    }
}

macro_rules! on_each {
    ($($test:ident),* $(,)?) => {
        mod redis {
            $(#[test] fn $test() { super::on(super::Flavor::Redis, super::$test); })*
        }
        mod valkey {
            $(#[test] fn $test() { super::on(super::Flavor::Valkey, super::$test); })*
        }
    };
}

on_each!(
    a_key_is_found_on_the_owner_of_its_slot,
    a_failover_moves_the_ownership,
    the_replica_of_a_killed_primary_takes_over,
    a_paused_primary_is_replaced_and_returns_as_a_replica,
    a_restarted_node_is_the_same_node,
    a_migration_in_either_key_order_keeps_all_keys,
    an_abandoned_migration_leaves_the_owner,
    many_slots_move_with_their_keys,
    all_processes_are_gone_after_the_drop,
);

fn a_key_is_found_on_the_owner_of_its_slot(flavor: Flavor) {
    let cluster = Cluster::start(flavor);
    assert_eq!(cluster.nodes.len(), 6);
    assert_eq!(cluster.primaries(), [0, 1, 2]);
    assert_eq!([0, 1, 2].map(|primary| cluster.replica_of(primary)), [3, 4, 5]);
    assert_eq!([0, 5460, 5461, 16383].map(|slot| cluster.owner(slot)), [0, 0, 1, 2]);
    for key in ["a", "{user}:1", "x{user}", "{}", "{}{user}", "{user", "é"] {
        let slot = Cluster::slot(key);
        let asked = cluster.command(0, &["CLUSTER", "KEYSLOT", key]);
        assert_eq!(asked, Reply::Integer(slot.into()), "{key}");
        set(&cluster, key, "value");
        assert_eq!(value_of(&cluster, key).as_deref(), Some("value"));
        let elsewhere = cluster.command((cluster.owner(slot) + 1) % 3, &["GET", key]);
        assert!(
            matches!(&elsewhere, Reply::Error(it) if it.starts_with("MOVED ")),
            "{elsewhere:?}"
        );
    }
    cluster.flush();
    assert_eq!(value_of(&cluster, "a"), None);
    let ports: Vec<_> = cluster.nodes.iter().map(|it| format!("127.0.0.1:{}", it.port())).collect();
    assert_eq!(cluster.url(), format!("redis+cluster://{}", ports.join(",")));
    assert_eq!(cluster.url_of_one(), format!("redis+cluster://{}", ports[0]));
}

fn a_failover_moves_the_ownership(flavor: Flavor) {
    let cluster = Cluster::start(flavor);
    let slot = Cluster::slot("key");
    let (owner, replica) = (cluster.owner(slot), cluster.replica_of(cluster.owner(slot)));
    set(&cluster, "key", "value");
    assert_eq!(cluster.fail_over(owner), replica);
    assert_eq!(cluster.owner(slot), replica);
    cluster.await_ok();
    assert_eq!(value_of(&cluster, "key").as_deref(), Some("value"));
    assert_eq!(cluster.fail_over(replica), owner);
    assert_eq!(cluster.owner(slot), owner);
}

fn the_replica_of_a_killed_primary_takes_over(flavor: Flavor) {
    let mut cluster = Cluster::start(flavor);
    let slot = Cluster::slot("key");
    let owner = cluster.owner(slot);
    let replica = cluster.replica_of(owner);
    let mut connection = cluster.nodes[owner].connect().expect("it listens");
    assert_eq!(connection.command(&["SET", "key", "value"]).expect("a reply"), ok());
    let replicas = connection.command(&["WAIT", "1", "9000"]).expect("a reply");
    assert_eq!(replicas, Reply::Integer(1));
    cluster.nodes[owner].kill();
    assert!(!cluster.nodes[owner].is_live());
    assert_eq!(cluster.await_owner_other_than(slot, owner), replica);
    cluster.await_ok();
    assert_eq!(value_of(&cluster, "key").as_deref(), Some("value"));
    cluster.nodes[owner].restart();
    cluster.await_ok();
    assert_eq!(cluster.replica_of(replica), owner);
}

fn a_paused_primary_is_replaced_and_returns_as_a_replica(flavor: Flavor) {
    let cluster = Cluster::builder(flavor).full_coverage(false).start();
    let slot = Cluster::slot("key");
    let owner = cluster.owner(slot);
    cluster.nodes[owner].pause(true);
    let replica = cluster.await_owner_other_than(slot, owner);
    cluster.nodes[owner].pause(false);
    cluster.await_ok();
    assert_eq!(cluster.replica_of(replica), owner);
}

fn a_restarted_node_is_the_same_node(flavor: Flavor) {
    let mut cluster = Cluster::builder(flavor).primaries(1).replicas(0).start();
    let (port, pid, id) = (cluster.nodes[0].port(), cluster.nodes[0].pid(), cluster.nodes[0].id());
    assert_eq!(cluster.command(0, &["CLUSTER", "MYID"]).text().as_deref(), Some(id));
    let id = id.to_owned();
    cluster.nodes[0].restart();
    cluster.await_ok();
    let node = &cluster.nodes[0];
    assert_ne!(node.pid(), pid);
    assert_eq!((node.port(), node.id()), (port, id.as_str()));
    assert_eq!(cluster.command(0, &["CLUSTER", "MYID"]).text(), Some(id));
    assert_eq!(cluster.owner(0), 0);
}

fn a_migration_in_either_key_order_keeps_all_keys(flavor: Flavor) {
    let cluster = Cluster::start(flavor);
    let (keys, slot) = (keys(10), Cluster::slot("tag"));
    keys.iter().for_each(|key| set(&cluster, key, key));
    for order in [KeyOrder::AsStored, KeyOrder::Reversed] {
        let from = cluster.owner(slot);
        let to = (from + 1) % 3;
        let stored = keys_in(&cluster, from, slot);
        let first = if order == KeyOrder::AsStored { &stored[..3] } else { &stored[7..] };
        cluster.begin_migration(slot, to);
        assert_eq!(cluster.move_keys(slot, to, order, 3), 7);
        assert_eq!(sorted(keys_in(&cluster, to, slot)), sorted(first.to_vec()));
        assert_eq!(cluster.owner(slot), from);
        assert_eq!(cluster.move_keys(slot, to, order, 100), 0);
        cluster.finish_migration(slot, to);
        assert_eq!(cluster.owner(slot), to);
        keys.iter().for_each(|key| assert_eq!(value_of(&cluster, key).as_ref(), Some(key)));
    }
}

fn an_abandoned_migration_leaves_the_owner(flavor: Flavor) {
    let cluster = Cluster::start(flavor);
    let (keys, slot) = (keys(10), Cluster::slot("tag"));
    keys.iter().for_each(|key| set(&cluster, key, key));
    let from = cluster.owner(slot);
    let to = (from + 1) % 3;
    cluster.begin_migration(slot, to);
    assert_eq!(cluster.move_keys(slot, to, KeyOrder::AsStored, 4), 6);
    let absent = |cluster: &Cluster| cluster.command(from, &["GET", "{tag}:absent"]);
    let asked = absent(&cluster);
    assert!(matches!(&asked, Reply::Error(it) if it.starts_with("ASK ")), "{asked:?}");
    cluster.abandon_migration(slot);
    assert!(absent(&cluster).is_nil());
    assert_eq!(cluster.owner(slot), from);
    cluster.await_ok();
    let found = keys.iter().filter(|key| value_of(&cluster, key).is_some()).count();
    assert_eq!(found, 6, "the keys that were moved are orphans");
    assert_eq!(keys_in(&cluster, to, slot).len(), 4);
}

fn many_slots_move_with_their_keys(flavor: Flavor) {
    let cluster = Cluster::start(flavor);
    many_slots_move(&cluster, Cluster::move_slots);
    cluster.migrate(5361, 0);
    assert_eq!([5361, 5362].map(|slot| cluster.owner(slot)), [0, 2]);
}

fn many_slots_move(cluster: &Cluster, how: fn(&Cluster, RangeInclusive<u16>, usize)) {
    // The last of one owner, and the first of the next.
    let slots = 5361..=5560;
    let mut keys: Vec<_> = (0..2000).map(|number| number.to_string()).collect();
    keys.retain(|key| slots.contains(&Cluster::slot(key)));
    assert!(keys.len() > 5, "{keys:?}");
    keys.iter().for_each(|key| set(cluster, key, key));
    how(cluster, slots, 2);
    assert_eq!([5361, 5460, 5461, 5560].map(|slot| cluster.owner(slot)), [2, 2, 2, 2]);
    assert_eq!([5360, 5561].map(|slot| cluster.owner(slot)), [0, 1]);
    keys.iter().for_each(|key| assert_eq!(value_of(cluster, key).as_ref(), Some(key)));
    cluster.await_ok();
}

#[test]
fn valkey_moves_many_slots_at_once() {
    on(Flavor::Valkey, |flavor| {
        many_slots_move(&Cluster::start(flavor), Cluster::move_slots_at_once);
    });
}

fn all_processes_are_gone_after_the_drop(flavor: Flavor) {
    let cluster = Cluster::start(flavor);
    cluster.nodes[4].pause(true);
    let left = |node: &tenure_testkit::Node| (node.pid(), node.server().folder().to_path_buf());
    let nodes: Vec<_> = cluster.nodes.iter().map(left).collect();
    assert!(nodes.iter().all(|(pid, folder)| exists(*pid) && folder.exists()));
    drop(cluster);
    assert!(nodes.iter().all(|(pid, folder)| !exists(*pid) && !folder.exists()));
}

#[test]
fn an_old_server_is_refused_with_a_reason() {
    let start = || drop(Cluster::start(Flavor::Redis6));
    let panic = std::thread::spawn(start).join().unwrap_err();
    let sentence = panic.downcast_ref::<String>().unwrap();
    assert!(sentence.starts_with("Redis 6.2 has no sharded publish"), "{sentence}");
}
