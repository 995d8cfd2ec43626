//! A corner of the machine with a disk and settings of its own, for one part of a test.

use std::process::Command;

use super::other;
use crate::process;

/// Runs a part in namespaces of its own, after the shell commands of `setup`, to which `$1` is the
/// folder around the store. The part fails the test if it fails; so does a machine that allows no
/// namespaces.
pub(crate) fn run(setup: &str, part: &str) {
    let around = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    // As a user who is root within, so that it needs no rights outside.
    command.args(["--mount", "--net", "--user", "--map-root-user", "sh", "-e", "-c"]);
    command.arg(format!("{setup}\nshift; exec \"$@\"")).arg("sh").arg(around.path());
    command.arg(process::this_program().get_program());
    let output = other::told(&mut command, &around.path().join("locks"), part).output().unwrap();
    assert!(
        output.status.success(),
        "`{part}` ended with {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
}

/// What mounts a small disk, which is empty.
pub(crate) fn small_disk(options: &str) -> String {
    format!("mount -t tmpfs -o mode=700,{options} small \"$1\"")
}
