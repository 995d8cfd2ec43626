//! `tenure lab`: the history of distributed locks, stage by stage, on real servers under real faults.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use tenure_lab::report::StageReport;
use tenure_lab::stages::{self, Stage};
use tenure_lab::{LEGEND, Lab, Source, svg};

use crate::exit::Exit;
use crate::view::help;
use crate::view::output::{columns, print};

/// Break the locks of the past, one fault at a time, with Tenure beside them.
///
/// Each stage is an experiment with real processes on real servers, which the lab starts and stops: what the lock was, which
/// fault is injected, who believed when to hold it, and what Tenure does under the same fault. Without --stage and --all
/// the stages are listed. The exit status is 1 if Tenure was broken, and 69 if no stage could be run.
#[derive(Args)]
#[command(after_long_help = help::LAB)]
pub(crate) struct Arguments {
    /// Run this stage; may be given several times
    #[arg(long, value_name = "N", value_parser = stage, conflicts_with = "all")]
    stage: Vec<usize>,
    /// Run all stages: about a minute
    #[arg(long)]
    all: bool,
    /// Also draw the timelines into this SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON for programs, as docs/cli.md describes it: every event, and the verdicts
    #[arg(long)]
    json: bool,
    /// Use this server, which others may use, too, in place of servers of its own; stages that stop servers are not run
    #[arg(long, conflicts_with = "server")]
    url: Option<String>,
    /// The program of the servers that are started; otherwise redis-server or valkey-server on the PATH
    #[arg(long, value_name = "PROGRAM")]
    server: Option<PathBuf>,
}

fn stage(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| Stage::of(*number).is_some());
    number.ok_or_else(|| format!("the stages are 1 to {}", stages::ALL.len()))
}

pub(crate) fn lab(arguments: &Arguments) -> Result<(), ExitCode> {
    let chosen = |stage: &&Stage| arguments.all || arguments.stage.contains(&stage.number);
    let chosen: Vec<_> = stages::ALL.iter().filter(chosen).map(|stage| stage.number).collect();
    if chosen.is_empty() {
        return list(arguments.json);
    }
    let source = match (&arguments.url, &arguments.server) {
        (Some(url), _) => Ok(Source::Url(url.clone())),
        (None, Some(program)) => Ok(Source::Program(program.clone())),
        (None, None) => Source::installed(),
    };
    let source = source.map_err(|why| Exit::Unavailable.because(&why))?;
    let program = std::env::current_exe().map_err(|error| Exit::System.because(&error))?;
    // An experiment that cannot be done says why in its report.
    std::panic::set_hook(Box::new(|_| {}));
    let lab = Lab { program, source };
    let stages = chosen.into_iter().filter_map(Stage::of);
    let reports: Result<Vec<_>, _> = stages.map(|stage| run(&lab, stage, arguments)).collect();
    conclude(&reports?, arguments)
}

fn list(is_json: bool) -> Result<(), ExitCode> {
    if is_json {
        let stages = stages::ALL
            .iter()
            .map(|it| json!({ "stage": it.number, "title": it.title, "fault": it.fault }));
        return print(format!("{}\n", json!({ "stages": stages.collect::<Vec<_>>() })));
    }
    let lines =
        stages::ALL.iter().map(|it| format!("{:>3}  {}: {}\n", it.number, it.title, it.fault));
    print(
        lines.collect::<String>()
            + "\nRun one by `tenure lab --stage N`, or all by `tenure lab --all`.\n",
    )
}

/// Runs a stage, and prints it at once.
fn run(lab: &Lab, stage: &'static Stage, arguments: &Arguments) -> Result<StageReport, ExitCode> {
    let report = lab.run(stage);
    let has_colours = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let columns = columns().map_or(100, |columns| usize::from(columns).clamp(40, 120));
    print(match arguments.json {
        true => format!("{}\n", report.json()),
        false => format!("{}\n", report.text(columns, has_colours)),
    })?;
    Ok(report)
}

fn conclude(reports: &[StageReport], arguments: &Arguments) -> Result<(), ExitCode> {
    if let Some(file) = &arguments.svg {
        fs::write(file, svg(reports)).map_err(|error| {
            Exit::CannotWrite.because(&format!("could not write {}: {error}", file.display()))
        })?;
    }
    let run: Vec<_> = reports.iter().filter(|report| report.sides.is_ok()).collect();
    if !arguments.json {
        let broken = run.iter().filter(|report| report.is_historic_broken() == Some(true)).count();
        let held = run.iter().filter(|report| report.has_tenure_held() == Some(true)).count();
        let count = run.len();
        let not_run = match reports.len() - count {
            0 => String::new(),
            number => format!(" {number} not run."),
        };
        print(format!(
            "{LEGEND}\n\n{count} run: the locks of the time were broken in {broken}, Tenure held in {held}.{not_run}\n"
        ))?;
    }
    if run.is_empty() {
        return Err(Exit::Unavailable.into());
    }
    match run.iter().all(|report| report.has_tenure_held() == Some(true)) {
        true => Ok(()),
        false => Err(ExitCode::FAILURE),
    }
}
