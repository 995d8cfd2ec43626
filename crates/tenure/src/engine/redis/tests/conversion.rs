//! A lock's string becomes a hash when it is entered twice, waited for, lingers or is forced: atomically.

use tenure_testkit::Server;
use tenure_testkit::resp::Reply as Plain;

use super::answers::{acquire, name, permits, release, renewal, waiting};
use super::caller::Caller;
use super::*;

on_every_server!(
    a_string_that_cannot_become_a_hash_stays_unchanged,
    a_key_left_beside_a_lock_does_not_become_part_of_it,
);

fn key() -> String {
    keys::lock_key(&name("x"))
}

fn kept(caller: &mut Caller) -> i64 {
    match caller.command(&["PTTL", &key()]) {
        Plain::Integer(left) => left,
        other => panic!("{other:?}"),
    }
}

/// The user lacked a permission: the half-built hash stayed for ever, became part of the next one, and a live
/// hold was lost by it; or the expiry of the key was set to a day. I3, I6.
fn a_string_that_cannot_become_a_hash_stays_unchanged(server: &Server) {
    for right in ["rename", "hset"] {
        let mut caller = Caller::new(server);
        let [holder, waiter] = std::array::from_fn(|_| Owner::new());
        caller.call(&[&acquire("x", holder)]);
        let (state, lease) = (caller.state(), kept(&mut caller));
        caller.command(&["ACL", "SETUSER", "default", &format!("-{right}")]);
        let again = Entry { owner: holder, number: 1 };
        let linger = Duration::from_secs(5);
        for line in [
            caller.call(&[&AcquireRequest { entry: again, ..acquire("x", holder) }]).remove(0),
            caller.call(&[&ReleaseRequest { linger, ..release("x", holder) }]).remove(0),
            caller.call(&[&waiting(acquire("x", waiter))]).remove(0),
        ] {
            assert!(line.starts_with('-'), "without {right}: {line}");
            assert_eq!(caller.state(), state, "without {right}");
        }
        let answer = caller.run(&scripts::FORCE, &[&name("x")], |command| {
            ["", "host 1 program why", "60000"].iter().for_each(|it| command.push(it));
        });
        assert!(matches!(answer, Reply::Error(_)), "{answer:?}");
        assert_eq!(caller.state(), state, "without {right}");
        let left = kept(&mut caller);
        assert!((1..=lease).contains(&left), "without {right}: {left} ms");
        assert!(caller.receiver.read().is_err(), "no client was notified");
        // With the permission, everything works as if nothing had happened.
        caller.command(&["ACL", "SETUSER", "default", &format!("+{right}")]);
        assert!(caller.call(&[&waiting(acquire("x", waiter))])[0].starts_with("2 0 "));
        assert_eq!(caller.call(&[&renewal("x", holder)]), ["1"]);
        assert_eq!(caller.call(&[&release("x", holder)]), ["0"]);
    }
}

/// I3: the live hold was taken for one that lingers, and its renewal answered that it was lost.
fn a_key_left_beside_a_lock_does_not_become_part_of_it(server: &Server) {
    let beside = format!("{}:new", key());
    let left_by_tenure = ["HSET", &beside, "s", "2 m1 0 0 1 0 0", "n", "", "x", "junk"];
    for left in [&left_by_tenure[..], &["HSET", &beside, "n", ""], &["SET", &beside, "theirs"]] {
        for is_shared in [false, true] {
            let mut caller = Caller::new(server);
            let [holder, next] = std::array::from_fn(|_| Owner::new());
            let request = |owner| match is_shared {
                true => permits(acquire("x", owner), 3),
                false => waiting(acquire("x", owner)),
            };
            // The string: a fence, if the lock will be shared, and otherwise a holder.
            caller.call(&[&acquire("x", holder)]);
            if is_shared {
                caller.call(&[&release("x", holder)]);
            }
            caller.command(left);
            let line = caller.call(&[&request(if is_shared { holder } else { next })]).remove(0);
            assert!(line.starts_with(if is_shared { "1 " } else { "2 " }), "{left:?}: {line}");
            assert_eq!(caller.command(&["EXISTS", &beside]), Plain::Integer(0), "{left:?}");
            assert_eq!(caller.call(&[&renewal("x", holder)]), ["1"], "{left:?}");
            let junk = caller.command(&["HMGET", &key(), "n", "x"]);
            assert_eq!(junk, Plain::Array(Some(vec![Plain::Bulk(None); 2])), "{left:?}");
        }
    }
}
