//! Another program's key under the name of a lock: the answer is an error, nothing is changed, and the
//! other locks of the same call are served.

use tenure_testkit::Server;
use tenure_testkit::resp::Reply as Plain;

use super::super::{keys, scripts};
use super::answers::{acquire, cancel, name, permits, release, renewal, waiting};
use super::caller::Caller;
use super::*;

on_every_server!(
    a_foreign_key_is_named_and_nothing_is_changed,
    a_lock_is_one_key,
    one_foreign_key_spoils_no_batch,
);

/// The state of a lock when its key is replaced by a foreign one.
#[derive(Clone, Copy, Debug)]
enum Use {
    Free,
    Held,
    Contended,
    Shared,
}

/// The action on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Acquire,
    Enter,
    Wait,
    Share,
    Renew,
    Release,
    Cancel,
    Inspect,
    Force,
}

const USES: [Use; 4] = [Use::Free, Use::Held, Use::Contended, Use::Shared];
const ACTIONS: [Action; 9] = [
    Action::Acquire,
    Action::Enter,
    Action::Wait,
    Action::Share,
    Action::Renew,
    Action::Release,
    Action::Cancel,
    Action::Inspect,
    Action::Force,
];

/// A key of each type.
const FOREIGN: [(&str, &[&str]); 5] = [
    ("string", &["SET", "", "theirs"]),
    ("list", &["RPUSH", "", "theirs"]),
    ("set", &["SADD", "", "theirs"]),
    ("zset", &["ZADD", "", "1", "theirs"]),
    ("hash", &["HSET", "", "theirs", "1"]),
];

/// A lock `x` in use, by fixed owners.
struct Scene {
    caller: Caller,
    owners: [Owner; 3],
}

impl Scene {
    fn new(server: &Server) -> Self {
        Self { caller: Caller::new(server), owners: std::array::from_fn(|_| Owner::new()) }
    }

    fn set(&mut self, state: Use) {
        self.caller.command(&["FLUSHALL"]);
        let [first, second, third] = self.owners;
        match state {
            Use::Free => {}
            Use::Held => drop(self.caller.call(&[&acquire("x", first)])),
            Use::Contended => {
                self.caller.call(&[&acquire("x", first)]);
                self.caller.call(&[&waiting(acquire("x", second))]);
            }
            Use::Shared => {
                for owner in [first, second, third] {
                    self.caller.call(&[&waiting(permits(acquire("x", owner), 2))]);
                }
            }
        }
    }

    /// The error that the action returns, if any.
    fn perform(&mut self, action: Action) -> Result<(), String> {
        let (x, [first, _, third]) = (name("x"), self.owners);
        let caller = &mut self.caller;
        let lines = match action {
            Action::Acquire => caller.try_call(&[&acquire("x", third)]),
            Action::Enter => caller.try_call(&[&acquire("x", first)]),
            Action::Wait => caller.try_call(&[&waiting(acquire("x", third))]),
            Action::Share => caller.try_call(&[&waiting(permits(acquire("x", third), 1))]),
            Action::Renew => caller.try_call(&[&renewal("x", first)]),
            Action::Release => caller.try_call(&[&release("x", first)]),
            Action::Cancel => caller.try_call(&[&cancel("x", first)]),
            Action::Inspect => {
                return second(caller.run(&scripts::INSPECT, &[&x], |it| {
                    ["9", "9"].iter().for_each(|most| it.push(most));
                }));
            }
            Action::Force => {
                return second(caller.run(&scripts::FORCE, &[&x], |command| {
                    ["", "host 1 program why", "60000"].iter().for_each(|it| command.push(it));
                }));
            }
        };
        lines?[0].strip_prefix('-').map_or(Ok(()), |error| Err(error.to_owned()))
    }

    /// Performs an action on a foreign key; returns what it did wrong.
    fn try_on(&mut self, action: Action) -> Result<(), String> {
        let before = self.caller.state();
        let outcome = self.perform(action);
        let after = self.caller.state();
        if after != before {
            return Err("it changed a key".into());
        }
        match outcome {
            Ok(()) => Err("it returned no error".into()),
            Err(error) if error.starts_with("WRONGTYPE") || error.starts_with("DAMAGED") => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The item after the nonce.
fn second(reply: Reply) -> Result<(), String> {
    match reply.array().and_then(|values| values.get(1)) {
        Some(Reply::Error(error)) => Err(error.clone()),
        Some(_) => Ok(()),
        None => Err(format!("the whole call failed: {reply:?}")),
    }
}

fn put(caller: &mut Caller, key: &str, words: &[&str]) {
    caller.command(&["DEL", key]);
    let words: Vec<_> = words.iter().map(|word| if word.is_empty() { key } else { word }).collect();
    assert!(!matches!(caller.command(&words), Plain::Error(_)), "{words:?}");
}

fn a_foreign_key_is_named_and_nothing_is_changed(server: &Server) {
    let mut scene = Scene::new(server);
    let (key, mut wrong) = (keys::lock_key(&name("x")), Vec::new());
    for (kind, words) in FOREIGN {
        for (state, action) in USES.iter().flat_map(|it| ACTIONS.map(|action| (*it, action))) {
            scene.set(state);
            put(&mut scene.caller, &key, words);
            if let Err(why) = scene.try_on(action) {
                wrong.push(format!("{action:?} of a {state:?} lock, a {kind}: {why}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whatever its state, a lock is one key: a cluster moves keys one by one.
fn a_lock_is_one_key(server: &Server) {
    let mut scene = Scene::new(server);
    for (state, action) in USES.iter().flat_map(|it| ACTIONS.map(|action| (*it, action))) {
        scene.set(state);
        scene.perform(action).unwrap();
        let keys: Vec<_> = scene.caller.state().into_keys().collect();
        let expected = keys::lock_key(&name("x"));
        assert!(
            keys.iter().all(|key| *key == expected),
            "{action:?} of a {state:?} lock: {keys:?}"
        );
    }
}

/// The key of the lock in the middle is foreign.
fn one_foreign_key_spoils_no_batch(server: &Server) {
    let mut caller = Caller::new(server);
    put(&mut caller, &keys::lock_key(&name("b")), FOREIGN[0].1);
    let owner = Owner::new();
    let kinds = |lines: Vec<String>| {
        lines.iter().map(|line| line[..1].to_owned()).collect::<Vec<_>>().join(" ")
    };
    let all = ["a", "b", "c"];
    // With a note it is not the plain case.
    for note in [None, Some("a note".into())] {
        let about = Arc::new(About { note, ..About::this_process() });
        let request = |lock| AcquireRequest { about: about.clone(), ..acquire(lock, owner) };
        let acquires = all.map(request);
        assert_eq!(kinds(caller.call(&acquires.each_ref())), "1 - 1");
        assert_eq!(kinds(caller.call(&all.map(|it| renewal(it, owner)).each_ref())), "1 - 1");
        assert_eq!(kinds(caller.call(&all.map(|it| release(it, owner)).each_ref())), "0 - 0");
        assert_eq!(kinds(caller.call(&all.map(|it| cancel(it, owner)).each_ref())), "0 - 0");
    }
}
