//! The command as a job of a shell: ^C, ^Z, `fg`, `&`, scripts and pipelines.

use crate::fixture::{Fixture, is_alive, until};
use crate::screen::Screen;

on_every_store! {
    an_interrupt_reaches_the_command,
    a_job_is_stopped_and_continued,
    a_job_with_other_input_is_stopped_too,
    a_waiting_command_is_stopped_and_continued,
    a_job_without_a_shell_is_not_stopped,
    a_script_keeps_its_terminal,
    a_script_is_stopped_as_a_whole,
    a_script_that_was_continued_goes_on,
    an_interrupt_ends_the_script,
    a_pipeline_keeps_its_terminal,
    a_command_with_other_input_may_ask_at_the_terminal,
    a_job_from_the_background_reads_in_front,
    a_job_that_was_stopped_for_too_long_is_ended,
    a_command_that_stops_itself_keeps_its_lock,
    a_job_is_ended_though_it_may_not_talk,
    a_job_in_the_background_shows_no_line,
}

/// R28: ^C goes to the command, and the status is that of a command without a lock.
fn an_interrupt_reaches_the_command(fixture: &Fixture) {
    let mut screen = Screen::new();
    let mut session = screen.session(fixture, &["sh", "-i"]);
    screen.press("tenure run x -- sh -c 'echo st''arted; exec sleep 60'\n");
    screen.until("started");
    screen.press("\u{3}");
    screen.press("echo code=$?\n");
    screen.until("code=130");
    assert_eq!(fixture.said(&["show", "x"]), "x: free\n");
    // A command that catches it goes on, and so does the lock.
    let script = "trap \"echo cau''ght; exit 5\" INT; echo re''ady; while :; do sleep 0.02; done";
    screen.press(&format!(
        "tenure run x -- sh -c '{}'; echo code=$?\n",
        script.replace("''", "\"\"")
    ));
    screen.until("ready");
    screen.press("\u{3}");
    screen.until("caught");
    screen.until("code=5");
    screen.press("exit\n");
    session.wait().unwrap();
}

/// The pid that was printed, as in `pid=12.`
fn pid(screen: &Screen) -> String {
    screen.until(".\r\n");
    let seen = screen.seen();
    seen.rsplit("pid=").next().unwrap().split('.').next().unwrap().to_owned()
}

/// R28: ^Z stops the command and `tenure`, and the shell is back; `fg` continues both.
fn a_job_is_stopped_and_continued(fixture: &Fixture) {
    let mut screen = Screen::new();
    let mut session = screen.session(fixture, &["sh", "-i"]);
    screen.press("tenure run x -- sh -c 'echo pi''d=$$.; read line; echo got $line; exit 5'\n");
    let pid = pid(&screen);
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    screen.press("\u{1a}");
    screen.until("Stopped");
    assert!(state().contains(") T "), "{}", state());
    screen.press("echo shell is he''re\n");
    screen.until("shell is here");
    assert!(fixture.said(&["show", "x"]).contains("held by"), "it is held for its lease");
    screen.press("fg\n");
    until("continued", || !state().contains(") T "));
    screen.press("a line\n");
    screen.until("got a line");
    screen.press("echo code=$?\n");
    screen.until("code=5");
    assert!(!is_alive(&pid));
    screen.press("exit\n");
    session.wait().unwrap();
}

/// Also a command that does not read from the terminal must not run on while its lock is not renewed.
fn a_job_with_other_input_is_stopped_too(fixture: &Fixture) {
    let mut screen = Screen::new();
    let mut session = screen.session(fixture, &["sh", "-i"]);
    screen.press("tenure run x -- sh -c 'echo pi''d=$$.; exec sleep 60' < /dev/null\n");
    let pid = pid(&screen);
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    screen.press("\u{1a}");
    screen.until("Stopped");
    assert!(state().contains(") T "), "{}", state());
    screen.press("fg\n");
    until("continued", || !state().contains(") T "));
    screen.press("\u{3}");
    screen.press("echo code=$?\n");
    screen.until("code=130");
    screen.press("exit\n");
    session.wait().unwrap();
}

/// Stopped while it waits, it waits on when it is continued.
fn a_waiting_command_is_stopped_and_continued(fixture: &Fixture) {
    let handle = fixture.said(&["acquire", "x"]);
    let mut screen = Screen::new();
    let mut session = screen.session(fixture, &["sh", "-i"]);
    screen.press("tenure run x -- echo ra''n\n");
    screen.until("next in line");
    screen.press("\u{1a}");
    screen.until("Stopped");
    screen.press("fg\n");
    fixture.said(&["release", handle.trim()]);
    screen.until("ran\r\n");
    screen.press("exit\n");
    session.wait().unwrap();
}

/// A script without job control goes on after the command with the terminal that it had.
fn a_script_keeps_its_terminal(fixture: &Fixture) {
    let mut screen = Screen::new();
    let script = "tenure run x -- sh -c 'read one; echo first $one'; read two; echo second $two";
    let mut session = screen.session(fixture, &["sh", "-c", script]);
    screen.press("a\n");
    screen.until("first a");
    screen.press("b\n");
    screen.until("second b");
    assert!(session.wait().unwrap().success());
}

/// Where no shell could continue it, ^Z does nothing, as without `tenure`.
fn a_job_without_a_shell_is_not_stopped(fixture: &Fixture) {
    let mut screen = Screen::new();
    let words = ["tenure", "run", "x", "--", "sh", "-c", "echo ready; read line; echo got $line"];
    let mut session = screen.session(fixture, &words);
    screen.until("ready");
    screen.press("\u{1a}");
    screen.until("^Z");
    screen.press("a line\n");
    screen.until("got a line");
    assert!(session.wait().unwrap().success());
}

/// ^Z stops also the script that runs the command, so that the shell is back.
fn a_script_is_stopped_as_a_whole(fixture: &Fixture) {
    let mut screen = Screen::new();
    let mut session = screen.session(fixture, &["sh", "-i"]);
    let script =
        "tenure run x -- sh -c \"echo re\"\"ady; read line; echo got \\$line\"; echo af\"\"ter";
    screen.press(&format!("sh -c '{script}'\n"));
    screen.until("ready");
    screen.press("\u{1a}");
    screen.until("Stopped");
    screen.press("echo shell is he''re\n");
    screen.until("shell is here");
    screen.press("fg\na line\n");
    screen.until("got a line");
    screen.until("after");
    screen.press("exit\n");
    session.wait().unwrap();
}

/// A shell may continue a script while `tenure` is about to stop with it: it then goes on, each time.
fn a_script_that_was_continued_goes_on(fixture: &Fixture) {
    let mut screen = Screen::new();
    let mut session = screen.session(fixture, &["sh", "-i"]);
    let command = "sh -c \"echo re\"\"ady; sleep 0.4; read line; echo got \\$line\"";
    screen.press(&format!("sh -c 'tenure run x -- {command}; echo af\"\"ter'\n"));
    screen.until("ready");
    for round in 1..=5 {
        screen.press("\u{1a}");
        until("stopped", || screen.seen().matches("Stopped").count() == round);
        screen.press("fg\n");
        // The shell prints the job, then gives it the terminal, then continues it: an earlier ^Z would be for the shell,
        // which ignores it, or be cancelled by CONT.
        until("continued", || screen.seen().matches("\r\nsh -c").count() == round);
        until("running in front", || screen.is_job_running());
    }
    screen.press("a line\n");
    screen.until("got a line");
    screen.until("after");
    screen.press("exit\n");
    session.wait().unwrap();
}

/// A shell at a terminal, which is left at the end.
fn at_a_shell(fixture: &Fixture, work: impl FnOnce(&mut Screen)) {
    let mut screen = Screen::new();
    let mut session = screen.session(fixture, &["bash", "--norc", "-i"]);
    work(&mut screen);
    screen.press("exit\n");
    session.wait().unwrap();
}

/// ^C ends the script that runs the command, as without `tenure`, whether the command has the terminal or not, or was
/// not started yet.
fn an_interrupt_ends_the_script(fixture: &Fixture) {
    let handle = fixture.said(&["acquire", "held"]);
    at_a_shell(fixture, |screen| {
        for (name, command) in [("x", "sleep 60"), ("x", "cat"), ("held", "true")] {
            let run =
                format!("tenure run {name} -- sh -c \"echo {command} beg\"\"ins; exec {command}\"");
            screen.press(&format!("bash -c '{run}; echo af\"\"ter'\n"));
            match name {
                "held" => fixture.until_waiting("held", 1),
                _ => screen.until(&format!("{command} begins")),
            }
            if command == "cat" {
                screen.press("a line\n");
                screen.until("a line\r\na line\r\n");
            }
            screen.press("\u{3}");
            let free = || fixture.said(&["show", "x"]) == "x: free\n";
            until("over", || free() && fixture.json(&["show", "--json", "held"])["waiting"] == 0);
            screen.press(&format!("echo next $? of {command}\n"));
            screen.until(&format!("next 130 of {command}"));
            assert!(!screen.seen().contains("after\r\n"), "{:?}", screen.seen());
        }
    });
    fixture.said(&["release", handle.trim()]);
}

/// The terminal belongs to the reader, not to the command, which writes to it.
fn a_pipeline_keeps_its_terminal(fixture: &Fixture) {
    at_a_shell(fixture, |screen| {
        let reader = "sh -c 'cat; read key < /dev/tty; echo key $key'";
        screen.press(&format!("tenure run x -- sh -c 'echo wri''tten' | {reader}\n"));
        screen.until("written");
        screen.press("k\n");
        screen.until("key k\r\n");
        assert!(!screen.seen().contains("Stopped"), "{:?}", screen.seen());
    });
}

/// A command whose input is another file may ask at the terminal, as for a password.
fn a_command_with_other_input_may_ask_at_the_terminal(fixture: &Fixture) {
    at_a_shell(fixture, |screen| {
        let command = "sh -c 'read a < /dev/tty; echo go\"\"t $a'";
        screen.press(&format!("echo hi | tenure run x -- {command}\n"));
        until("begun", || fixture.said(&["show", "x"]).contains("held by"));
        screen.press("secret\n");
        screen.until("got secret\r\n");
        assert!(!screen.seen().contains("Stopped"), "{:?}", screen.seen());
    });
}

/// A job that was started in the background reads from the terminal once it is in the foreground.
fn a_job_from_the_background_reads_in_front(fixture: &Fixture) {
    at_a_shell(fixture, |screen| {
        screen.press("tenure run x -- sh -c 'echo re''ady; read a; echo go''t $a' &\n");
        screen.until("ready");
        // The shell reports it at its next prompt.
        until("stopped", || {
            screen.press("\n");
            screen.seen().contains("Stopped")
        });
        screen.press("fg\n");
        screen.press("hello\n");
        screen.until("got hello\r\n");
    });
}

/// A job that was stopped until after its lease is not continued: another client has the lock.
fn a_job_that_was_stopped_for_too_long_is_ended(fixture: &Fixture) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let size = || std::fs::metadata(&log).map_or(0, |data| data.len());
    at_a_shell(fixture, |screen| {
        // One process: `sleep` is started by vfork, and a parent that waits for that cannot be stopped.
        let pause = "read -t 0.01 -u 9";
        let write = format!("while :; do echo >> {}; {pause}; done", log.display());
        screen.press(&format!("tenure run --lease 1s x -- bash -c 'exec 9<> <(:); {write}'\n"));
        until("begun", || size() > 0);
        screen.press("\u{1a}");
        screen.until("Stopped");
        assert_eq!(fixture.code(&["run", "-w", "10s", "x", "--", "true"]), 0);
        let stopped = size();
        screen.press("fg\n");
        screen.press("echo code=$?\n");
        screen.until("code=76");
        assert_eq!(size(), stopped);
    });
}

/// A stop of the command alone does not stop `tenure`, which renews the lock.
fn a_command_that_stops_itself_keeps_its_lock(fixture: &Fixture) {
    at_a_shell(fixture, |screen| {
        let script = "echo re''ady; kill -STOP $$; echo go''ne on";
        screen.press(&format!("tenure run --lease 1s x -- sh -c '{script}'\n"));
        screen.until("ready");
        assert_eq!(fixture.code(&["run", "-w", "1500ms", "x", "--", "true"]), 75);
        assert!(!screen.seen().contains("Stopped"), "{:?}", screen.seen());
        screen.press("\u{3}");
    });
}

/// A terminal that stops background jobs that write does not keep a command from being ended.
fn a_job_is_ended_though_it_may_not_talk(fixture: &Fixture) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let pid = || std::fs::read_to_string(&file).unwrap_or_default();
    at_a_shell(fixture, |screen| {
        let script = format!("echo $$ > {}; exec sleep 60", file.display());
        screen.press(&format!("stty tostop; tenure run x -- sh -c '{script}' &\n"));
        until("begun", || pid().ends_with('\n'));
        fixture.said(&["release", "--force", "x", "--reason", "a test", "--yes"]);
        until("ended", || !is_alive(pid().trim()));
    });
}

/// The progress line of a background job does not overwrite the output of others.
fn a_job_in_the_background_shows_no_line(fixture: &Fixture) {
    let handle = fixture.said(&["acquire", "x"]);
    at_a_shell(fixture, |screen| {
        screen.press("tenure run x -- true &\n");
        fixture.until_waiting("x", 1);
        screen.press("sleep 0.6; echo do''ne\n");
        screen.until("done\r\n");
        assert!(!screen.seen().contains("next in line"), "{:?}", screen.seen());
        screen.press("fg\n");
        screen.until("next in line");
        fixture.said(&["release", handle.trim()]);
    });
}
