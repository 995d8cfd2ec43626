//! A store that is down when a command asks for its lock: for a short time, or for good.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tenure_testkit::{Flavor, Server, Tls};

use crate::fixture::{Fixture, becomes_so_within, now, tenure};

/// A port on which nothing listens.
const AWAY: &str = "redis://127.0.0.1:1";

/// A command that retries, and its messages.
fn start(fixture: &Fixture, arguments: &[&str]) -> (Child, BufReader<ChildStderr>) {
    let mut command = fixture.with_signals("--default-signal", arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let talk = BufReader::new(child.stderr.take().unwrap());
    (child, talk)
}

fn sentence(talk: &mut BufReader<ChildStderr>) -> String {
    let mut line = String::new();
    talk.read_line(&mut line).unwrap();
    line
}

/// A deployment restarts the server just when a cron job starts: the job waits for it, and runs.
#[test]
fn a_store_that_is_down_for_a_moment_is_waited_for() {
    for arguments in [
        &["run", "-v", "-w", "60s", "x", "--", "echo", "ran"][..],
        &["run", "-v", "-w", "60s", "--once-per", "1h", "x", "--", "echo", "ran"],
        &["run", "-v", "x", "--", "echo", "ran"],
        &["elect", "-v", "x", "--", "echo", "ran"],
    ] {
        let mut fixture = Fixture::redis();
        fixture.server().kill();
        let (child, mut talk) = start(&fixture, arguments);
        let message = sentence(&mut talk);
        let until = if arguments.contains(&"-w") { "1 m" } else { "5 s" };
        assert!(
            message.starts_with("tenure: the store cannot be used: could not connect"),
            "{message}"
        );
        assert!(message.ends_with(&format!("; trying again for up to {until}\n")), "{message}");
        fixture.server().restart();
        let output = child.wait_with_output().unwrap();
        let mut rest = String::new();
        talk.read_to_string(&mut rest).unwrap();
        assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"ran\n"[..]), "{rest}");
    }
}

/// The same for a lock that outlives the command.
#[test]
fn a_detached_lock_waits_for_its_store() {
    let mut fixture = Fixture::redis();
    fixture.server().kill();
    let mut command = fixture.tenure(&["acquire", "-w", "60s", "x"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    assert!(!becomes_so_within(Duration::from_millis(500), || child.try_wait().unwrap().is_some()));
    fixture.server().restart();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout.starts_with(b"tenure1:"), "{output:?}");
}

/// A store that goes down while the lock is waited for is retried as well, for the whole time: longer than without `-w`.
#[test]
fn a_store_that_goes_away_during_the_wait_is_waited_for() {
    let mut fixture = Fixture::redis();
    fixture.said(&["acquire", "x"]);
    let arguments = ["run", "-v", "-w", "120s", "x", "--", "echo", "ran"];
    let (mut child, mut talk) = start(&fixture, &arguments);
    assert!(sentence(&mut talk).starts_with("tenure: waiting for `x`, next in line: held by "));
    let (mut usual, _talk) = start(&fixture, &["run", "x", "--", "echo", "ran"]);
    fixture.until_waiting("x", 2);
    fixture.server().kill();
    assert!(sentence(&mut talk).starts_with("tenure: waiting for the store: "));
    assert_eq!(usual.wait().unwrap().code(), Some(69));
    assert!(child.try_wait().unwrap().is_none(), "it has its own time");
    fixture.server().restart();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"ran\n"[..]));
}

/// A store that stays down is 69, and the message says for how long it was tried.
#[test]
fn a_store_that_stays_away_is_69_when_the_time_is_over() {
    let refused = "could not connect to 127.0.0.1:1: Connection refused (os error 111)";
    for (arguments, tried, least) in [
        (&["run", "-w", "1s", "x", "--", "true"][..], "; tried for 1 s", 1_000),
        (&["run", "-w", "300ms", "-E", "3", "x", "--", "true"], "; tried for 300 ms", 300),
        (&["acquire", "-w", "1s", "x"], "; tried for 1 s", 1_000),
        (&["run", "-n", "x", "--", "true"], "", 0),
        (&["acquire", "-n", "x"], "", 0),
    ] {
        let started = now();
        let output = tenure(arguments).env("TENURE_URL", AWAY).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(message, format!("tenure: the store cannot be used: {refused}{tried}\n"));
        assert_eq!(output.status.code(), Some(69), "{arguments:?}");
        assert!(started.elapsed() >= Duration::from_millis(least), "{arguments:?}");
    }
}

/// The time is over while the store is down: the holder that was known before is not named, because it may have changed.
#[test]
fn a_wait_that_ends_without_the_store_is_69() {
    let mut fixture = Fixture::redis();
    fixture.said(&["acquire", "x"]);
    let (mut child, mut talk) = start(&fixture, &["run", "-w", "6s", "x", "--", "true"]);
    fixture.until_waiting("x", 1);
    fixture.server().kill();
    let message = sentence(&mut talk);
    assert!(message.ends_with("; tried for 6 s\n"), "{message}");
    assert_eq!(child.wait().unwrap().code(), Some(69), "{message}");
}

/// A wrong password, none at all, or a foreign certificate does not become right by waiting.
#[test]
fn a_lasting_refusal_is_reported_at_once() {
    let locked = Server::builder().on_port().arg("--requirepass", "secret").start();
    let tls = Server::builder().flavor(Flavor::Redis).tls(Tls::default()).start();
    let stranger = format!("rediss://127.0.0.1:{}", tls.port().unwrap());
    let wrong = locked.url().replace("redis://", "redis://:wrong@");
    for (url, why) in [
        (&*locked.url(), "NOAUTH"),
        (&*wrong, "WRONGPASS"),
        (&*stranger, "is not signed by an authority that is trusted here"),
        ("local:///proc/nothing/store", "cannot be created"),
    ] {
        for arguments in [
            &["run", "-w", "1h", "x", "--", "true"][..],
            &["acquire", "-w", "1h", "x"],
            &["elect", "x", "--", "true"],
        ] {
            let output = tenure(arguments).env("TENURE_URL", url).output().unwrap();
            let message = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(69), "{message}");
            assert!(message.contains(why) && !message.contains("tried for"), "{message}");
        }
    }
}

/// A signal ends the retries.
#[test]
fn a_signal_ends_the_waiting_for_a_store() {
    let mut fixture = Fixture::redis();
    fixture.server().kill();
    for subcommand in [&["run", "-v", "-w", "1h"][..], &["elect", "-v"]] {
        for signal in [Signal::INT, Signal::TERM] {
            let arguments = [subcommand, &["x", "--", "true"]].concat();
            let (mut child, mut talk) = start(&fixture, &arguments);
            assert!(sentence(&mut talk).contains("; trying again for up to "));
            kill_process(Pid::from_child(&child), signal).unwrap();
            let status = child.wait().unwrap();
            match signal {
                Signal::INT => assert_eq!(status.signal(), Some(2)),
                _ => assert_eq!(status.code(), Some(128 + 15)),
            }
        }
    }
}

/// A lasting error is reported at once, also with a wait of a minute.
#[test]
fn a_folder_that_cannot_be_used_is_reported_at_once() {
    type Damage = fn(&std::path::Path);
    let damages: [(&str, Damage); 3] = [
        ("data.mdb", |file| std::fs::write(file, [7; 200_000]).unwrap()),
        ("data.mdb", |file| std::fs::create_dir(file).unwrap()),
        ("boot", |file| std::fs::create_dir(file).unwrap()),
    ];
    for (name, damage) in damages {
        let fixture = Fixture::local();
        assert_eq!(fixture.code(&["run", "x", "--", "true"]), 0);
        let folder = std::path::PathBuf::from(fixture.url.strip_prefix("local://").unwrap());
        std::fs::remove_file(folder.join(name)).unwrap();
        damage(&folder.join(name));
        let started = now();
        let message = fixture.refused(69, &["run", "-w", "60s", "x", "--", "true"]);
        assert!(message.contains(&folder.display().to_string()), "{message}");
        assert!(started.elapsed() < Duration::from_secs(40), "{message}");
    }
}
