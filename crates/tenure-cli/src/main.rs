//! The `tenure` command: any command under a lock, from the shell.
//!
//! ```text
//! exec/      runs a command under a lock: `run`, `elect`, and `hold` for scripts
//! detached   locks that outlive the command: `acquire`, `renew`, `release`
//! view/      shows locks and stores: `ls`, `show`, `watch`, `doctor`; also `completions` and `man`
//! exporter   serves metrics of a store
//! lab        runs the history of distributed locks, and breaks it
//! serve      serves the dashboard and the HTTP interface
//! quorum     marks servers as the nodes of a quorum
//! args/      arguments that several subcommands share
//! exit       exit statuses
//! ```

mod args;
mod detached;
mod exec;
mod exit;
mod exporter;
mod lab;
mod quorum;
mod serve;
mod view;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use exec::{elect, guardian, hold, holder, limits, run};
use exit::Exit;
use view::output::{self, say};
use view::{complete, doctor, generate, help, inspect, watch};

/// Any command under a lock.
#[derive(Parser)]
#[command(after_long_help = help::ALL)]
#[command(name = "tenure", version, max_term_width = 100, color = output::colour())]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Arguments),
    Elect(elect::Arguments),
    Hold(hold::Arguments),
    Acquire(detached::Acquire),
    Renew(detached::Renew),
    Release(detached::Release),
    Ls(inspect::List),
    Show(inspect::Show),
    Watch(watch::Arguments),
    Doctor(doctor::Arguments),
    Quorum(quorum::Arguments),
    Serve(serve::Arguments),
    Exporter(exporter::Arguments),
    Lab(lab::Arguments),
    Completions(generate::Completions),
    Man(generate::Man),
    #[command(hide = true)]
    CompleteNames(complete::Arguments),
}

fn main() -> ExitCode {
    if is_called(guardian::NAME) {
        return guardian::main();
    }
    if is_called(tenure_lab::client::NAME) {
        return tenure_lab::client::main();
    }
    let code = match limits::ensure() {
        Ok(()) => run_subcommand(),
        Err(_) if is_hold() => hold::fail(Exit::System as u8),
        Err(code) => code,
    };
    output::finish();
    code
}

/// Whether this process was started under this name, by another `tenure`.
fn is_called(name: &str) -> bool {
    std::env::args_os().next().is_some_and(|first| first == name)
}

fn run_subcommand() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are no errors. A failed print cannot be reported.
            let _ = error.print();
            if error.kind() == ErrorKind::UnknownArgument && lacks_dashes() {
                say("the command comes behind two dashes: tenure run NAME -- COMMAND");
            }
            return match error.use_stderr() {
                true if is_hold() => hold::fail(Exit::Usage as u8),
                true => Exit::Usage.into(),
                false => ExitCode::SUCCESS,
            };
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return Exit::System.because(&error),
    };
    let ended = match arguments.command {
        // The exit status of these is that of the command that they run.
        Command::Run(arguments) => return runtime.block_on(run::run(arguments)),
        Command::Elect(arguments) => return runtime.block_on(elect::elect(arguments)),
        Command::Hold(arguments) if is_called(holder::NAME) => {
            return runtime.block_on(holder::hold(arguments));
        }
        Command::Hold(_) => return runtime.block_on(hold::hold()),
        Command::Acquire(arguments) => runtime.block_on(detached::acquire(arguments)),
        Command::Renew(arguments) => runtime.block_on(detached::renew(arguments)),
        Command::Release(arguments) => runtime.block_on(detached::release(arguments)),
        Command::Ls(arguments) => runtime.block_on(inspect::list(arguments)),
        Command::Show(arguments) => runtime.block_on(inspect::show(arguments)),
        Command::Watch(arguments) => runtime.block_on(watch::watch(arguments)),
        Command::Doctor(arguments) => runtime.block_on(doctor::doctor(arguments)),
        Command::Quorum(arguments) => runtime.block_on(quorum::quorum(arguments)),
        Command::Serve(arguments) => runtime.block_on(serve::serve(arguments)),
        Command::Exporter(arguments) => runtime.block_on(exporter::serve(arguments)),
        Command::Lab(arguments) => lab::lab(&arguments),
        Command::Completions(arguments) => generate::completions(&arguments, Arguments::command()),
        Command::CompleteNames(arguments) => {
            runtime.block_on(complete::names(arguments, Arguments::command()))
        }
        Command::Man(arguments) => generate::man(&arguments, Arguments::command()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(code) => code,
    }
}

/// Whether a shell evaluates the output: an error is to be an error there, too.
fn is_hold() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == "hold") && !is_called(holder::NAME)
}

/// Whether a command is to be run, and no `--` says where it begins.
fn lacks_dashes() -> bool {
    let mut words = std::env::args_os().skip(1);
    words.next().is_some_and(|word| word == "run" || word == "elect")
        && words.all(|word| word != "--" && word != "-c")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const MANUAL: &str = include_str!("../../../docs/cli.md");

    /// The words of a text, options among them.
    fn words(text: &str) -> BTreeSet<&str> {
        text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect()
    }

    /// What the manual says of a subcommand: from its name to the next one.
    fn section(name: &str) -> String {
        let beginning = format!("`tenure {name}");
        let begins = MANUAL.match_indices(&beginning).map(|(at, _)| at);
        let rest = begins.map(|at| &MANUAL[at..]);
        let parts = rest.map(|rest| {
            let ends = ["\n## ", "\n- `tenure "].iter().filter_map(|end| rest.find(end)).min();
            &rest[..ends.unwrap_or(rest.len())]
        });
        parts.collect()
    }

    #[test]
    fn every_subcommand_and_option_is_documented() {
        for command in Arguments::command().get_subcommands() {
            let name = command.get_name();
            let section = section(name);
            let documented = words(&section);
            assert!(documented.contains(name), "{name}");
            // These are documented for several subcommands at once.
            let own = command
                .get_arguments()
                .filter(|it| !matches!(it.get_id().as_str(), "json" | "url"));
            for option in own {
                let long = option.get_long().map(|long| format!("--{long}"));
                let short = option.get_short().map(|short| format!("-{short}"));
                let forms: Vec<_> = [long, short].into_iter().flatten().collect();
                let is_told = forms.iter().any(|form| documented.contains(&**form));
                assert!(forms.is_empty() || is_told, "{name} {forms:?}");
            }
        }
    }

    #[test]
    fn every_exit_status_is_documented() {
        let documented = words(MANUAL);
        for exit in [
            Exit::Usage,
            Exit::Unavailable,
            Exit::System,
            Exit::CannotWrite,
            Exit::NotAcquired,
            Exit::Lost,
            Exit::CannotRun,
            Exit::NotFound,
            Exit::BrokenPipe,
        ] {
            assert!(documented.contains(&*(exit as u8).to_string()), "{exit:?}");
        }
    }
}
