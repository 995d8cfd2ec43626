//! Output that is not read, or cannot be written; completions and manual pages.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use crate::fixture::{Fixture, is_alive, tenure, until};

on_every_store! {
    a_reader_that_has_left_ends_the_command_quietly,
    a_handle_that_cannot_be_printed_holds_nothing,
    a_handle_for_a_closed_output_holds_nothing,
    a_command_is_supervised_though_its_messages_have_no_reader,
    a_command_is_ended_though_its_messages_are_not_read,
}

/// A command whose output is a pipe without a reader.
fn to_closed_pipe(mut command: Command) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = command.stdout(writer).stderr(std::process::Stdio::piped()).spawn().unwrap();
    drop(command);
    child.wait_with_output().unwrap()
}

fn a_reader_that_has_left_ends_the_command_quietly(fixture: &Fixture) {
    fixture.said(&["acquire", "x"]);
    for arguments in [
        &["ls"][..],
        &["ls", "--json"],
        &["show", "x"],
        &["watch"],
        &["doctor"],
        &["man"],
        &["completions", "bash"],
        &["acquire", "y"],
        &["release", "--force", "x", "--reason", "r", "--yes"],
    ] {
        let output = to_closed_pipe(fixture.tenure(arguments));
        assert_eq!(output.status.code(), Some(128 + 13), "{arguments:?}: {output:?}");
        assert!(output.stderr.is_empty(), "{arguments:?}: {output:?}");
    }
    let help = to_closed_pipe(fixture.tenure(&["--help"]));
    assert!(help.stderr.is_empty(), "{help:?}");
}

fn a_handle_that_cannot_be_printed_holds_nothing(fixture: &Fixture) {
    to_closed_pipe(fixture.tenure(&["acquire", "x"]));
    assert_eq!(fixture.said(&["show", "x"]), "x: free\n");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = fixture.tenure(&["acquire", "x"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(74));
    let message = String::from_utf8(output.stderr).unwrap();
    let sentence = "tenure: could not write to standard output: No space left on device";
    assert!(message.starts_with(sentence), "{message}");
    assert_eq!(fixture.said(&["show", "x"]), "x: free\n");
}

/// A closed standard output cannot take a handle.
fn a_handle_for_a_closed_output_holds_nothing(fixture: &Fixture) {
    let mut shell = Command::new("sh");
    let script = "\"$0\" acquire x >&-";
    shell.args(["-c", script, env!("CARGO_BIN_EXE_tenure")]).env("TENURE_URL", &fixture.url);
    let output = shell.output().unwrap();
    assert_eq!(output.status.code(), Some(74), "{output:?}");
    assert_eq!(fixture.said(&["show", "x"]), "x: free\n");
    // Discarded on purpose.
    let silent = fixture.tenure(&["acquire", "x"]).stdout(Stdio::null()).status().unwrap();
    assert!(silent.success());
}

/// Messages that cannot be written must not keep a command from being ended in time.
fn a_command_is_supervised_though_its_messages_have_no_reader(fixture: &Fixture) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = fixture.tenure(&["run", "-v", "x", "--", "sleep", "60"]);
    let mut child = command.stderr(writer).spawn().unwrap();
    until("held", || fixture.said(&["show", "x"]).contains("held by"));
    fixture.said(&["release", "--force", "x", "--reason", "a test", "--yes"]);
    assert_eq!(child.wait().unwrap().code(), Some(76));
}

/// A pipe that is not read is full at some time.
fn a_command_is_ended_though_its_messages_are_not_read(fixture: &Fixture) {
    let (reader, writer) = std::io::pipe().unwrap();
    let fill = "head -c 65536 /dev/zero >&2; echo $$; exec sleep 60";
    let mut command = fixture.tenure(&["run", "x", "--", "sh", "-c", fill]);
    let command = command.stdout(Stdio::piped()).stderr(writer);
    let mut child = command.spawn().unwrap();
    let mut pid = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut pid).unwrap();
    fixture.said(&["release", "--force", "x", "--reason", "a test", "--yes"]);
    until("ended", || !is_alive(pid.trim()));
    assert_eq!(child.wait().unwrap().code(), Some(76));
    drop(reader);
}

/// `tenure run … | head`: a broken pipe is the command's own matter.
#[test]
fn the_commands_own_pipe_is_its_own() {
    let fixture = Fixture::local();
    let output = to_closed_pipe(fixture.tenure(&["run", "x", "--", "sh", "-c", "yes; exit 3"]));
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}

#[test]
fn completions_and_manual_pages_are_printed() {
    let said = |arguments: &[&str]| {
        let output = tenure(arguments).output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, text) = said(&["completions", shell]);
        assert!(code == Some(0) && text.contains("conflict-exit-code"), "{shell}");
    }
    assert!(said(&["man"]).1.contains(".TH"));
    let page = said(&["man", "run"]).1;
    assert!(page.contains("kill\\-after"), "{page}");
    assert!(
        page.contains("\ntenure run [OPTIONS] <NAME> \\-\\- <COMMAND>...\n.br\ntenure run "),
        "{page}"
    );
    for section in ["EXAMPLES", "EXIT STATUS", "ENVIRONMENT"] {
        assert!(page.contains(&format!("\n.SH \"{section}\"\n")), "{section}: {page}");
    }
    for subcommand in
        ["run", "elect", "hold", "acquire", "renew", "release", "ls", "show", "watch", "doctor"]
    {
        let help = said(&[subcommand, "--help"]).1;
        for section in ["\nExamples:\n", "\nExit status:\n", "\nEnvironment:\n"] {
            assert!(help.contains(section), "{subcommand}: {help}");
        }
    }
    let missing = "tenure: there is no such subcommand: see `tenure --help`\n".to_owned();
    assert_eq!(said(&["man", "nothing"]), (Some(64), missing));
}
