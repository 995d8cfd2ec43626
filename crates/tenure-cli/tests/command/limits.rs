//! Resource limits of a shell (`ulimit`), which must neither end `tenure` midway nor fail without a clear message.

use std::process::{Command, Output, Stdio};

use crate::fixture::Fixture;

on_every_store! {
    too_few_files_are_reported,
    a_limit_on_the_size_of_files_is_reported,
}

/// Runs `tenure` below a shell that sets limits.
fn limited(fixture: &Fixture, limit: &str, arguments: &[&str]) -> Output {
    let mut shell = Command::new("sh");
    let script = format!("{limit}; exec \"$0\" \"$@\"");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_tenure")]).args(arguments);
    shell.env("TENURE_URL", &fixture.url).env_remove("REDIS_URL").stdin(Stdio::null());
    shell.output().unwrap()
}

/// With any limit the command runs, or the message says why not. With fewer files the system cannot load a program.
fn too_few_files_are_reported(fixture: &Fixture) {
    for files in 6..40 {
        let limit = format!("ulimit -n {files}");
        let output = limited(fixture, &limit, &["run", "x", "--", "echo", "ran"]);
        let message = String::from_utf8(output.stderr).unwrap();
        match output.status.code() {
            Some(0) => assert_eq!((&*output.stdout, &*message), (&b"ran\n"[..], ""), "{files}"),
            Some(71) => assert!(message.contains("(see `ulimit -n`)"), "{files}: {message}"),
            code => panic!("{files}: {code:?} {message}"),
        }
        assert!(output.status.success() || files < 32, "{files}: {message}");
        assert!(!output.status.success() || files > 20, "{files}");
    }
}

/// A store that cannot be written to is reported; a command that writes too much gets the signal itself.
fn a_limit_on_the_size_of_files_is_reported(fixture: &Fixture) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let write = format!("head -c 65536 /dev/zero > {}", file.display());
    let output =
        limited(fixture, "ulimit -f 8", &["run", "x", "--", "sh", "-c", &format!("exec {write}")]);
    let message = String::from_utf8(output.stderr).unwrap();
    if fixture.is_local() {
        assert_eq!(output.status.code(), Some(69), "{message}");
        assert!(message.starts_with("tenure: ") && message.contains("File too large"), "{message}");
        assert!(message.contains("ulimit -f"), "{message}");
    } else {
        assert_eq!((output.status.code(), &*message), (Some(128 + 25), ""));
    }
}
