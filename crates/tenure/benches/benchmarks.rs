//! The benchmarks of Tenure, each with its goal.
//!
//! `cargo xtask bench` runs this. Every benchmark is measured in a process of its own, several times;
//! the median is reported, with the spread between the lowest and the highest.

mod benchmarks {
    pub(crate) mod callers;
    pub(crate) mod child;
    pub(crate) mod command;
    pub(crate) mod held;
    pub(crate) mod http;
    pub(crate) mod list;
    pub(crate) mod local;
    pub(crate) mod memory;
    pub(crate) mod network;
    pub(crate) mod pairs;
    pub(crate) mod quorum;
    pub(crate) mod redis;
    pub(crate) mod redis_contended;
    pub(crate) mod redis_kinds;
    pub(crate) mod redis_server;
    pub(crate) mod redisson;
    pub(crate) mod report;
    pub(crate) mod residue;
    pub(crate) mod scale;
    pub(crate) mod topologies;
}

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use benchmarks::child;
use benchmarks::list::BENCHMARKS;
use benchmarks::report::{Benchmark, Report};
use clap::Parser;

/// Measures Tenure.
#[derive(Parser)]
struct Arguments {
    /// Only these benchmarks
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<String>,
    /// Also write the results to FILE as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// List the benchmarks
    #[arg(long)]
    list: bool,
    /// Print the measurements of one benchmark, in this process
    #[arg(long, hide = true)]
    measure: Option<String>,
    /// Run as a child of a measurement: its role, the server, and the shared file
    #[arg(long, hide = true, num_args = 3)]
    child: Vec<String>,
    /// Passed by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let [role, url, shared] = &arguments.child[..] {
        child::be(role, url, shared);
        return ExitCode::SUCCESS;
    }
    if let Some(name) = &arguments.measure {
        let benchmark = BENCHMARKS.iter().find(|benchmark| benchmark.name == name);
        for value in (benchmark.expect("the parent names a benchmark").measure)() {
            println!("{value}");
        }
        return ExitCode::SUCCESS;
    }
    if arguments.list {
        BENCHMARKS
            .iter()
            .for_each(|benchmark| println!("{:18} {}", benchmark.name, benchmark.what));
        return ExitCode::SUCCESS;
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("{sentence}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let unknown = arguments.only.iter().find(|name| BENCHMARKS.iter().all(|it| it.name != **name));
    if let Some(name) = unknown {
        return Err(format!("there is no benchmark `{name}`; --list shows all"));
    }
    let is_wanted = |benchmark: &&Benchmark| {
        arguments.only.is_empty() || arguments.only.iter().any(|name| name == benchmark.name)
    };
    let mut reports = Vec::new();
    for benchmark in BENCHMARKS.iter().filter(is_wanted) {
        let report = Report::new(benchmark, measure_apart(benchmark)?);
        println!("{report}");
        reports.push(report.json());
    }
    match &arguments.json {
        Some(path) => write_json(path, reports),
        None => Ok(()),
    }
}

/// Measures in a new process, so that no result depends on an earlier benchmark.
fn measure_apart(benchmark: &Benchmark) -> Result<Vec<f64>, String> {
    let failed = |why: String| format!("{} could not be measured: {why}", benchmark.name);
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(program);
    let output = command.args(["--measure", benchmark.name]).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(output.status.to_string()));
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    lines.lines().map(|line| line.parse().map_err(|_| failed(line.to_owned()))).collect()
}

fn write_json(path: &PathBuf, reports: Vec<serde_json::Value>) -> Result<(), String> {
    let text = format!("{:#}\n", serde_json::Value::Array(reports));
    std::fs::write(path, text).map_err(|error| format!("could not write {path:?}: {error}"))
}
