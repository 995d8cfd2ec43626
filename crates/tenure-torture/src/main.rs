//! Tries to break the locks of Tenure: many client processes change data under locks, while faults are injected into
//! them and into the servers. A checker then judges the history.
//!
//! `cargo xtask torture --engine quorum --seconds 60`

mod checker;
mod clients;
mod fault;
mod history;
mod nemesis;
mod register;
mod report;
mod residue;
mod stage;
mod time;
mod worker;

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::clients::{Clients, Setup};
use crate::fault::Fault;
use crate::history::History;
use crate::nemesis::Nemesis;
use crate::register::Registers;
use crate::report::Report;
use crate::residue::Residue;
use crate::stage::Engine;
use crate::time::{micros, now, pass};

#[derive(Parser)]
#[command(about = "Tries to break the locks of Tenure, and judges what happened")]
struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Tortures one topology.
    Run(Run),
    /// Judges a recorded history again.
    Check {
        /// The folder with the history.
        folder: PathBuf,
    },
    /// One client process of a run.
    #[command(hide = true)]
    Client(worker::Options),
}

#[derive(Args)]
struct Run {
    /// What is tortured.
    #[arg(long, value_enum)]
    engine: Engine,
    /// For how long.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Determines which faults are injected, and when; a random one is printed.
    #[arg(long)]
    seed: Option<u64>,
    /// Only these faults, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    faults: Vec<Fault>,
    /// How many client processes.
    #[arg(long, default_value_t = 4)]
    clients: usize,
    /// How many tasks in each.
    #[arg(long, default_value_t = 4)]
    tasks: u32,
    /// How many locks they fight for.
    #[arg(long, default_value_t = 4)]
    names: u32,
    /// Keeps the history in this folder.
    #[arg(long, value_name = "FOLDER")]
    history: Option<PathBuf>,
    /// Writes the result to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().action {
        Action::Run(run) => torture(&run),
        Action::Check { folder } => judge(&folder),
        Action::Client(options) => worker::run(&options).map(|()| true),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Judges a recorded history. True if all promises were kept.
fn judge(folder: &Path) -> Result<bool, Box<dyn Error>> {
    let verdict = checker::check(&History::read(folder)?);
    Ok(conclude(&Report { verdict: &verdict, tally: None, residue: None }))
}

/// Tortures one topology. True if all promises were kept.
fn torture(run: &Run) -> Result<bool, Box<dyn Error>> {
    let own = tempfile::tempdir()?;
    let folder = run.history.clone().unwrap_or_else(|| own.path().to_owned());
    std::fs::create_dir_all(&folder)?;
    let seed = run.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("{:?} for {} s, seed {seed}", run.engine, run.seconds);
    // A socket's path is short, which that of a chosen folder need not be.
    let registers = Registers::serve(own.path())?;
    let mut stage = stage::start(run.engine, own.path());
    let before = stage.usage();
    let setup = Setup {
        url: stage.url(),
        registers: registers.path().to_owned(),
        folder: folder.clone(),
        tasks: run.tasks,
        names: run.names,
        seed,
    };
    let mut nemesis = Nemesis::new(&run.faults, &*stage, seed, &folder)?;
    let mut clients = Clients::start(setup, run.clients)?;
    pass(Duration::from_secs(2));
    let early = clients.memory();
    let until = now() + micros(Duration::from_secs(run.seconds));
    let inject = AssertUnwindSafe(|| nemesis.run(until, &mut *stage, &mut clients));
    match catch_unwind(inject) {
        Ok(result) => result?,
        // The servers did not come back: what was recorded until then is judged all the same.
        Err(_) => {
            drop(clients);
            println!("FAILED: the servers could not be repaired after a fault, as said above.");
            judge(&folder)?;
            return Ok(false);
        }
    }
    let memory = (early, clients.memory());
    let failed = clients.end()?;
    let residue = Residue::of(&*stage, before, failed, memory)?;
    let verdict = checker::check(&History::read(&folder)?);
    let report =
        Report { verdict: &verdict, tally: Some(registers.tally()), residue: Some(&residue) };
    if let Some(file) = &run.json {
        std::fs::write(file, format!("{:#}\n", report.json()))?;
    }
    Ok(conclude(&report))
}

fn conclude(report: &Report<'_>) -> bool {
    report.print();
    let failures = report.failures();
    failures.iter().for_each(|failure| println!("FAILED: {failure}."));
    failures.is_empty()
}
