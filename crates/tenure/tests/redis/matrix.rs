//! Every message that a client sends, and every fault that can strike it.
//!
//! One scenario runs for each pair, concurrently, each through a proxy of its own: a client
//! holds a lock, times out twice on another, waits for that one, gets it, and releases both. Whatever
//! is lost, no second client enters beside a holder, a waiter is served in time (I7), a lease that is
//! renewed is kept, and in the end nothing is left (I5, I6, I8).

use std::sync::Arc;
use std::time::Duration;

use tenure::{Error, Guard, Released, Tenure};
use tenure_testkit::Server;
use tenure_testkit::proxy::{Command, Direction, Proxy, ReplyLost, Rule};
use tokio::task::JoinSet;

use super::fixture::{LONG, calls, connect, ms, pass, until, until_free};
use super::subscription::{is_ping, is_subscribe};

/// A waiter polls every five seconds; the timeout of an answer takes two more, and a reconnect as long.
const BOUND: Duration = Duration::from_secs(10);

/// The lease of the lock that is held throughout, if renewals are tested: every two seconds. Otherwise
/// it is long, so that only a release ends it during a scenario.
const RENEWED: Duration = Duration::from_secs(6);

/// A message that a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    Acquire,
    Renew,
    Release,
    Cancel,
    Subscribe,
    /// With which a subscriber checks its connection.
    Ping,
}

/// The fault that strikes it.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The reply to the nth is lost, as specified.
    Reply(usize, ReplyLost),
    /// The nth never arrives.
    Request(usize),
    /// It, or the reply to it, is late; if by more than two seconds, it times out.
    Late(Direction, Duration),
    /// While it is in flight, all connections are cut.
    Cut(Direction),
    /// While it is in flight, all connections become black holes; new ones work.
    BlackHole(Direction),
}

const MESSAGES: [Message; 6] = [
    Message::Acquire,
    Message::Renew,
    Message::Release,
    Message::Cancel,
    Message::Subscribe,
    Message::Ping,
];

const FAULTS: [Fault; 12] = [
    Fault::Reply(1, ReplyLost::Cut),
    Fault::Reply(2, ReplyLost::Cut),
    Fault::Reply(1, ReplyLost::Silence),
    Fault::Reply(2, ReplyLost::Silence),
    Fault::Request(1),
    Fault::Late(Direction::Requests, Duration::from_millis(500)),
    Fault::Late(Direction::Replies, Duration::from_millis(500)),
    Fault::Late(Direction::Replies, Duration::from_secs(3)),
    Fault::Cut(Direction::Requests),
    Fault::Cut(Direction::Replies),
    Fault::BlackHole(Direction::Requests),
    Fault::BlackHole(Direction::Replies),
];

/// One scenario.
struct Scenario {
    message: Message,
    fault: Fault,
    server: Arc<Server>,
    proxy: Arc<Proxy>,
    proxied: Tenure,
    direct: Tenure,
    /// Unique names, because all scenarios share a server.
    wanted: String,
    kept: String,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_survives_every_fault() {
    let server = Arc::new(Server::start());
    let mut scenarios = JoinSet::new();
    for message in MESSAGES {
        for fault in FAULTS {
            let server = server.clone();
            scenarios.spawn(async move {
                let scenario = Scenario::new(message, fault, server).await;
                let ran = tokio::time::timeout(Duration::from_secs(60), scenario.run());
                ran.await.unwrap_or_else(|_| panic!("{message:?}, {fault:?}: it hangs"));
            });
        }
    }
    let mut failed = 0;
    while let Some(scenario) = scenarios.join_next().await {
        // A scenario that panicked has printed why.
        failed += usize::from(scenario.is_err());
    }
    assert_eq!(failed, 0, "scenarios failed");
}

impl Scenario {
    async fn new(message: Message, fault: Fault, server: Arc<Server>) -> Self {
        let proxy = Arc::new(Proxy::start(&server));
        let (proxied, direct) = (connect(&proxy.url()).await, connect(&server.url()).await);
        let name = |what| format!("{message:?}/{fault:?}/{what}");
        let (wanted, kept) = (name("wanted"), name("kept"));
        Self { message, fault, server, proxy, proxied, direct, wanted, kept }
    }

    async fn run(self) {
        let what = format!("{:?}, {:?}", self.message, self.fault);
        let first = self.direct.lock(&self.wanted).acquire().await.unwrap();
        let rule = self.arm();
        let striking = tokio::spawn(strike(self.proxy.clone(), rule, self.fault));

        let is_renewed = self.message == Message::Renew;
        let lease = if is_renewed { RENEWED } else { Duration::from_secs(120) };
        let kept = self.proxied.lock(&self.kept).lease(lease);
        let kept = kept.acquire().await.unwrap_or_else(|error| panic!("{what}: {error}"));
        self.time_out_twice(&what).await;
        let waiter = self.wait().await;
        self.provoke(rule).await;
        if self.message != Message::Release {
            // The fault is complete, also if it strikes more than one message.
            striking.await.unwrap_or_else(|_| panic!("{what}: it never struck"));
        }

        drop(first);
        let guard = tokio::time::timeout(BOUND, waiter).await;
        let guard = guard.unwrap_or_else(|_| panic!("{what}: not served within {BOUND:?}"));
        let guard = guard.unwrap().unwrap_or_else(|error| panic!("{what}: {error}"));
        self.check_held(&guard, &what).await;
        if is_renewed {
            self.check_renewed(&kept, &what).await;
        }
        self.check_held(&kept, &what).await;
        self.release(kept, &what).await;
        self.release(guard, &what).await;

        for name in [&self.wanted, &self.kept] {
            until_free(&self.direct, name).await;
        }
        assert!(self.proxy.strikes(rule) > 0, "{what}: it never struck");
    }

    /// Matches the message.
    fn matching(&self) -> Box<dyn Fn(&Command) -> bool + Send> {
        match self.message {
            Message::Acquire => Box::new(calls(&self.server, "acquire")),
            Message::Renew => Box::new(calls(&self.server, "renew")),
            Message::Release => Box::new(calls(&self.server, "release")),
            Message::Cancel => Box::new(calls(&self.server, "cancel")),
            Message::Subscribe => Box::new(is_subscribe),
            Message::Ping => Box::new(is_ping),
        }
    }

    fn arm(&self) -> Rule {
        self.proxy.forget();
        let (proxy, matching) = (&self.proxy, self.matching());
        match self.fault {
            Fault::Reply(nth, how) => proxy.drop_reply(matching, nth, how),
            Fault::Request(nth) => proxy.drop_request(matching, nth),
            Fault::Late(direction, time) => proxy.delay(matching, direction, time),
            Fault::Cut(direction) | Fault::BlackHole(direction) => proxy.hold(matching, direction),
        }
    }

    /// Two cancels, if nothing is granted by mistake.
    async fn time_out_twice(&self, what: &str) {
        for _ in 0..2 {
            let error = self.proxied.lock(&self.wanted).acquire_within(ms(50)).await;
            let error = error.map(drop).expect_err("it is held");
            let is_expected = matches!(
                error,
                Error::TimedOut { .. } | Error::Unknown { .. } | Error::Unreachable { .. }
            );
            assert!(is_expected, "{what}: {error:?}");
            // One after the other: two at once would be one message.
            until(&self.direct, &self.wanted, |info| info.waiting == 0).await;
        }
    }

    async fn wait(&self) -> tokio::task::JoinHandle<Result<Guard, Error>> {
        let lock = self.proxied.lock(&self.wanted);
        let waiter = tokio::spawn(async move { lock.acquire().await });
        until(&self.direct, &self.wanted, |info| info.waiting == 1).await;
        waiter
    }

    /// Makes sure that the message is sent and struck, before the lock that is waited for is
    /// released. A release is sent later.
    async fn provoke(&self, rule: Rule) {
        let is_struck = || self.proxy.strikes(rule) > 0;
        while self.message != Message::Release && !is_struck() {
            let subscribed = self.proxy.seen(is_subscribe);
            if self.message == Message::Subscribe {
                self.proxy.cut();
            }
            while !is_struck() && self.proxy.seen(is_subscribe) == subscribed {
                pass(ms(2)).await;
            }
        }
    }

    /// I5: held once in the store, by this guard.
    async fn check_held(&self, guard: &Guard, what: &str) {
        guard.ensure_held().unwrap_or_else(|lost| panic!("{what}: {lost}"));
        let info = self.direct.lock(guard.name().as_str()).inspect().await.unwrap();
        let holders: Vec<_> = info.holders.iter().map(|it| (it.entries, it.fence)).collect();
        assert_eq!(holders, [(1, guard.fence())], "{what}");
    }

    /// A lost renewal leaves the old deadline valid, and the next one keeps the lock.
    async fn check_renewed(&self, guard: &Guard, what: &str) {
        let renewed = async {
            while guard.remaining() < RENEWED * 9 / 10 {
                assert!(!guard.is_lost(), "{what}: lost");
                pass(ms(5)).await;
            }
        };
        tokio::time::timeout(LONG, renewed).await.unwrap_or_else(|_| panic!("{what}: unrenewed"));
    }

    async fn release(&self, guard: Guard, what: &str) {
        match guard.release().await {
            Ok(Released::Now) | Err(Error::Unknown { .. } | Error::Unreachable { .. }) => {}
            other => panic!("{what}: {other:?}"),
        }
    }
}

/// Waits for the rule to strike, and completes the fault.
async fn strike(proxy: Arc<Proxy>, rule: Rule, fault: Fault) {
    let struck = async {
        while proxy.strikes(rule) == 0 {
            pass(ms(1)).await;
        }
    };
    tokio::time::timeout(LONG * 2, struck).await.expect("the message is sent");
    match fault {
        // Once is enough: a lease that can never be renewed in time must be lost.
        Fault::Late(..) => proxy.remove(rule),
        Fault::Cut(_) => proxy.cut(),
        Fault::BlackHole(_) => {
            proxy.black_hole();
            proxy.heal();
        }
        Fault::Reply(..) | Fault::Request(_) => {}
    }
    proxy.release();
}
