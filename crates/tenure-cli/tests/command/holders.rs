//! Holders in lists: by name, on every terminal, many of them, and beside foreign keys.

use std::io::BufReader;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::fixture::{Fixture, Holder, WAITS};
use crate::inspect::{Lines, ZONE};
use crate::screen::Screen;

on_every_store! {
    a_lock_without_a_process_names_none,
    a_list_fits_the_terminal,
    many_holders_are_counted,
}

/// A lock that outlives the command that acquired it shows no pid, because that process has ended. It shows the
/// program and the user that ran it.
fn a_lock_without_a_process_names_none(fixture: &Fixture) {
    let by_script = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script, env!("CARGO_BIN_EXE_tenure")]).stdin(Stdio::null());
        shell.env("TENURE_URL", &fixture.url).env("USER", "ann").env_remove("REDIS_URL");
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    by_script("\"$0\" acquire x; :");
    let shown = fixture.said(&["show", "x"]);
    assert!(shown.contains("  held by sh of ann@"), "{shown}");
    let about = fixture.json(&["show", "--json", "x"])["holders"][0]["about"].take();
    assert_eq!((&about["program"], &about["pid"]), (&"sh of ann".into(), &Value::Null));
    by_script("\"$0\" release --force x --reason 'it hung' --yes; :");
    let shown = fixture.said(&["show", "x"]);
    assert!(shown.contains(" ago by sh of ann@") && shown.contains(": it hung\n"), "{shown}");
    // The lock is released, and lingers.
    by_script("\"$0\" run --at-least 1h --once-per 1h kept -- true");
    for name in ["kept", "tenure-once/kept"] {
        let shown = fixture.said(&["show", name]);
        assert!(shown.contains("  held by true@"), "{shown}");
        let about = fixture.json(&["show", "--json", name])["holders"][0]["about"].take();
        assert_eq!((&about["program"], &about["pid"]), (&"true".into(), &Value::Null));
    }
}

/// A list fits the terminal: the least important columns are omitted, and long values are cut. Piped output is
/// complete.
fn a_list_fits_the_terminal(fixture: &Fixture) {
    let long =
        "a/name/that/is/too/long/for/every/terminal/that/is/looked/at/here/and/for/many/others";
    fixture.said(&["acquire", "--note", "a note that is too long, as well", long]);
    let holder = Holder::start(fixture, &["run", "deploy/a", "--", "sh", "-c", WAITS]);
    for (columns, head) in [
        (300, "NAME KIND HOLDER HELD FOR LEASE LEFT WAITERS FENCE"),
        (80, "NAME KIND HOLDER HELD FOR LEASE LEFT WAITERS"),
        (40, "NAME HOLDER HELD FOR"),
        (20, "NAME HOLDER"),
    ] {
        let screen = Screen::wide(columns);
        let mut command = fixture.tenure(&["ls"]);
        assert!(command.stdout(screen.end()).status().unwrap().success());
        screen.until("deploy");
        let seen = screen.seen();
        let lines: Vec<_> = seen.lines().collect();
        assert_eq!(lines.len(), 3, "{columns}: {seen}");
        let words: Vec<_> = lines[0].split_whitespace().collect();
        assert_eq!(words.join(" "), head, "{columns}");
        for line in &lines {
            assert!(line.chars().count() <= columns.into(), "{columns}: {line:?}");
        }
        assert_eq!(lines[1].contains('…'), columns < 300, "{columns}: {seen}");
    }
    let piped = fixture.said(&["ls"]);
    assert!(piped.contains(long) && piped.contains("FENCE") && !piped.contains('…'), "{piped}");
    holder.stop();
}

/// Of many holders a list shows some, and counts all. For `watch` a renewal is no change.
fn many_holders_are_counted(fixture: &Fixture) {
    let mut handles = Vec::new();
    for _ in 0..12 {
        handles.push(fixture.said(&["acquire", "--limit", "12", "--lease", "1h", "pool"]));
    }
    let list = fixture.json(&["ls", "--json"])["locks"][0].take();
    let listed = list["holders"].as_array().unwrap().len();
    assert_eq!((list["holding"].as_u64(), listed), (Some(12), 10), "{list}");
    assert!(fixture.said(&["ls"]).contains(" and 11 more "));
    let shown = fixture.json(&["show", "--json", "pool"]);
    assert_eq!((&shown["holding"], shown["holders"].as_array().unwrap().len()), (&12.into(), 12));

    let mut watch = fixture.tenure(&["watch", "--interval", "20ms"]);
    let mut watch = watch.env("TZ", ZONE).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = Lines(BufReader::new(watch.stdout.take().unwrap()));
    let first = lines.after_time();
    assert!(first.starts_with("pool: held by ") && first.contains(" and 2 more; 0"), "{first}");
    // After each renewal, the first ten to end are others.
    for handle in &handles {
        assert_eq!(fixture.said(&["renew", handle.trim()]), "");
    }
    fixture.said(&["release", handles[0].trim()]);
    let next = lines.after_time();
    assert!(next.contains(" and 1 more; 0 waiting"), "{next}");
    watch.kill().unwrap();
    watch.wait().unwrap();
}

/// I6, R29: a key of a lock that another program has written is named by `doctor`, `ls` and `watch`,
/// which go on with the others.
#[test]
fn a_foreign_key_is_named_and_hides_no_other() {
    let mut fixture = Fixture::redis();
    fixture.said(&["acquire", "a"]);
    fixture.said(&["acquire", "z"]);
    let mut connection = fixture.server().connect().unwrap();
    connection.command(&["SET", "tenure:{x}", "theirs"]).unwrap();

    let found = fixture.output(&["doctor"]);
    assert_eq!(found.status.code(), Some(1));
    let found = String::from_utf8(found.stdout).unwrap();
    let finding = "problem  contents: locks that cannot be read: x (the server said: DAMAGED ";
    assert!(found.contains(finding) && found.contains("such as `tenure:{x}`: delete "), "{found}");

    let output = fixture.output(&["ls"]);
    assert_eq!(output.status.code(), Some(0));
    let (list, message) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let names: Vec<_> = list.lines().skip(1).filter_map(|it| it.split(' ').nth(1)).collect();
    assert_eq!(names, ["a", "x", "z"], "{list}");
    assert!(
        list.contains("unreadable") && message.starts_with("tenure: `x` cannot be read: "),
        "{list} {message}"
    );

    let mut watch = fixture.tenure(&["watch", "--interval", "20ms"]);
    let mut watch = watch.env("TZ", ZONE).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = Lines(BufReader::new(watch.stdout.take().unwrap()));
    assert!(lines.after_time().starts_with("a: held by "));
    assert!(lines.after_time().starts_with("x: unknown: "));
    assert!(lines.after_time().starts_with("z: held by "));
    connection.command(&["DEL", "tenure:{x}"]).unwrap();
    assert_eq!(lines.after_time(), "x: free\n");
    watch.kill().unwrap();
    watch.wait().unwrap();
}
