//! `tenure completions` and `tenure man`.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::exit::Exit;
use crate::view::complete;
use crate::view::output::print;

/// Print completions for a shell
#[derive(Args)]
pub(crate) struct Completions {
    shell: Shell,
}

/// Print the manual page, or that of a subcommand
#[derive(Args)]
pub(crate) struct Man {
    /// Such as `run`
    subcommand: Option<String>,
}

pub(crate) fn completions(arguments: &Completions, mut command: Command) -> Result<(), ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "tenure", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    print(match arguments.shell {
        Shell::Bash => script + complete::BASH,
        Shell::Fish => script + complete::FISH,
        Shell::Zsh => zsh(&script),
        _ => script,
    })
}

/// The script, with completion of names and of commands where clap has that of files.
fn zsh(script: &str) -> String {
    let (first, rest) = script.split_once('\n').unwrap_or((script, ""));
    let lines = rest.lines().map(|line| match line {
        line if line.starts_with("':name ") || line.starts_with("'::prefix ") => {
            line.replace(":_default'", ":_tenure_names'")
        }
        line if line.starts_with("'*::words ") => line.replace(":_default'", ":_normal'"),
        line => line.to_owned(),
    });
    format!("{first}\n{}\n{}\n", complete::ZSH, lines.collect::<Vec<_>>().join("\n"))
}

pub(crate) fn man(arguments: &Man, mut command: Command) -> Result<(), ExitCode> {
    command.build();
    let page = match &arguments.subcommand {
        None => Some(command),
        Some(name) => command.find_subcommand(name).cloned(),
    };
    let Some(page) = page else {
        return Err(Exit::Usage.because(&"there is no such subcommand: see `tenure --help`"));
    };
    let text = render(page).map_err(|error| Exit::CannotWrite.because(&error))?;
    print(text)
}

/// The page, with the synopsis of `--help`: that of clap_mangen lacks the two dashes.
fn render(mut command: Command) -> io::Result<Vec<u8>> {
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").replace('-', r"\-");
    let usage = usage.lines().map(str::trim).collect::<Vec<_>>().join("\n.br\n");
    let is_whole = command.has_subcommands();
    let sections = command.get_after_long_help().map(|text| sections(&text.to_string()));
    let man = clap_mangen::Man::new(command);
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    writeln!(text, ".SH SYNOPSIS\n{usage}")?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if is_whole {
        man.render_subcommands_section(&mut text)?;
    }
    text.extend(sections.unwrap_or_default().into_bytes());
    Ok(text)
}

/// The sections behind the options, line by line.
fn sections(help: &str) -> String {
    let mut page = String::new();
    for line in help.lines() {
        let line = line.replace('\\', r"\e").replace('-', r"\-");
        match line.strip_suffix(':') {
            Some(title) if SECTIONS.contains(&title) => {
                page += &format!(".SH \"{}\"\n.nf\n", title.to_uppercase());
            }
            _ => page += &format!("\\&{line}\n"),
        }
    }
    page + ".fi\n"
}

const SECTIONS: [&str; 3] = ["Examples", "Exit status", "Environment"];
