//! Namespaces with a disk and settings of their own, for one part of a test.

use std::process::Command;

use super::other;
use crate::process;

/// Runs a part in namespaces of its own, after the shell commands of `setup`, where `$1` is the folder around the
/// store. The test fails if the part fails, or if the machine allows no namespaces.
pub(crate) fn run(setup: &str, part: &str) {
    let around = tempfile::tempdir().unwrap();
    let mut command = unshared();
    command.args(["sh", "-e", "-c"]);
    command.arg(format!("{setup}\nshift; exec \"$@\"")).arg("sh").arg(around.path());
    command.arg(process::this_program().get_program());
    let output =
        other::with_part(&mut command, &around.path().join("locks"), part).output().unwrap();
    assert!(
        output.status.success(),
        "`{part}` ended with {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
}

/// A command prefix that creates namespaces: as the current user, if that is allowed, or else as root of a user
/// namespace, which needs no privileges.
fn unshared() -> Command {
    let unshare = |user: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net"]).args(user);
        command
    };
    let is_allowed = unshare(&[]).arg("true").output().is_ok_and(|it| it.status.success());
    unshare(if is_allowed { &[] } else { &["--user", "--map-root-user"] })
}

/// The shell command that mounts a small, empty disk.
pub(crate) fn small_disk(options: &str) -> String {
    format!("mount -t tmpfs -o mode=700,{options} small \"$1\"")
}
