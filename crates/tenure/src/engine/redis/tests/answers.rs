//! Each script returns every answer that its header lists; and whatever it is, the same call sent
//! again changes nothing more (I5).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tenure_testkit::Server;

use super::super::batch::Batched;
use super::super::{keys, scripts};
use super::caller::Caller;
use super::slots;
use crate::core::fence::Fence;
use crate::core::lease::Lease;
use crate::core::name::LockName;
use crate::core::shape::{Kind, Shape};
use crate::engine::{AcquireRequest, CancelRequest, Proposal, Queueing, ReleaseRequest, Renewal};
use crate::info::About;
use crate::owner::{Entry, Owner};

const LEASE: Duration = Duration::from_secs(30);

pub(super) fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

/// An acquire of a mutex, without waiting: the plain case.
pub(super) fn acquire(lock: &str, owner: Owner) -> AcquireRequest {
    AcquireRequest {
        name: name(lock),
        entry: Entry { owner, number: 0 },
        shape: Shape::mutex(),
        lease: Lease::new(LEASE).unwrap(),
        about: Arc::new(About::this_process()),
        queue: None,
        proposal: None,
    }
}

/// The same, with waiting.
pub(super) fn waiting(request: AcquireRequest) -> AcquireRequest {
    let queue = Queueing { heartbeat: LEASE, claim: LEASE, fences: 1 };
    AcquireRequest { queue: Some(queue), ..request }
}

/// The same, with a proposed fence.
pub(super) fn proposing(request: AcquireRequest, fence: u64) -> AcquireRequest {
    let proposal =
        Proposal { fence: Fence::from_value(fence), is_repair: false, is_repeated: false };
    AcquireRequest { proposal: Some(proposal), ..request }
}

/// The same, for a semaphore with three permits.
pub(super) fn permits(request: AcquireRequest, permits: u32) -> AcquireRequest {
    AcquireRequest { shape: Shape::new(Kind::Semaphore, 3, permits).unwrap(), ..request }
}

pub(super) fn renewal(lock: &str, owner: Owner) -> Renewal {
    let entry = Entry { owner, number: 0 };
    Renewal { name: name(lock), entry, lease: Lease::new(LEASE).unwrap(), commit: None }
}

pub(super) fn release(lock: &str, owner: Owner) -> ReleaseRequest {
    ReleaseRequest::new(name(lock), Entry { owner, number: 0 })
}

pub(super) fn cancel(lock: &str, owner: Owner) -> CancelRequest {
    CancelRequest { name: name(lock), entry: Entry { owner, number: 0 } }
}

on_every_server!(
    acquire_gives_every_answer,
    renew_gives_every_answer,
    release_gives_every_answer,
    cancel_gives_every_answer,
    inspect_gives_every_answer,
    force_gives_every_answer,
);

/// Collects the answers of one script.
struct Answers {
    caller: Caller,
    seen: BTreeSet<String>,
}

impl Answers {
    fn new(server: &Server) -> Self {
        let mut caller = Caller::new(server);
        caller.command(&["SET", &keys::lock_key(&name("taken")), "foreign"]);
        Self { caller, seen: BTreeSet::new() }
    }

    /// Sends it twice, and checks that the second call changes nothing. Returns the first answer.
    fn send<O: Batched>(&mut self, operation: &O) -> String {
        let answer = self.caller.call(&[operation]).remove(0);
        let state = self.caller.state();
        self.caller.call(&[operation]);
        assert_eq!(self.caller.state(), state, "sent again after {answer}");
        answer
    }

    /// The same, and records the answer.
    fn note<O: Batched>(&mut self, operation: &O) -> String {
        let answer = self.send(operation);
        self.seen.insert(kind(&answer));
        answer
    }

    /// The recorded answers are those of the header.
    fn check(&self, script: &str) {
        assert_eq!(self.seen, promised(script));
    }
}

/// The kind of an answer, without its values.
fn kind(answer: &str) -> String {
    let word = answer.split(' ').next().unwrap_or_default();
    if word.starts_with('-') { "-error".to_owned() } else { word.to_owned() }
}

/// The answers that a header lists: each is in quotes.
fn promised(script: &str) -> BTreeSet<String> {
    let header = slots::header(script);
    let (_, returns) = header.split_once("Returns ").expect("a header lists the return values");
    returns.split('"').skip(1).step_by(2).map(kind).collect()
}

fn acquire_gives_every_answer(server: &Server) {
    let mut answers = Answers::new(server);
    let (first, second) = (Owner::new(), Owner::new());
    answers.note(&acquire("x", first));
    answers.note(&acquire("x", second));
    let queued = answers.note(&waiting(acquire("x", second)));
    assert!(queued.starts_with("2 0 30000000 "), "{queued}");
    let other = answers.note(&permits(acquire("x", second), 1));
    assert_eq!(other, "4 m1");
    answers.note(&permits(acquire("y", first), 1));
    let upgrade = answers.note(&permits(acquire("y", first), 2));
    assert_eq!(upgrade, "5 1");
    let error = answers.note(&acquire("taken", first));
    assert!(error.starts_with("-DAMAGED "), "{error}");
    let now = answers.caller.now.as_micros();
    // Sent again, it becomes the text of a lock that was renewed.
    answers.caller.call(&[&proposing(acquire("z", first), now - 1)]);
    answers.send(&release("z", first));
    let outdated = answers.note(&proposing(acquire("z", second), now - 1));
    assert_eq!(outdated, format!("6 {}", now - 1));
    let ahead = answers.note(&proposing(acquire("z", second), now + 60_000_001));
    assert_eq!(ahead, format!("7 {now}"));
    answers.check(slots::ACQUIRE);
}

fn renew_gives_every_answer(server: &Server) {
    let mut answers = Answers::new(server);
    let owner = Owner::new();
    answers.note(&renewal("x", owner));
    answers.send(&acquire("x", owner));
    answers.caller.pass(LEASE / 3);
    assert_eq!(answers.note(&renewal("x", owner)), "1");
    answers.note(&renewal("taken", owner));
    answers.check(slots::RENEW);
    answers.caller.pass(LEASE);
    assert_eq!(answers.note(&renewal("x", owner)), "0", "its lease has ended");
}

fn release_gives_every_answer(server: &Server) {
    let mut answers = Answers::new(server);
    let owner = Owner::new();
    let enter = |number| {
        let entry = Entry { owner, number };
        AcquireRequest { entry, ..acquire("x", owner) }
    };
    let leave = |number| ReleaseRequest { entry: Entry { owner, number }, ..release("x", owner) };
    answers.send(&enter(1));
    answers.send(&enter(2));
    // "The number of entries that remain" is the only answer that is not in quotes.
    assert_eq!(answers.send(&leave(1)), "1");
    assert_eq!(answers.send(&leave(2)), "0");
    assert_eq!(answers.note(&leave(2)), "none");
    answers.send(&acquire("x", owner));
    assert_eq!(answers.send(&release("x", owner)), "0", "the plain case");
    answers.note(&release("taken", owner));
    answers.check(slots::RELEASE);
}

fn cancel_gives_every_answer(server: &Server) {
    let mut answers = Answers::new(server);
    let (first, second) = (Owner::new(), Owner::new());
    answers.send(&acquire("x", first));
    let held = answers.caller.state();
    answers.send(&waiting(acquire("x", second)));
    answers.note(&cancel("x", second));
    assert_eq!(answers.caller.state(), held, "the queue leaves nothing behind");
    answers.note(&cancel("x", first));
    assert!(answers.send(&acquire("x", second)).starts_with("1 "), "released");
    answers.note(&cancel("taken", first));
    answers.check(slots::CANCEL);
}

/// Kind, number of holders, number of waiters, and how many waiters are shown.
fn inspect_gives_every_answer(server: &Server) {
    let mut answers = Answers::new(server);
    let owners: Vec<_> = (0..3).map(|_| Owner::new()).collect();
    answers.send(&acquire("m", owners[0]));
    answers.send(&waiting(acquire("m", owners[1])));
    answers.send(&waiting(acquire("m", owners[2])));
    answers.send(&permits(acquire("s", owners[0]), 1));
    answers.send(&permits(acquire("s", owners[1]), 2));
    let names = ["free", "m", "taken", "s"].map(name);
    let state = answers.caller.state();
    let names: Vec<_> = names.iter().collect();
    let reply = answers.caller.run(&scripts::INSPECT, &names, |command| {
        ["1", "1"].iter().for_each(|most| command.push(most));
    });
    assert_eq!(answers.caller.state(), state, "inspecting changes nothing");
    let [nonce, locks @ ..] = reply.array().unwrap() else { panic!("{reply:?}") };
    assert!(nonce.text().unwrap().starts_with("nonce "));
    assert_eq!(locks.len(), 4);
    let shown_lock = |index: usize| {
        let [kind, holding, holders, waiting, shown, record] = locks[index].array().unwrap() else {
            panic!("{reply:?}")
        };
        assert_eq!(record.text(), Some(""));
        let count = |list: &super::Reply| list.array().unwrap().len();
        assert_eq!(count(holders) as u64, holding.number().unwrap().min(1), "so many are shown");
        let (holding, waiting) = (holding.number().unwrap(), waiting.number().unwrap());
        (kind.text().unwrap(), holding, waiting, count(shown))
    };
    assert_eq!(shown_lock(0), ("", 0, 0, 0));
    assert_eq!(shown_lock(1), ("m1", 1, 2, 1));
    assert!(matches!(&locks[2], super::Reply::Error(it) if it.starts_with("DAMAGED")));
    assert_eq!(shown_lock(3), ("s3", 2, 0, 0));
}

fn force_gives_every_answer(server: &Server) {
    let mut answers = Answers::new(server);
    let (owner, other) = (Owner::new(), Owner::new());
    let caller = &mut answers.caller;
    caller.call(&[&acquire("x", owner)]);
    let mut force = |lock: &str, expected: &str| {
        let before = caller.state();
        let reply = caller.run(&scripts::FORCE, &[&name(lock)], |command| {
            [expected, "host 1 program why", "60000"].iter().for_each(|it| command.push(it));
        });
        let answer = reply.array().unwrap()[1].clone();
        let taken = answer.array().map(|owners| {
            owners.iter().map(|it| it.text().unwrap().to_owned()).collect::<Vec<_>>()
        });
        let changes = caller.state() != before;
        (taken, changes)
    };
    assert_eq!(force("x", &other.to_string()), (Some(vec![]), false), "not the one expected");
    assert_eq!(force("x", ""), (Some(vec![owner.to_string()]), true));
    assert_eq!(force("x", ""), (Some(vec![]), false), "sent again, when it is free");
    assert_eq!(force("taken", ""), (None, false));
}
