//! A corner of the machine with a disk and settings of its own, for one part of a test.

use std::process::Command;

use super::other;
use crate::process;

/// Runs a part in namespaces of its own, after the shell commands of `setup`, to which `$1` is the
/// folder around the store. The part fails the test if it fails; so does a machine that allows no
/// namespaces.
pub(crate) fn run(setup: &str, part: &str) {
    let around = tempfile::tempdir().unwrap();
    let mut command = apart();
    command.args(["sh", "-e", "-c"]);
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

/// Runs what follows in namespaces of its own: as whoever we are, if that is allowed, or as a user
/// who is root in there, which needs no rights out here.
fn apart() -> Command {
    let unshare = |user: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net"]).args(user);
        command
    };
    let is_allowed = unshare(&[]).arg("true").output().is_ok_and(|it| it.status.success());
    unshare(if is_allowed { &[] } else { &["--user", "--map-root-user"] })
}

/// What mounts a small disk, which is empty.
pub(crate) fn small_disk(options: &str) -> String {
    format!("mount -t tmpfs -o mode=700,{options} small \"$1\"")
}
