//! Which store is used, and which processes get its URL.

use std::os::unix::ffi::OsStrExt;

use rustix::process::{Pid, Signal};
use tenure_testkit::Server;

use crate::fixture::{Fixture, tenure};

on_every_store! { a_command_within_a_command_has_the_same_store }

/// A `tenure` that a script runs under a lock uses the same store as its caller.
fn a_command_within_a_command_has_the_same_store(fixture: &Fixture) {
    let inner = [env!("CARGO_BIN_EXE_tenure"), "run", "-n", "x", "--", "echo", "no"];
    assert_eq!(fixture.code(&[&["run", "x", "--"], &inner[..]].concat()), 75);
    let mut outer = tenure(&[&["run", "--url", &fixture.url, "x", "--"], &inner[..]].concat());
    assert_eq!(outer.output().unwrap().status.code(), Some(75), "--url is passed on as well");
    let show = fixture.said(&["run", "x", "--", "sh", "-c", "echo $TENURE_URL"]);
    assert_eq!(show.trim(), fixture.url);
}

/// The password stays with the command; a command under the lock gets the URL without it.
#[test]
fn a_command_learns_of_its_store_and_not_the_password() {
    let mut fixture =
        Fixture::of(Server::builder().on_port().arg("--requirepass", "secret").start());
    let open = fixture.url.clone();
    fixture.url = open.replace("redis://", "redis://:secret@");
    let script = "echo $TENURE_URL; env | grep -c secret";
    let output = fixture.output(&["run", "x", "--", "sh", "-c", script]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{open}\n0\n"));
    let output = fixture.output(&["elect", "x", "--", "sh", "-c", "echo $TENURE_URL"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{open}\n"));
    // A `tenure` in there is refused, and does not use another store silently.
    let message = fixture.refused(69, &["run", "x", "--", env!("CARGO_BIN_EXE_tenure"), "ls"]);
    let hint =
        ": the server wants a password: put it into TENURE_URL, as in redis://:PASSWORD@HOST\n";
    assert!(message.contains("NOAUTH") && message.ends_with(hint), "{message}");
    fixture.url = open.clone();
    let found = fixture.output(&["doctor"]);
    assert_eq!(found.status.code(), Some(1));
    let found = String::from_utf8(found.stdout).unwrap();
    assert!(found.contains("the server wants a password: put it into TENURE_URL"), "{found}");
    fixture.url = open.replace("redis://", "redis://:wrong@");
    let message = fixture.refused(69, &["ls"]);
    assert!(message.contains("could not log in") && message.contains("WRONGPASS"), "{message}");
    fixture.url = open.replace("redis://", "redis://:secret@");

    let mut own = fixture.tenure(&["run", "x", "--", "sh", "-c", "echo $TENURE_URL $REDIS_URL"]);
    own.env_remove("TENURE_URL").env("REDIS_URL", &fixture.url);
    let output = own.output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed, format!("{}\n", fixture.url), "REDIS_URL is the command's own");
}

/// A server that is not reachable is 69, with a message and without the password.
#[test]
fn a_store_that_cannot_be_reached_is_reported() {
    let handle = Fixture::local().said(&["acquire", "x"]);
    let force = ["release", "--force", "x", "--reason", "r", "--yes"];
    for arguments in [
        &["ls"][..],
        &["show", "x"],
        &["watch"],
        &["doctor"],
        &["acquire", "x"],
        &["renew", handle.trim()],
        &["release", handle.trim()],
        &force,
        &["run", "x", "--", "true"],
        &["elect", "x", "--", "true"],
    ] {
        for variable in ["TENURE_URL", "REDIS_URL"] {
            // Subcommands that acquire a lock retry for five seconds; one of them is enough.
            let is_patient = matches!(arguments[0], "acquire" | "run" | "elect");
            if is_patient && variable == "REDIS_URL" {
                continue;
            }
            let mut command = tenure(arguments);
            let output = command.env(variable, "redis://:secret@127.0.0.1:1").output().unwrap();
            assert_eq!(output.status.code(), Some(69), "{arguments:?}");
            let message = String::from_utf8(output.stderr).unwrap();
            let sentence = "tenure: the store cannot be used: could not connect to 127.0.0.1:1";
            assert!(message.starts_with(sentence) && !message.contains("secret"), "{message}");
            assert_eq!(message.ends_with("; tried for 5 s\n"), is_patient, "{message}");
        }
    }
}

#[test]
fn a_url_that_is_not_understood_is_64() {
    for (url, sentence) in [
        ("nowhere://user:secret@host", "this URL of a store cannot be used: its scheme is unknown"),
        ("redis+sentinel://user:secret@host", "does not name the master"),
        ("local://folder", "a local store is `local:`, or `local:///folder` with three slashes"),
        ("", "--url is empty: name a store there, such as redis://host or local:, or leave it out"),
    ] {
        let output = tenure(&["ls", "--url", url]).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{message}");
        assert!(message.contains(sentence) && !message.contains("secret"), "{message}");
    }
}

/// A variable that is set but empty is named in the message; no other store is used silently.
#[test]
fn a_variable_that_is_empty_is_named() {
    for variable in ["TENURE_URL", "REDIS_URL"] {
        for arguments in [&["ls"][..], &["doctor"], &["run", "x", "--", "true"], &["acquire", "x"]]
        {
            let output = tenure(arguments).env(variable, "").output().unwrap();
            let message = String::from_utf8(output.stderr).unwrap();
            let sentence =
                "is empty: name a store there, such as redis://host or local:, or unset it";
            assert_eq!(output.status.code(), Some(64), "{message}");
            assert_eq!(message, format!("tenure: {variable} {sentence}\n"));
        }
    }
}

/// R32: with nothing installed and nothing named, the commands of one user share a store.
#[test]
fn commands_of_one_machine_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let tenure = |arguments: &[&str]| {
        let mut command = tenure(arguments);
        command.env("XDG_STATE_HOME", folder.path()).output().unwrap()
    };
    assert_eq!(tenure(&["acquire", "x"]).status.code(), Some(0));
    assert_eq!(tenure(&["run", "-n", "x", "--", "true"]).status.code(), Some(75));
    assert_eq!(tenure(&["run", "-n", "y", "--", "true"]).status.code(), Some(0));
    let list = tenure(&["ls"]);
    assert!(String::from_utf8(list.stdout).unwrap().contains(" x "));
    assert!(folder.path().join("tenure").is_dir());
}

/// R32: a lock of a cron job is seen by a shell, though their environments differ.
#[test]
fn a_shell_and_a_cron_job_share_a_folder() {
    let home = tempfile::tempdir().unwrap();
    let mut shell = tenure(&["acquire", "x"]);
    shell.env_remove("XDG_STATE_HOME").env("XDG_RUNTIME_DIR", home.path().join("run"));
    let acquired = shell.env("HOME", home.path()).output().unwrap();
    assert!(acquired.status.success(), "{acquired:?}");
    let mut cron = tenure(&["run", "-n", "x", "--", "true"]);
    cron.env_clear().env("HOME", home.path()).env("PATH", "/usr/bin:/bin");
    assert_eq!(cron.output().unwrap().status.code(), Some(75));
    let mut nowhere = tenure(&["run", "x", "--", "true"]);
    let refused = nowhere.env_clear().output().unwrap();
    assert_eq!(refused.status.code(), Some(64));
    let message = String::from_utf8(refused.stderr).unwrap();
    assert!(message.contains("neither XDG_STATE_HOME nor HOME is set: name a folder"), "{message}");
}

/// A variable that is not text is an error: no other store is used.
#[test]
fn a_url_that_is_no_text_is_64() {
    let mut command = tenure(&["ls"]);
    for variable in ["REDIS_URL", "TENURE_URL"] {
        command.env(variable, std::ffi::OsStr::from_bytes(b"redis://h\xff"));
        let output = command.output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{message}");
        assert!(message.contains(variable), "{message}");
    }
}

/// A server that does not answer does not keep a signal from ending the command.
#[test]
fn a_signal_while_connecting_ends_the_command() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let mut command = tenure(&["run", "--url", &url, "x", "--", "true"]);
    let mut child = command.spawn().unwrap();
    silent.accept().unwrap().0.peek(&mut [0]).unwrap();
    rustix::process::kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
}
