//! The processes that `tenure` ends with the command, and those that it must not, or cannot.

use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Signal, getuid};
use tempfile::TempDir;

use crate::fixture::{Fixture, Holder, children, is_alive, signal, until, until_watching};

on_every_store! {
    a_command_whose_main_thread_has_ended_is_killed,
    a_process_of_any_name_hides_no_other,
    what_was_there_before_is_left_alone,
}

/// A folder that all users may read, with a program made of these lines of C. A compiler is installed: the local engine
/// is built with it.
fn compiled(lines: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
    let (source, program) = (folder.path().join("program.c"), folder.path().join("program"));
    std::fs::write(&source, lines).unwrap();
    let compiler = std::env::var_os("CC").unwrap_or("cc".into());
    let mut compile = Command::new(compiler);
    let status = compile.arg("-pthread").arg("-o").arg(&program).arg(&source).status().unwrap();
    assert!(status.success());
    (folder, program)
}

fn take_away(fixture: &Fixture) {
    fixture.said(&["release", "--force", "x", "--reason", "a test", "--yes"]);
}

/// Its main thread ends, and another one goes on; the kernel shows it as a zombie meanwhile.
const WITHOUT_MAIN_THREAD: &str = r#"
    #include <pthread.h>
    #include <signal.h>
    #include <stdio.h>
    #include <unistd.h>
    static void *work(void *nothing) { for (;;) sleep(60); return nothing; }
    int main(void) {
        pthread_t thread;
        signal(SIGTERM, SIG_IGN);
        pthread_create(&thread, 0, work, 0);
        printf("held\n%d\n", getpid());
        fclose(stdout);
        fclose(stderr);
        pthread_exit(0);
    }
"#;

/// I1: a process has ended when its last thread has, not its first.
fn a_command_whose_main_thread_has_ended_is_killed(fixture: &Fixture) {
    let (_folder, program) = compiled(WITHOUT_MAIN_THREAD);
    let run = ["run", "--kill-after", "200ms", "x", "--", program.to_str().unwrap()];
    let mut holder = Holder::start(fixture, &run);
    let pid = holder.line().trim().to_owned();
    let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    until("without its main thread", || stat().contains(") Z "));
    take_away(fixture);
    assert_eq!(holder.end().0, 76);
    assert!(!is_alive(&pid));
}

/// Its name is not UTF-8, like one that the kernel has cut within a character.
const OF_STRANGE_NAME: &str = r#"
    #include <stdio.h>
    #include <sys/prctl.h>
    #include <unistd.h>
    int main(void) {
        prctl(PR_SET_NAME, "caf\xe9 ) Z 1", 0, 0, 0);
        puts("ready");
        fflush(stdout);
        sleep(60);
    }
"#;

/// I1: one such process, of any user, kept `tenure` from finding any other, so that a process in a session of its own was
/// not ended.
fn a_process_of_any_name_hides_no_other(fixture: &Fixture) {
    let (_folder, program) = compiled(OF_STRANGE_NAME);
    let mut strange = Command::new(program).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 5];
    strange.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let script = "setsid sleep 60 & echo held; echo $!; wait";
    let run = ["run", "--kill-after", "200ms", "x", "--", "sh", "-c", script];
    let mut holder = Holder::start(fixture, &run);
    let stray = holder.line().trim().to_owned();
    take_away(fixture);
    assert_eq!(holder.end().0, 76);
    let is_left = is_alive(&stray);
    strange.kill().unwrap();
    strange.wait().unwrap();
    assert!(!is_left);
}

/// A shell that becomes `tenure` by `exec` leaves it its children: `&`, `> >(…)`. They are not the command's, also when
/// its guardian was killed.
fn what_was_there_before_is_left_alone(fixture: &Fixture) {
    for is_guarded in [true, false] {
        let script = "sleep 60 >&- 2>&- & before=$!
            exec \"$0\" run --kill-after 200ms x -- sh -c \"echo held; echo $before \\$\\$; sleep 60; :\"";
        let mut shell = Command::new("sh");
        shell.args(["-c", script, env!("CARGO_BIN_EXE_tenure")]).stdin(Stdio::null());
        let mut holder =
            Holder::begin(shell.env("TENURE_URL", &fixture.url).env_remove("REDIS_URL"));
        let pids = holder.line();
        let (before, command) = pids.trim().split_once(' ').unwrap();
        if !is_guarded {
            let children = children(&holder.pid());
            let guardian = children.into_iter().find(|pid| pid != before).unwrap();
            until_watching(&guardian);
            signal(&guardian, Signal::KILL);
            until("ended", || !is_alive(&guardian));
        }
        take_away(fixture);
        assert_eq!(holder.end().0, 76);
        assert!(is_alive(before) && !is_alive(command), "{pids}");
        signal(before, Signal::KILL);
    }
}

/// It sets all its user ids to root, as `sudo` does.
const BECOMES_ROOT: &str = r#"
    #include <stdio.h>
    #include <unistd.h>
    int main(void) {
        if (setuid(0)) return 1;
        printf("held\n%d\n", getpid());
        fclose(stdout);
        fclose(stderr);
        for (;;) sleep(60);
    }
"#;

/// A user other than root.
const USER: u32 = 65_534;

/// The command runs as another user, as under `sudo`, and may not be killed: that is reported, with its pid, and
/// `tenure` does not wait for it for ever.
///
/// Only root can make a setuid program, on a file system that allows it; otherwise there is nothing to test.
#[test]
fn a_command_that_may_not_be_killed_is_reported() {
    let (folder, program) = compiled(BECOMES_ROOT);
    let is_suid = std::fs::set_permissions(&program, PermissionsExt::from_mode(0o4755)).is_ok();
    if !getuid().is_root() || !is_suid {
        eprintln!(
            "not tested: this needs root, and a setuid program in {}",
            folder.path().display()
        );
        return;
    }
    // In a place that the user can reach.
    let tenure = folder.path().join("tenure");
    std::fs::copy(env!("CARGO_BIN_EXE_tenure"), &tenure).unwrap();
    let store = folder.path().join("store");
    std::fs::create_dir(&store).unwrap();
    std::fs::set_permissions(&store, PermissionsExt::from_mode(0o700)).unwrap();
    chown(&store, Some(USER), Some(USER)).unwrap();
    let as_user = |arguments: &[&str]| as_user(&tenure, &store, arguments);

    let run = ["run", "--kill-after", "200ms", "x", "--", program.to_str().unwrap()];
    let mut holder = Holder::begin(&mut as_user(&run));
    let pid = holder.line().trim().to_owned();
    let force = ["release", "--force", "x", "--reason", "a test", "--yes"];
    assert!(as_user(&force).output().unwrap().status.success());
    let (code, message) = holder.end();
    let sentence = format!(
        "tenure: process {pid} (`program`) could not be ended: it runs as another user, who alone may \
         end it; it may go on working without the lock\n"
    );
    assert!(code == 76 && message.ends_with(&sentence), "{code} {message}");
    assert_eq!(message.matches(&sentence).count(), 1, "{message}");
    assert!(is_alive(&pid));
    signal(&pid, Signal::KILL);
}

fn as_user(tenure: &Path, store: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(tenure);
    command.args(arguments).env("TENURE_URL", format!("local://{}", store.display()));
    command.env_remove("REDIS_URL").stdin(Stdio::null()).current_dir("/").gid(USER).uid(USER);
    command
}
