//! Limits that a shell sets (`ulimit`), which must neither end `tenure` midway nor leave a riddle.

use std::process::{Command, Output, Stdio};

use crate::fixture::Fixture;

on_every_store! {
    too_few_files_are_told,
    a_limit_on_the_size_of_files_is_told,
}

/// Runs `tenure` below a shell that sets limits.
fn limited(fixture: &Fixture, limit: &str, arguments: &[&str]) -> Output {
    let mut shell = Command::new("sh");
    let script = format!("{limit}; exec \"$0\" \"$@\"");
    shell.args(["-c", &script, env!("CARGO_BIN_EXE_tenure")]).args(arguments);
    shell.env("TENURE_URL", &fixture.url).env_remove("REDIS_URL").stdin(Stdio::null());
    shell.output().unwrap()
}

/// Whatever the limit is, the command runs, or the reason is told in a sentence. With fewer files the system
/// cannot load a program.
fn too_few_files_are_told(fixture: &Fixture) {
    for files in 6..40 {
        let limit = format!("ulimit -n {files}");
        let output = limited(fixture, &limit, &["run", "x", "--", "echo", "ran"]);
        let told = String::from_utf8(output.stderr).unwrap();
        match output.status.code() {
            Some(0) => assert_eq!((&*output.stdout, &*told), (&b"ran\n"[..], ""), "{files}"),
            Some(71) => assert!(told.contains("(see `ulimit -n`)"), "{files}: {told}"),
            code => panic!("{files}: {code:?} {told}"),
        }
        assert!(output.status.success() || files < 32, "{files}: {told}");
        assert!(!output.status.success() || files > 20, "{files}");
    }
}

/// A store that may not be written to is told; a command that writes too much gets the signal itself.
fn a_limit_on_the_size_of_files_is_told(fixture: &Fixture) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let write = format!("head -c 65536 /dev/zero > {}", file.display());
    let output =
        limited(fixture, "ulimit -f 8", &["run", "x", "--", "sh", "-c", &format!("exec {write}")]);
    let told = String::from_utf8(output.stderr).unwrap();
    if fixture.is_local() {
        assert_eq!(output.status.code(), Some(69), "{told}");
        assert!(told.starts_with("tenure: ") && told.contains("File too large"), "{told}");
        assert!(told.contains("ulimit -f"), "{told}");
    } else {
        assert_eq!((output.status.code(), &*told), (Some(128 + 25), ""));
    }
}
