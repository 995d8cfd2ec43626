//! A lock's key that Tenure did not write: an error for that lock, which names the key, and no effect on the
//! others of the same call. I6.

use std::collections::BTreeMap;

use tenure_testkit::Server;

use super::answers::{acquire, cancel, name, permits, release, renewal, waiting};
use super::caller::Caller;
use super::*;

on_every_server!(
    garbage_in_one_lock_is_an_error_for_that_lock_alone,
    garbage_about_one_waiter_does_not_stop_the_queue,
    a_holder_without_a_record_does_not_occupy_the_lock,
    a_lock_of_the_first_layout_is_refused,
    a_time_that_no_clock_shows_is_refused,
    fences_that_are_too_large_are_refused,
    a_text_as_long_as_a_fence_is_not_written_over,
);

const GARBAGE: [&str; 6] = ["", "garbage", "-1", "1e999", "9999999999999999999999", "\0\n{}"];

/// Every field of a lock in use.
fn fields(caller: &mut Caller, key: &str) -> BTreeMap<String, String> {
    let reply = convert(caller.command(&["HGETALL", key]));
    let words: Vec<_> =
        reply.array().unwrap_or_default().iter().filter_map(|it| it.text()).collect();
    words.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect()
}

/// Puts a lock in use: with holders and waiters, as a mutex or as a semaphore.
fn put_in_use(caller: &mut Caller, lock: &str, owners: &[Owner; 3], is_mutex: bool) {
    for owner in owners {
        let request = waiting(acquire(lock, *owner));
        let request = if is_mutex { request } else { permits(request, 2) };
        caller.call(&[&request]);
    }
}

/// `SET` or `HSET … s garbage` on one key made all 100 locks of the same renewal call lost.
fn garbage_in_one_lock_is_an_error_for_that_lock_alone(server: &Server) {
    let mut caller = Caller::new(server);
    let owners = std::array::from_fn(|_| Owner::new());
    let key = keys::lock_key(&name("b"));
    for is_mutex in [true, false] {
        caller.command(&["FLUSHALL"]);
        put_in_use(&mut caller, "b", &owners, is_mutex);
        for (field, garbage) in fields(&mut caller, &key)
            .into_keys()
            .flat_map(|field| GARBAGE.map(|garbage| (field.clone(), garbage)))
        {
            let what = format!("{key} {field} {garbage:?}");
            caller.command(&["FLUSHALL"]);
            put_in_use(&mut caller, "b", &owners, is_mutex);
            caller.call(&[&acquire("a", owners[0]), &acquire("c", owners[0])]);
            caller.command(&["HSET", &key, &field, garbage]);
            others_are_served(&mut caller, owners[0], &what);
        }
    }
    for garbage in GARBAGE {
        let held =
            "1794768132030839+1794768132030839 00030000 0123456789abcdef0123456789abcdef client";
        for text in [garbage.to_owned(), format!("{held} {garbage}"), held.replace(' ', garbage)] {
            caller.command(&["FLUSHALL"]);
            caller.call(&[&acquire("a", owners[0]), &acquire("c", owners[0])]);
            caller.command(&["SET", &key, &text]);
            others_are_served(&mut caller, owners[0], &text);
        }
    }
}

/// Every operation on the locks before and after it succeeds.
fn others_are_served(caller: &mut Caller, owner: Owner, what: &str) {
    let all = ["a", "b", "c"];
    let check = |lines: Vec<String>, expected: &str| {
        assert_eq!(lines.len(), 3, "{what}: {lines:?}");
        for line in [&lines[0], &lines[2]] {
            assert!(line.starts_with(expected), "{what}: {lines:?}");
        }
    };
    let names = all.map(name);
    let reply = caller.run(&scripts::INSPECT, &names.each_ref(), |command| {
        ["9", "9"].iter().for_each(|most| command.push(most));
    });
    let infos = reply.array().unwrap_or_else(|| panic!("{what}: {reply:?}"));
    assert!(infos[1].array().is_some() && infos[3].array().is_some(), "{what}: {infos:?}");
    if let Reply::Error(error) = &infos[2] {
        assert!(error.contains(&keys::lock_key(&names[1])), "it is named: {error}");
    }
    check(caller.call(&all.map(|it| renewal(it, owner)).each_ref()), "1");
    check(caller.call(&all.map(|it| acquire(it, owner)).each_ref()), "1 ");
    check(caller.call(&all.map(|it| release(it, owner)).each_ref()), "0");
    check(caller.call(&all.map(|it| cancel(it, owner)).each_ref()), "0");
}

/// I7: the waiters behind it are served.
fn garbage_about_one_waiter_does_not_stop_the_queue(server: &Server) {
    let mut caller = Caller::new(server);
    let owners: [Owner; 3] = std::array::from_fn(|_| Owner::new());
    put_in_use(&mut caller, "b", &owners, true);
    caller.command(&["HSET", &keys::lock_key(&name("b")), "q1", "garbage"]);
    assert_eq!(caller.call(&[&release("b", owners[0])]), ["0"]);
    let line = &caller.call(&[&waiting(acquire("b", owners[2]))])[0];
    assert!(line.starts_with("1 "), "{line}");
}

/// Its record was deleted: the permits are free when the lease ends, and its renewal fails.
fn a_holder_without_a_record_does_not_occupy_the_lock(server: &Server) {
    let mut caller = Caller::new(server);
    let [first, second] = std::array::from_fn(|_| Owner::new());
    caller.call(&[&permits(acquire("x", first), 3)]);
    caller.command(&["HDEL", &keys::lock_key(&name("x")), &format!("h{first}")]);
    assert_eq!(caller.call(&[&renewal("x", first)]), ["0"], "its renewal fails");
    caller.pass(Duration::from_secs(31));
    let line = &caller.call(&[&permits(acquire("x", second), 3)])[0];
    assert!(line.starts_with("1 "), "{line}");
}

/// A lock in use that a client of the first layout wrote is refused to clients of this one, and the other way round;
/// the fence of a free one is taken over. I1, I4.
fn a_lock_of_the_first_layout_is_refused(server: &Server) {
    let mut caller = Caller::new(server);
    let (owner, key) = (Owner::new(), keys::lock_key(&name("x")));
    let fence = "1894768132030839";
    caller.command(&["HSET", &key, "f", fence]);
    let line = caller.call(&[&acquire("x", owner)]).remove(0);
    assert!(line.starts_with("1 1894768132030840 "), "the next one: {line}");
    let held = "0123456789abcdef0123456789abcdef 1794768132030839 00030000";
    for fields in [&["o", held, "c", "client"][..], &["s", "r9 0 0 1 1794768132030839 0 0 0"]] {
        caller.command(&["DEL", &key]);
        caller.command(&[&["HSET", &key, "f", fence], fields].concat());
        let line = caller.call(&[&acquire("x", owner)]).remove(0);
        assert!(line.starts_with("-DAMAGED"), "{line}");
    }
    // For clients of the first layout, this state is a lock that they cannot parse.
    caller.command(&["FLUSHALL"]);
    caller.call(&[&acquire("x", owner)]);
    caller.call(&[&waiting(acquire("x", Owner::new()))]);
    let state = convert(caller.command(&["HGET", &key, "s"]));
    assert!(state.text().unwrap().starts_with("2 "), "{state:?}");
}

/// If it were believed, it would end every lease. I1.
fn a_time_that_no_clock_shows_is_refused(server: &Server) {
    let mut caller = Caller::new(server);
    let [first, second] = std::array::from_fn(|_| Owner::new());
    let key = keys::lock_key(&name("x"));
    for (field, text) in [
        ("s", "2 m1 1 1 1 9999999999999999 0"),
        ("s", "2 m1 1 1 1 0 9999999999999999"),
        ("p", "1 0 0 0 9999999999999999"),
        ("u", "0 0 9999999999999999 0 0"),
        ("x", "9999999999999999 record"),
        ("o", "0123456789abcdef0123456789abcdef 9999999999999999 00030000"),
    ] {
        caller.command(&["FLUSHALL"]);
        caller.call(&[&acquire("x", first)]);
        caller.call(&[&waiting(acquire("x", second))]);
        caller.command(&["HSET", &key, field, text]);
        let line = &caller.call(&[&acquire("x", second)])[0];
        assert!(line.starts_with("-DAMAGED"), "{field} {text}: {line}");
    }
}

/// Above 2^53 the next fence would be the same; just below the limit, every later acquire would be refused. I4.
fn fences_that_are_too_large_are_refused(server: &Server) {
    let mut caller = Caller::new(server);
    for fence in
        ["9007199253740990", "9007199254740990", "9999999999999998", "99999999999999999999"]
    {
        for words in [&["SET", "", fence][..], &["HSET", "", "f", fence]] {
            let key = keys::lock_key(&name("x"));
            caller.command(&["DEL", &key]);
            let words: Vec<_> =
                words.iter().map(|it| if it.is_empty() { &key } else { *it }).collect();
            caller.command(&words);
            let line = &caller.call(&[&acquire("x", Owner::new())])[0];
            assert!(line.starts_with("-DAMAGED"), "{fence}: {line}");
        }
    }
}

/// Such a text was taken for the fence of a free lock.
fn a_text_as_long_as_a_fence_is_not_written_over(server: &Server) {
    let mut caller = Caller::new(server);
    let key = keys::lock_key(&name("x"));
    let numbers = ["-000000000000042", "0x0000000000abcd", "1234567.89012345", "1e5             "];
    for text in numbers.into_iter().chain(["nan             ", " 00000000000042 "]) {
        caller.command(&["SET", &key, text]);
        for request in [acquire("x", Owner::new()), permits(acquire("x", Owner::new()), 1)] {
            let line = caller.call(&[&request]).remove(0);
            assert!(line.starts_with("-DAMAGED"), "{text:?}: {line}");
        }
        assert_eq!(caller.command(&["GET", &key]).text().as_deref(), Some(text));
    }
}
