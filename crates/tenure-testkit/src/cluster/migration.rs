//! Slots that move from one primary to another, step by step.
//!
//! The steps are those of every resharding tool: the slot is marked on both sides, its keys are moved in
//! batches, and then the new owner is set. Between the steps a test does what it wants to see survive.

use std::io;
use std::ops::RangeInclusive;

use crate::resp::Reply;

use super::Cluster;

/// How many slots are in transit at a time when many are moved.
const SLOTS_AT_A_TIME: usize = 100;

/// How many connections share the commands of a batch: Valkey answers a SETSLOT only when the replicas
/// know of it, and takes the next one from that connection only then.
const CONNECTIONS: usize = 25;

/// How many keys one MIGRATE moves.
const KEYS_AT_A_TIME: usize = 100;

/// The order in which the keys of a slot are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOrder {
    /// As the server lists them.
    AsStored,
    /// The other way round.
    Reversed,
}

impl Cluster {
    /// Moves a slot with its keys.
    ///
    /// # Panics
    ///
    /// If a node refuses, as it does where a key is on both sides.
    pub fn migrate(&self, slot: u16, to: usize) {
        self.move_slots(slot..=slot, to);
    }

    /// Moves many slots with their keys; those that the node has already stay.
    ///
    /// # Panics
    ///
    /// If a node refuses, as it does where a key is on both sides.
    pub fn move_slots(&self, slots: RangeInclusive<u16>, to: usize) {
        for (from, slots) in self.by_source(slots, to) {
            for batch in slots.chunks(SLOTS_AT_A_TIME) {
                self.begin(batch, from, to);
                for (slot, keys) in self.count_keys(batch, from) {
                    self.transfer(slot, from, to, KeyOrder::AsStored, keys);
                }
                self.finish(batch, from, to);
            }
        }
    }

    /// Moves many slots with their keys as Valkey 9 does it by itself: no slot is in transit; writers are
    /// held for a moment, and then sent to the new owner. Other servers cannot.
    ///
    /// # Panics
    ///
    /// If a node refuses, or does not know the command.
    pub fn move_slots_at_once(&self, slots: RangeInclusive<u16>, to: usize) {
        for (from, slots) in self.by_source(slots, to) {
            let (first, last) = (slots[0].to_string(), slots[slots.len() - 1].to_string());
            let words = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &first, &last, "NODE"];
            self.order(from, &[&words[..], &[self.nodes[to].id()]].concat());
            self.await_owner(&slots, to);
        }
    }

    /// Begins to migrate a slot: from now on it is in transit.
    ///
    /// # Panics
    ///
    /// If the node has the slot already, or one refuses.
    pub fn begin_migration(&self, slot: u16, to: usize) {
        self.begin(&[slot], self.owner(slot), to);
    }

    /// Moves at most so many keys of a slot in transit, and returns how many are left on its source.
    ///
    /// # Panics
    ///
    /// If a node refuses, as it does where a key is on both sides.
    pub fn move_keys(&self, slot: u16, to: usize, order: KeyOrder, at_most: usize) -> usize {
        let from = self.owner(slot);
        self.transfer(slot, from, to, order, at_most);
        self.count_keys(&[slot], from).map(|(_, keys)| keys).sum()
    }

    /// Ends the migration of a slot: the node is its owner, and all live nodes know it.
    ///
    /// # Panics
    ///
    /// If the source has keys left, or a node refuses.
    pub fn finish_migration(&self, slot: u16, to: usize) {
        self.finish(&[slot], self.owner(slot), to);
    }

    /// Abandons the migration of a slot: it stays where it was, and keys that were moved are orphans.
    ///
    /// # Panics
    ///
    /// If a node refuses.
    pub fn abandon_migration(&self, slot: u16) {
        // On the two nodes of the migration; on the others it changes nothing.
        for node in self.primaries() {
            self.order(node, &["CLUSTER", "SETSLOT", &slot.to_string(), "STABLE"]);
        }
    }

    fn begin(&self, slots: &[u16], from: usize, to: usize) {
        assert_ne!(from, to, "node {to} has the slots {slots:?} already");
        // The target first: the source sends clients there as soon as it knows.
        self.set_slots(to, slots, &["IMPORTING", self.nodes[from].id()]);
        self.set_slots(from, slots, &["MIGRATING", self.nodes[to].id()]);
    }

    fn transfer(&self, slot: u16, from: usize, to: usize, order: KeyOrder, at_most: usize) {
        let words = ["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), &i32::MAX.to_string()];
        let reply = self.command(from, &words);
        let mut keys: Vec<_> = reply.elements().iter().filter_map(Reply::bytes).collect();
        if order == KeyOrder::Reversed {
            keys.reverse();
        }
        keys.truncate(at_most);
        let port = self.nodes[to].port().to_string();
        let head = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"].map(str::as_bytes);
        for batch in keys.chunks(KEYS_AT_A_TIME) {
            let reply = self.command(from, &[&head, batch].concat());
            // A key that expired meanwhile is no trouble.
            let is_done = reply.text().is_some_and(|it| it == "OK" || it == "NOKEY");
            assert!(is_done, "node {from} could not move keys of slot {slot} to {to}: {reply:?}");
        }
    }

    fn finish(&self, slots: &[u16], from: usize, to: usize) {
        // The source would delete what it still has as soon as it learns of the new owner.
        let left: Vec<_> = self.count_keys(slots, from).collect();
        assert!(left.is_empty(), "node {from} has keys left, as (slot, count): {left:?}");
        let id = self.nodes[to].id();
        self.set_slots(to, slots, &["NODE", id]);
        let others = self.primaries().into_iter().filter(|node| ![from, to].contains(node));
        for node in std::iter::once(from).chain(others) {
            // The nodes learn it from the target as well. A source without any slot is then a replica,
            // and refuses.
            let _ = self.replies(node, slots, "SETSLOT", &["NODE", id]);
        }
        self.await_owner(slots, to);
    }

    fn await_owner(&self, slots: &[u16], owner: usize) {
        self.until(&format!("all nodes see the slots {slots:?} on node {owner}"), || {
            let layout = self.layout()?;
            slots.iter().all(|slot| layout.owner(*slot) == Some(owner)).then_some(())
        });
    }

    /// Runs of adjacent slots that one other node than `to` has, and that node.
    fn by_source(&self, slots: RangeInclusive<u16>, to: usize) -> Vec<(usize, Vec<u16>)> {
        let layout = self.until("the nodes agree on the owners", || self.layout());
        let owner = |slot: &u16| layout.owner(*slot).expect("every slot has an owner");
        let slots: Vec<_> = slots.collect();
        let runs = slots.chunk_by(|one, next| owner(one) == owner(next));
        let runs = runs.map(|slots| (owner(&slots[0]), slots.to_vec()));
        runs.filter(|(from, _)| *from != to).collect()
    }

    fn set_slots(&self, node: usize, slots: &[u16], state: &[&str]) {
        for (slot, reply) in slots.iter().zip(self.replies(node, slots, "SETSLOT", state)) {
            let is_ok = reply == Reply::Simple("OK".into());
            assert!(is_ok, "node {node} refused SETSLOT {slot} {state:?}: {reply:?}");
        }
    }

    /// The slots that have keys on a node, and how many.
    fn count_keys(&self, slots: &[u16], node: usize) -> impl Iterator<Item = (u16, usize)> {
        let replies = self.replies(node, slots, "COUNTKEYSINSLOT", &[]);
        slots.iter().copied().zip(replies).filter_map(move |(slot, reply)| match reply {
            Reply::Integer(0) => None,
            Reply::Integer(keys) => Some((slot, usize::try_from(keys).expect("not negative"))),
            other => panic!("node {node} did not count the keys of slot {slot}: {other:?}"),
        })
    }

    /// Sends a command of `CLUSTER` for each slot, and then reads all replies.
    fn replies(&self, node: usize, slots: &[u16], command: &str, rest: &[&str]) -> Vec<Reply> {
        let ask = || -> io::Result<Vec<Reply>> {
            let count = slots.len().min(CONNECTIONS);
            let connections = (0..count).map(|_| self.nodes[node].connect());
            let mut connections = connections.collect::<io::Result<Vec<_>>>()?;
            for (at, slot) in slots.iter().enumerate() {
                let slot = slot.to_string();
                connections[at % count].send(&[&["CLUSTER", command, &slot], rest].concat())?;
            }
            (0..slots.len()).map(|at| connections[at % count].read()).collect()
        };
        ask().unwrap_or_else(|error| panic!("node {node} did not answer {command}: {error}"))
    }
}
