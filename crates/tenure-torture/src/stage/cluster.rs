//! Three primaries with a replica each. A failover may lose the last grants of one primary.

use std::time::Duration;

use tenure_testkit::{Cluster, Flavor};

use super::node::usage;
use super::{Stage, Usage, upto};
use crate::fault::Fault;
use crate::time::pass;

/// How many slots are moved at once.
const SLOTS: u16 = 200;

pub(super) struct Shards(Cluster);

impl Shards {
    pub(super) fn start() -> Self {
        Self(Cluster::start(Flavor::Redis))
    }

    fn primary(&self, random: &mut fastrand::Rng) -> usize {
        let primaries = self.0.primaries();
        primaries[random.usize(..primaries.len())]
    }

    /// Kills or stops a primary until it is replaced.
    fn replace(&mut self, primary: usize, kills: bool) {
        let Some(slot) = (0..16_384).find(|slot| self.0.owner(*slot) == primary) else { return };
        if kills {
            self.0.nodes[primary].kill();
        } else {
            self.0.nodes[primary].pause(true);
        }
        self.0.await_owner_other_than(slot, primary);
        if kills {
            self.0.nodes[primary].restart();
        } else {
            self.0.nodes[primary].pause(false);
        }
        self.0.await_ok();
    }

    fn move_slots(&self, random: &mut fastrand::Rng) {
        let first = random.u16(..16_384 - SLOTS);
        let (from, to) = (self.0.owner(first), self.primary(random));
        let owned = (first..first + SLOTS).take_while(|slot| self.0.owner(*slot) == from);
        if let Some(last) = owned.last().filter(|_| from != to) {
            self.0.move_slots(first..=last, to);
            self.0.await_ok();
        }
    }
}

impl Stage for Shards {
    fn url(&self) -> String {
        self.0.url()
    }

    fn faults(&self) -> Vec<Fault> {
        vec![
            Fault::StopServer,
            Fault::FlushAll,
            Fault::ScriptFlush,
            Fault::ClientKill,
            Fault::FailOver,
            Fault::KillMaster,
            Fault::StopMaster,
            Fault::MoveSlots,
        ]
    }

    fn excuses(&self, fault: Fault) -> bool {
        matches!(
            fault,
            Fault::FlushAll
                | Fault::KillMaster
                | Fault::StopMaster
                // It may be replaced meanwhile.
                | Fault::StopServer
        )
    }

    fn inject(&mut self, fault: Fault, random: &mut fastrand::Rng) -> bool {
        let primary = self.primary(random);
        match fault {
            Fault::StopServer => {
                self.0.nodes[primary].pause(true);
                pass(upto(random, Duration::from_millis(900)));
                self.0.nodes[primary].pause(false);
                self.0.await_ok();
            }
            Fault::FlushAll => drop(self.0.command(primary, &["FLUSHALL"])),
            Fault::ScriptFlush => drop(self.0.command(primary, &["SCRIPT", "FLUSH"])),
            Fault::ClientKill => {
                drop(self.0.command(primary, &["CLIENT", "KILL", "TYPE", "normal"]));
            }
            Fault::FailOver => {
                self.0.fail_over(primary);
                self.0.await_ok();
            }
            Fault::KillMaster => self.replace(primary, true),
            Fault::StopMaster => self.replace(primary, false),
            Fault::MoveSlots => self.move_slots(random),
            other => unreachable!("{other} is no fault of a cluster"),
        }
        true
    }

    fn usage(&self) -> Usage {
        self.0.nodes.iter().filter(|node| node.is_live()).map(|node| usage(node.server())).sum()
    }
}
