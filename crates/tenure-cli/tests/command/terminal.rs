//! Messages and questions at a terminal.

use std::process::Stdio;

use crate::fixture::{Fixture, Holder, WAITS};
use crate::screen::Screen;

on_every_store! {
    a_waiting_command_shows_who_is_ahead,
    a_waiting_candidate_shows_who_leads,
    a_plain_terminal_gets_plain_text,
    a_forced_release_is_typed_at_the_terminal,
}

/// A command that waits for `x`, with its messages on the screen.
fn waiting(fixture: &Fixture, screen: &Screen, variables: &[(&str, &str)]) -> std::process::Child {
    waiting_to("run", fixture, screen, variables)
}

fn waiting_to(
    subcommand: &str,
    fixture: &Fixture,
    screen: &Screen,
    variables: &[(&str, &str)],
) -> std::process::Child {
    let mut command = fixture.tenure(&[subcommand, "x", "--", "echo", "ran"]);
    command.env("TERM", "xterm").env_remove("NO_COLOR").envs(variables.iter().copied());
    command.stdout(Stdio::piped()).stderr(screen.end()).spawn().unwrap()
}

fn ran(child: std::process::Child) {
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"ran\n"[..]));
}

/// R28: the holder and the number of waiters ahead, on one line that is cleared when the lock is acquired.
fn a_waiting_command_shows_who_is_ahead(fixture: &Fixture) {
    let note = "migration\u{202e}\u{1b}[31m 7";
    let handle = fixture.said(&["acquire", "--note", note, "x"]);
    let (first, second) = (Screen::new(), Screen::new());
    let early = waiting(fixture, &first, &[]);
    fixture.until_waiting("x", 1);
    let late = waiting(fixture, &second, &[("NO_COLOR", "1")]);
    first.until("next in line");
    second.until("1 ahead in line");
    for seen in [first.seen(), second.seen()] {
        assert!(seen.contains("waiting for `x`, ") && seen.contains(": held by "), "{seen:?}");
        assert!(seen.contains(r"(migration\u{202e}\u{1b}[31m 7) for "), "{seen:?}");
        assert!(!has_colour(&seen), "{seen:?}");
    }
    fixture.said(&["release", handle.trim()]);
    ran(early);
    ran(late);
}

fn a_waiting_candidate_shows_who_leads(fixture: &Fixture) {
    let leader =
        Holder::start(fixture, &["elect", "--candidate", "one", "x", "--", "sh", "-c", WAITS]);
    let screen = Screen::new();
    let candidate = waiting_to("elect", fixture, &screen, &[]);
    screen.until("waiting for `x`, next in line: held by sh[");
    screen.until("(one) for ");
    leader.stop();
    ran(candidate);
}

/// Whether text is coloured or bold: an escape sequence that ends with an m.
fn has_colour(text: &str) -> bool {
    text.split("\u{1b}[").skip(1).any(|rest| {
        rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').starts_with('m')
    })
}

/// No colour where none is wanted, and no escape sequence at all on a dumb terminal.
fn a_plain_terminal_gets_plain_text(fixture: &Fixture) {
    let handle = fixture.said(&["acquire", "x"]);
    let screen = Screen::new();
    let dumb = waiting(fixture, &screen, &[("TERM", "dumb")]);
    screen.until("waiting for `x`, next in line: held by ");
    assert!(!screen.seen().contains('\u{1b}'), "{:?}", screen.seen());
    fixture.said(&["release", handle.trim()]);
    ran(dumb);
    let cases = [
        (Some("xterm"), None, true),
        (Some("dumb"), None, false),
        (None, None, false),
        (Some("xterm"), Some("1"), false),
    ];
    // The variable CI promises colours; it does not make a terminal understand them.
    for ci in [None, Some("true")] {
        for (term, no_color, is_coloured) in cases {
            let screen = Screen::new();
            let mut command = fixture.tenure(&["run", "--help"]);
            for foreign in ["TERM", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"] {
                command.env_remove(foreign);
            }
            command.envs(term.map(|term| ("TERM", term)));
            command.envs(no_color.map(|no_color| ("NO_COLOR", no_color)));
            command.envs(ci.map(|ci| ("CI", ci)));
            command.stdout(screen.end()).spawn().unwrap().wait().unwrap();
            screen.until("Print help");
            let message = format!("TERM={term:?} NO_COLOR={no_color:?} CI={ci:?}");
            assert_eq!(has_colour(&screen.seen()), is_coloured, "{message}");
        }
    }
}

/// R13: the name of the lock must be typed again.
fn a_forced_release_is_typed_at_the_terminal(fixture: &Fixture) {
    let handle = fixture.said(&["acquire", "deploy/a"]);
    let script = "tenure release --force deploy/a --reason 'it hung'; echo code=$?";
    for (typed, code) in [("deploy/b\n", "code=64"), ("\n", "code=64"), ("deploy/a\n", "code=0")] {
        assert_eq!(fixture.code(&["renew", handle.trim()]), 0, "it is held so far");
        let mut screen = Screen::new();
        let mut session = screen.session(fixture, &["sh", "-c", script]);
        screen.until("tenure: this takes `deploy/a` away, held by ");
        screen.press(typed);
        screen.until(code);
        session.wait().unwrap();
        let is_refused = screen.seen().contains("nothing was done: the name was not confirmed");
        assert_eq!(is_refused, code != "code=0", "{:?}", screen.seen());
    }
    assert_eq!(fixture.code(&["renew", handle.trim()]), 76);
}
