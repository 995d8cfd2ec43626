//! One server behind a proxy: that of a single server, or a node of a quorum.

use std::time::Duration;

use tenure_testkit::proxy::{Direction, ReplyLost};
use tenure_testkit::{Clock, Proxy, Server};

use super::{Usage, upto};
use crate::fault::Fault;
use crate::time::pass;

/// How far clocks are set: by several leases.
const STEP: Duration = Duration::from_secs(5);

pub(super) struct Node {
    pub(super) server: Server,
    pub(super) proxy: Proxy,
    clock: Clock,
}

impl Node {
    /// With its data on disk after every write, so that a restart loses nothing.
    pub(super) fn start() -> Self {
        let clock = Clock::new();
        let server = Server::builder().program(clock.program()).persistent().start();
        let proxy = Proxy::start(&server);
        Self { server, proxy, clock }
    }

    pub(super) const FAULTS: [Fault; 14] = [
        Fault::KillServer,
        Fault::EmptyServer,
        Fault::StopServer,
        Fault::FlushAll,
        Fault::ScriptFlush,
        Fault::ClientKill,
        Fault::LoseReply,
        Fault::LoseRequest,
        Fault::DelayReplies,
        Fault::LoseMessages,
        Fault::Cut,
        Fault::BlackHole,
        Fault::ClockForward,
        Fault::ClockBack,
    ];

    pub(super) fn inject(&mut self, fault: Fault, random: &mut fastrand::Rng) {
        // It records every request, for tests that ask for them: gigabytes in an hour.
        self.proxy.forget();
        let moment = upto(random, Duration::from_millis(300));
        let while_ = upto(random, Duration::from_secs(2));
        match fault {
            Fault::KillServer => self.restart(while_, false),
            Fault::EmptyServer => self.restart(moment, true),
            Fault::StopServer => {
                self.server.pause(true);
                pass(while_);
                self.server.pause(false);
            }
            Fault::FlushAll => self.command(&["FLUSHALL"]),
            Fault::ScriptFlush => self.command(&["SCRIPT", "FLUSH"]),
            Fault::ClientKill => {
                let kind = ["normal", "pubsub"][random.usize(..2)];
                self.command(&["CLIENT", "KILL", "TYPE", kind]);
            }
            Fault::LoseReply => {
                let how = if random.bool() { ReplyLost::Cut } else { ReplyLost::Silence };
                let rule =
                    self.proxy.drop_reply(|it| it.script().is_some(), random.usize(1..20), how);
                pass(moment);
                self.proxy.remove(rule);
            }
            Fault::LoseRequest => {
                let rule = self.proxy.drop_request(|it| it.script().is_some(), random.usize(1..20));
                pass(moment);
                self.proxy.remove(rule);
            }
            Fault::DelayReplies => {
                let by = upto(random, Duration::from_millis(800));
                let rule = self.proxy.delay(|_| true, Direction::Replies, by);
                pass(moment);
                self.proxy.remove(rule);
            }
            Fault::LoseMessages => {
                self.proxy.drop_messages(true);
                pass(while_);
                self.proxy.drop_messages(false);
            }
            Fault::Cut => self.proxy.cut(),
            Fault::BlackHole => {
                self.proxy.black_hole();
                pass(while_);
                self.proxy.heal();
            }
            Fault::ClockForward | Fault::ClockBack => self.set_clock(fault, while_),
            other => unreachable!("{other} is no fault of one server"),
        }
    }

    fn set_clock(&self, fault: Fault, time: Duration) {
        match fault {
            Fault::ClockForward => self.clock.set_ahead(STEP),
            _ => self.clock.set_back(STEP),
        }
        pass(time);
        self.clock.set_ahead(Duration::ZERO);
    }

    fn restart(&mut self, after: Duration, without_data: bool) {
        self.server.kill();
        if without_data {
            // Its folder has the log of its writes and nothing else that matters.
            let _ = std::fs::remove_dir_all(self.server.folder().join("appendonlydir"));
            let _ = std::fs::remove_file(self.server.folder().join("dump.rdb"));
        }
        pass(after);
        self.server.restart();
    }

    fn command(&self, words: &[&str]) {
        // A server that does not answer now suffers another fault already.
        if let Ok(mut connection) = self.server.connect() {
            let _ = connection.command(words);
        }
    }

    pub(super) fn usage(&self) -> Usage {
        usage(&self.server)
    }
}

/// What a server uses now.
pub(super) fn usage(server: &Server) -> Usage {
    let info = server.connect().and_then(|mut connection| connection.command(&["INFO"]));
    let info = info.ok().and_then(|reply| reply.text()).unwrap_or_default();
    let field = |name: &str| -> u64 {
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    };
    // Our own connection is one of them.
    let connections = field("connected_clients").saturating_sub(1);
    Usage { connections, bytes: field("used_memory") }
}
