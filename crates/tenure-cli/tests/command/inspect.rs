//! `tenure ls`, `show` and `watch`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::fixture::{Fixture, Holder, WAITS};

on_every_store! {
    locks_are_listed,
    a_lock_is_shown,
    changes_are_followed,
    hostile_names_do_nothing_to_a_terminal,
}

/// R29: locks and holders, for users and for programs.
fn locks_are_listed(fixture: &Fixture) {
    assert_eq!(fixture.json(&["ls", "--json"]), json!({ "locks": [], "more": false }));
    fixture.said(&["acquire", "--note", "migration 7", "deploy/a"]);
    fixture.said(&["acquire", "--limit", "3", "deploy/b"]);
    fixture.said(&["acquire", "other"]);
    let list = fixture.said(&["ls", "deploy/"]);
    let lines: Vec<_> = list.lines().collect();
    let head: Vec<_> =
        lines[0].split("  ").map(str::trim).filter(|word| !word.is_empty()).collect();
    let words = ["NAME", "KIND", "HOLDER", "HELD FOR", "LEASE LEFT", "WAITERS", "FENCE"];
    assert_eq!((lines.len(), &head[..]), (3, &words[..]), "{list}");
    assert!(lines[1].contains("deploy/a") && lines[1].contains("(migration 7)"), "{list}");
    assert!(lines[2].contains("deploy/b") && lines[2].contains("semaphore"), "{list}");
    let output = fixture.output(&["ls", "--json", "--limit", "2"]);
    let some: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<_> = some["locks"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["deploy/a", "deploy/b"]);
    assert_eq!(some["more"], true);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(message, "tenure: there are more: raise --limit, or give a prefix\n");
}

/// R14, R29: the holder, since when, from where, with which note, and the waiters.
fn a_lock_is_shown(fixture: &Fixture) {
    assert_eq!(fixture.said(&["show", "x"]), "x: free\n");
    let free = json!({
        "name": "x", "kind": null, "limit": 0, "holding": 0, "holders": [], "waiting": 0,
        "waiters": [], "forced": null, "trouble": null, "disagreement": null,
    });
    assert_eq!(fixture.json(&["show", "--json", "x"]), free);
    let note = ["run", "--note", "migration 7", "--lease", "20s", "x", "--", "sh", "-c", WAITS];
    let holder = Holder::start(fixture, &note);
    let mut waiting =
        fixture.tenure(&["run", "--note", "me too", "x", "--", "true"]).spawn().unwrap();
    fixture.until_waiting("x", 1);

    let lock = fixture.json(&["show", "--json", "x"]);
    assert_eq!((&lock["kind"], &lock["limit"]), (&"mutex".into(), &1.into()));
    assert_eq!(lock["holding"], 1);
    let held = &lock["holders"][0];
    assert_eq!(held["about"]["note"], "migration 7");
    assert_eq!(held["about"]["program"], "sh", "the command's program");
    assert!(held["about"]["host"].is_string(), "{lock}");
    assert_eq!(held["about"]["pid"], holder.id(), "it passes signals on to the command");
    assert_eq!((&held["permits"], &held["entries"]), (&1.into(), &1.into()));
    assert!(held["fence"].as_u64().unwrap() > 1_700_000_000_000_000, "{lock}");
    assert!(held["since_ms"].as_u64().unwrap() > 1_700_000_000_000, "{lock}");
    assert!((1..=20_000).contains(&held["lease_left_ms"].as_u64().unwrap()), "{lock}");
    let waiter = &lock["waiters"][0];
    assert_eq!((&waiter["about"]["note"], &waiter["permits"]), (&"me too".into(), &1.into()));
    assert_eq!(waiter["about"]["pid"], waiting.id());

    let shown = fixture.said(&["show", "x"]);
    let lines: Vec<_> = shown.lines().collect();
    assert_eq!(lines[0], "x: mutex");
    assert!(lines[1].starts_with("  held by sh[") && lines[1].ends_with("(migration 7)"));
    assert!(lines[2].starts_with("    since ") && lines[2].contains(" ago, lease left 1"));
    let owner = held["owner"].as_str().unwrap();
    assert_eq!(lines[3], format!("    owner {owner}, fence {}", held["fence"]));
    assert_eq!(lines[4], "  1 waiting");
    assert!(lines[5].starts_with("    1. true[") && lines[5].contains("(me too), for "));
    holder.stop();
    assert!(waiting.wait().unwrap().success());
}

/// Five hours behind, without a database of zones.
pub(crate) const ZONE: &str = "EST5";

/// R29: changes are shown as they happen.
fn changes_are_followed(fixture: &Fixture) {
    let watch = |form: &[&str]| {
        let arguments = [&["watch", "--interval", "20ms"], form, &["jobs/"]].concat();
        let mut command = fixture.tenure(&arguments);
        let mut child = command.env("TZ", ZONE).stdout(Stdio::piped()).spawn().unwrap();
        let lines = Lines(BufReader::new(child.stdout.take().unwrap()));
        (child, lines)
    };
    let (mut people, mut sentences) = watch(&[]);
    let (mut programs, mut objects) = watch(&["--json"]);
    let handle = fixture.said(&["acquire", "--note", "run 7", "jobs/a"]);
    let line = sentences.after_time();
    assert!(line.starts_with("jobs/a: held by ") && line.contains("(run 7)"), "{line}");
    assert!(line.ends_with("; 0 waiting\n"), "{line}");
    let object: Value = serde_json::from_str(&objects.next()).unwrap();
    assert_eq!((&object["name"], &object["kind"]), (&"jobs/a".into(), &"mutex".into()));
    assert_eq!(object["holders"][0]["about"]["note"], "run 7");

    fixture.said(&["acquire", "other"]);
    fixture.said(&["release", handle.trim()]);
    assert_eq!(sentences.after_time(), "jobs/a: free\n");
    let mut object: Value = serde_json::from_str(&objects.next()).unwrap();
    let at = object.as_object_mut().unwrap().remove("at_ms").unwrap();
    assert!(at.as_u64().unwrap() > 1_700_000_000_000, "{at}");
    let free = json!({ "name": "jobs/a", "kind": null, "holding": 0, "holders": [], "waiting": 0 });
    assert_eq!(object, free);
    for watching in [&mut people, &mut programs] {
        watching.kill().unwrap();
        watching.wait().unwrap();
    }
}

/// After a restart of the server, `watch` goes on.
#[test]
fn a_store_that_comes_back_is_followed_on() {
    let mut fixture = Fixture::redis();
    let mut command = fixture.tenure(&["watch", "--interval", "20ms"]);
    let mut child =
        command.env("TZ", ZONE).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = Lines(BufReader::new(child.stdout.take().unwrap()));
    let mut talk = BufReader::new(child.stderr.take().unwrap());
    fixture.said(&["acquire", "x"]);
    assert!(lines.after_time().starts_with("x: held by "));
    fixture.server().kill();
    let mut message = String::new();
    talk.read_line(&mut message).unwrap();
    assert!(message.starts_with("tenure: "), "{message}");
    fixture.server().restart();
    assert_eq!(lines.after_time(), "x: free\n");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The output of a command, line by line.
pub(crate) struct Lines(pub(crate) BufReader<ChildStdout>);

impl Lines {
    fn next(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    /// The text behind the time: in New York, where these tests run `watch`.
    pub(crate) fn after_time(&mut self) -> String {
        let line = self.next();
        let (time, rest) = line.split_once(' ').unwrap();
        let shape: String =
            time.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
        assert_eq!(shape, "9999-99-99T99:99:99-99:99", "{line}");
        rest.to_owned()
    }
}

/// Foreign names and notes are hostile text: they must not move the cursor, forge a line, or reorder text.
fn hostile_names_do_nothing_to_a_terminal(fixture: &Fixture) {
    let name = "x\u{1b}[2J\u{202e}\u{2066}\u{61c}\ny";
    let note = "a\r\u{7}\u{9b}\u{200b}b\u{2028}";
    let is_tame = |c: char| c == '\n' || c.is_ascii_graphic() || c == ' ';
    let tame = |message: &str| {
        assert!(message.chars().all(is_tame), "{message:?}");
        assert!(message.contains(r"x\u{1b}[2J\u{202e}\u{2066}\u{61c}"), "{message:?}");
    };
    let handle = fixture.said(&["acquire", "--note", note, name]);
    tame(&fixture.said(&["ls"]));
    tame(&fixture.said(&["show", name]));
    let list = fixture.json(&["ls", "--json"]);
    assert_eq!(list["locks"][0]["name"], name, "programs get it as it is");
    assert_eq!(list["locks"][0]["holders"][0]["about"]["note"], note);
    let mut watching = fixture.tenure(&["watch"]).stdout(Stdio::piped()).spawn().unwrap();
    tame(&Lines(BufReader::new(watching.stdout.take().unwrap())).next());
    watching.kill().unwrap();
    watching.wait().unwrap();

    tame(&fixture.refused(75, &["run", "-n", name, "--", "true"]));
    tame(&fixture.refused(75, &["run", "-w", "1s", name, "--", "true"]));
    tame(&fixture.refused(75, &["acquire", "-n", name]));
    tame(&fixture.refused(64, &["run", "-s", "-n", name, "--", "true"]));
    fixture.said(&["release", handle.trim()]);
    tame(&fixture.refused(76, &["release", handle.trim()]));
    tame(&fixture.refused(76, &["renew", handle.trim()]));
    tame(&fixture.refused(75, &["release", "--force", name, "--reason", "r", "--yes"]));
    tame(&fixture.refused(0, &["run", "-v", name, "--", "true"]));
    tame(&fixture.refused(127, &["run", "y", "--", name]));

    let mut holder = Holder::start(fixture, &["run", name, "--", "sh", "-c", WAITS]);
    fixture.said(&["release", "--force", name, "--reason", name, "--yes"]);
    tame(&holder.sentence());
    assert_eq!(holder.end(), (76, String::new()));
    tame(&fixture.said(&["show", name]));
}

/// A damaged record of the store: `ls` and `watch` go on with the others, and name the lock.
#[test]
fn a_lock_that_cannot_be_read_hides_no_other() {
    let fixture = Fixture::local();
    for name in ["a", "bad", "c"] {
        fixture.said(&["acquire", name]);
    }
    let data = format!("{}/data.mdb", fixture.url.strip_prefix("local://").unwrap());
    let mut bytes = fs::read(&data).unwrap();
    // Behind the key comes the record, and first in it its version.
    let records =
        bytes.windows(4).enumerate().filter(|(_, it)| it == b"lbad").map(|(at, _)| at + 4);
    let records: Vec<_> = records.collect();
    records.into_iter().for_each(|at| bytes[at] = 255);
    fs::write(&data, bytes).unwrap();

    let output = fixture.output(&["ls"]);
    let (list, message) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let begins: Vec<_> =
        list.lines().skip(1).filter_map(|it| it.split_whitespace().next()).collect();
    assert_eq!(begins, ["a", "bad", "c"], "{list}");
    assert!(list.contains("unreadable"), "{list}");
    assert!(
        message.starts_with("tenure: `bad` cannot be read: the record of `bad` in "),
        "{message}"
    );
    let output = fixture.output(&["ls", "--json"]);
    let locks = serde_json::from_slice::<Value>(&output.stdout).unwrap()["locks"].take();
    assert!(locks[1]["trouble"].as_str().unwrap().contains("`bad`"), "{locks}");
    assert_eq!((&locks[0]["trouble"], &locks[1]["kind"]), (&Value::Null, &Value::Null));
    let message = fixture.refused(69, &["show", "bad"]);
    assert!(message.contains("the record of `bad`"), "{message}");
    assert!(fixture.said(&["show", "c"]).contains("c: mutex"));

    let mut watch = fixture.tenure(&["watch"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let lines: Vec<_> = lines.take(3).map(Result::unwrap).collect();
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert!(lines[1].contains("bad: unknown: the record of `bad`"), "{lines:?}");
    assert!(lines[2].contains("c: held by"), "{lines:?}");
}
