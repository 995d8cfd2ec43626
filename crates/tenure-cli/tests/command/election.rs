//! `tenure elect`.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use crate::fixture::{Fixture, Holder, WAITS, pass};

on_every_store! {
    a_command_runs_while_it_leads,
    a_leader_that_is_deposed_is_ended,
    a_leader_says_what_it_does,
    bad_terms_are_refused,
    a_candidate_waits_for_as_long_as_it_says,
    a_leader_that_is_deposed_may_stand_again,
}

fn a_candidate_waits_for_as_long_as_it_says(fixture: &Fixture) {
    let leader = Holder::start(fixture, &["elect", "x", "--", "sh", "-c", WAITS]);
    let message = fixture.refused(75, &["elect", "-n", "x", "--", "true"]);
    assert!(message.starts_with("tenure: `x` is not free: held by sh["), "{message}");
    let message = fixture.refused(9, &["elect", "-w", "1s", "-E", "9", "x", "--", "true"]);
    assert!(message.starts_with("tenure: `x` was not free within 1 s: held by sh["), "{message}");
    leader.stop();
    assert_eq!(fixture.code(&["elect", "-w", "10s", "x", "--", "true"]), 0);
    assert_eq!(fixture.code(&["elect", "-n", "x", "--", "true"]), 0);
}

/// R26, R27: the command is ended, and runs anew when its candidate leads again.
fn a_leader_that_is_deposed_may_stand_again(fixture: &Fixture) {
    let mut leader =
        Holder::start(fixture, &["elect", "-v", "--stand-again", "x", "--", "sh", "-c", WAITS]);
    for _ in 0..2 {
        fixture.said(&["release", "--force", "x", "--reason", "a test", "--yes"]);
        assert_eq!(leader.line(), "held\n");
    }
    leader.signal(Signal::TERM);
    let (code, message) = leader.end();
    assert_eq!(
        (code, message.matches("tenure: standing for `x` again\n").count()),
        (128 + 15, 2),
        "{message}"
    );
    assert_eq!(
        message.matches("tenure: `x` was lost: its release was forced by ").count(),
        2,
        "{message}"
    );
}

/// Also after an outage of the store that is longer than the default patience.
#[test]
fn a_candidate_stands_again_after_an_outage() {
    let mut fixture = Fixture::redis();
    let terms = ["elect", "--stand-again", "--lease", "2s", "x", "--", "sh", "-c", WAITS];
    let mut leader = Holder::start(&fixture, &terms);
    fixture.server().kill();
    assert!(leader.sentence().contains("`x` is being lost"));
    pass(Duration::from_secs(7));
    fixture.server().restart();
    assert_eq!(leader.line(), "held\n");
    leader.signal(Signal::TERM);
    assert_eq!(leader.end().0, 128 + 15);
}

/// R27: one candidate leads at a time; the next one follows when it ends.
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
    let (code, message) = leader.end();
    assert_eq!(code, 76);
    assert!(message.starts_with("tenure: `x` was lost: its release was forced by "), "{message}");
    assert!(message.ends_with(": a test\n"), "{message}");
    assert_eq!(fixture.code(&["elect", "x", "--", "sh", "-c", "exit 7"]), 7);
    assert_eq!(fixture.code(&["elect", "x", "--", "/no/such/program"]), 127);
}

fn a_leader_says_what_it_does(fixture: &Fixture) {
    let output = fixture.output(&["elect", "--verbose", "x", "--", "true"]);
    let message = String::from_utf8(output.stderr).unwrap();
    let [leading, resigning] = message.lines().collect::<Vec<_>>()[..] else { panic!("{message}") };
    assert!(leading.starts_with("tenure: leading `x` with fence "), "{message}");
    assert_eq!(resigning, "tenure: resigning from `x`");
}

fn bad_terms_are_refused(fixture: &Fixture) {
    let message = fixture.refused(64, &["elect", "--renew-deadline", "20s", "x", "--", "true"]);
    let sentence =
        "tenure: the renew deadline must be below the lease of 15s and at least half of it";
    assert!(message.starts_with(sentence), "{message}");
    assert!(fixture.refused(64, &["elect", "x"]).contains("required"));
    assert_eq!(fixture.said(&["elect", "--lease", "1m", "x", "--", "echo", "led"]), "led\n");
}
