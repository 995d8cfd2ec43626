//! A master with two replicas and three Sentinels. A failover may lose the last grants.

use std::time::Duration;

use tenure_testkit::{Flavor, Sentinels};

use super::node::usage;
use super::{Stage, Usage, upto};
use crate::fault::Fault;
use crate::time::pass;

const REPLICAS: usize = 2;
const SENTINELS: usize = 3;

pub(super) struct Group(Sentinels);

impl Group {
    pub(super) fn start() -> Self {
        Self(Sentinels::start(Flavor::Redis, REPLICAS))
    }

    fn master(&self) -> Option<usize> {
        let port = self.0.master_port();
        self.0.servers.iter().position(|server| server.port() == port && server.is_live())
    }

    /// Kills or stops the master until it is replaced.
    fn replace_master(&mut self, kills: bool) {
        self.0.await_agreement();
        let (Some(master), before) = (self.master(), self.0.master_port()) else { return };
        if kills {
            self.0.servers[master].kill();
        } else {
            self.0.servers[master].pause(true);
        }
        self.0.await_master_other_than(before);
        if kills {
            self.0.servers[master].restart();
        } else {
            self.0.servers[master].pause(false);
        }
    }

    fn command(&self, words: &[&str]) {
        if let Some(mut connection) = self.master().and_then(|it| self.0.servers[it].connect().ok())
        {
            let _ = connection.command(words);
        }
    }
}

impl Stage for Group {
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
            Fault::RestartSentinel,
        ]
    }

    fn excuses(&self, fault: Fault) -> bool {
        matches!(
            fault,
            Fault::FlushAll
                | Fault::FailOver
                | Fault::KillMaster
                | Fault::StopMaster
                // It may be replaced meanwhile.
                | Fault::StopServer
        )
    }

    fn inject(&mut self, fault: Fault, random: &mut fastrand::Rng) -> bool {
        match fault {
            Fault::StopServer => {
                let server = &self.0.servers[random.usize(..=REPLICAS)];
                server.pause(true);
                pass(upto(random, Duration::from_millis(900)));
                server.pause(false);
            }
            Fault::FlushAll => self.command(&["FLUSHALL"]),
            Fault::ScriptFlush => self.command(&["SCRIPT", "FLUSH"]),
            Fault::ClientKill => self.command(&["CLIENT", "KILL", "TYPE", "normal"]),
            Fault::FailOver => self.0.fail_over(),
            Fault::KillMaster => self.replace_master(true),
            Fault::StopMaster => self.replace_master(false),
            Fault::RestartSentinel => {
                let sentinel = random.usize(..SENTINELS);
                self.0.kill_sentinel(sentinel);
                pass(upto(random, Duration::from_secs(1)));
                self.0.restart_sentinel(sentinel);
            }
            other => unreachable!("{other} is no fault of Sentinels"),
        }
        true
    }

    fn usage(&self) -> Usage {
        self.0.servers.iter().filter(|server| server.is_live()).map(usage).sum()
    }
}
