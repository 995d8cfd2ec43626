//! `tenure elect`.

use std::process::Stdio;

use crate::fixture::{Fixture, Holder, WAITS};

on_every_store! {
    a_command_runs_while_it_leads,
    a_leader_that_is_deposed_is_ended,
    a_leader_says_what_it_does,
    bad_terms_are_refused,
}

/// R27: one leads at a time; the next follows when it ends.
fn a_command_runs_while_it_leads(fixture: &Fixture) {
    let terms = ["--lease", "6s", "--renew-deadline", "4s", "--candidate", "one"];
    let first = [&["elect"], &terms[..], &["x", "--", "sh", "-c", WAITS]].concat();
    let first = Holder::start(fixture, &first);
    let mut second = fixture.tenure(&["elect", "--candidate", "two", "x", "--", "echo", "second"]);
    let second = second.stdout(Stdio::piped()).spawn().unwrap();
    fixture.until_waiting("x", 1);
    let lock = fixture.json(&["show", "--json", "x"]);
    assert_eq!(lock["holders"][0]["about"]["note"], "one");
    assert_eq!(lock["waiters"][0]["about"]["note"], "two");
    assert!((1..=6_000).contains(&lock["holders"][0]["lease_left_ms"].as_u64().unwrap()));
    first.stop();
    let second = second.wait_with_output().unwrap();
    assert_eq!((second.status.code(), &*second.stdout), (Some(0), &b"second\n"[..]));
}

/// R26.
fn a_leader_that_is_deposed_is_ended(fixture: &Fixture) {
    let leader = Holder::start(fixture, &["elect", "x", "--", "sh", "-c", WAITS]);
    fixture.said(&["release", "--force", "x", "--reason", "a test", "--yes"]);
    let (code, told) = leader.end();
    assert_eq!(code, 76);
    assert!(told.starts_with("tenure: `x` was lost: its release was forced by "), "{told}");
    assert!(told.ends_with(": a test\n"), "{told}");
    assert_eq!(fixture.code(&["elect", "x", "--", "sh", "-c", "exit 7"]), 7);
    assert_eq!(fixture.code(&["elect", "x", "--", "/no/such/program"]), 127);
}

fn a_leader_says_what_it_does(fixture: &Fixture) {
    let output = fixture.output(&["elect", "--verbose", "x", "--", "true"]);
    let told = String::from_utf8(output.stderr).unwrap();
    let [leading, resigning] = told.lines().collect::<Vec<_>>()[..] else { panic!("{told}") };
    assert!(leading.starts_with("tenure: leading `x` with fence "), "{told}");
    assert_eq!(resigning, "tenure: resigning from `x`");
}

fn bad_terms_are_refused(fixture: &Fixture) {
    let told = fixture.refused(64, &["elect", "--renew-deadline", "20s", "x", "--", "true"]);
    let sentence =
        "tenure: the renew deadline must be below the lease of 15s and at least half of it";
    assert!(told.starts_with(sentence), "{told}");
    assert!(fixture.refused(64, &["elect", "x"]).contains("required"));
    assert_eq!(fixture.said(&["elect", "--lease", "1m", "x", "--", "echo", "led"]), "led\n");
}
