//! The benchmarks of Tenure, each with its goal.
//!
//! `cargo xtask bench` runs this. Every benchmark is measured in a process of its own, several times;
//! the median is reported, with the spread between the lowest and the highest.

mod benchmarks {
    pub(crate) mod callers;
    pub(crate) mod child;
    pub(crate) mod command;
    pub(crate) mod held;
    pub(crate) mod local;
    pub(crate) mod memory;
    pub(crate) mod network;
    pub(crate) mod pairs;
    pub(crate) mod redis;
    pub(crate) mod redis_contended;
    pub(crate) mod redis_kinds;
    pub(crate) mod redis_server;
    pub(crate) mod report;
    pub(crate) mod residue;
}

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use benchmarks::report::{Benchmark, Goal, Report};
use benchmarks::{
    callers, child, command, held, local, memory, network, redis, redis_contended, redis_kinds,
    redis_server, residue,
};
use clap::Parser;

/// All benchmarks, in the order in which they run.
const BENCHMARKS: &[Benchmark] = &[
    Benchmark {
        name: "memory_pair",
        unit: "µs",
        goal: Goal::AtMost(3.0),
        measure: memory::pair,
        what: "uncontended acquire and release by one task",
    },
    Benchmark {
        name: "memory_contended",
        unit: "sections/s",
        goal: Goal::AtLeast(500_000.0),
        measure: memory::contended,
        what: "64 tasks on one name",
    },
    Benchmark {
        name: "held_100k_cpu",
        unit: "% of a core",
        goal: Goal::AtMost(5.0),
        measure: held::cpu,
        what: "100,000 held locks with the watchdog on",
    },
    Benchmark {
        name: "held_100k_bytes",
        unit: "bytes",
        goal: Goal::AtMost(400.0),
        measure: held::bytes,
        what: "client memory per held lock, store included",
    },
    Benchmark {
        name: "local_pair",
        unit: "µs",
        goal: Goal::AtMost(10.0),
        measure: local::pair,
        what: "uncontended acquire and release by one task, in a store on disk",
    },
    Benchmark {
        name: "local_fight",
        unit: "sections/s",
        goal: Goal::AtLeast(50_000.0),
        measure: local::fight_rate,
        what: "two processes on one name, one task each, in a store on disk",
    },
    Benchmark {
        name: "run_overhead",
        unit: "ratio",
        goal: Goal::AtMost(2.0),
        measure: command::run_overhead,
        what: "`tenure run x -- true` over `flock FILE true`",
    },
    Benchmark {
        name: "command_start",
        unit: "ms",
        goal: Goal::AtMost(3.0),
        measure: command::start,
        what: "`tenure --version`",
    },
    Benchmark {
        name: "command_size",
        unit: "MB",
        goal: Goal::AtMost(12.0),
        measure: command::size,
        what: "the release binary",
    },
    Benchmark {
        name: "pair_latency",
        unit: "ratio",
        goal: Goal::AtMost(1.2),
        measure: callers::pair_latency,
        what: "one thread, uncontended acquire and release over two PINGs, each measured alone",
    },
    Benchmark {
        name: "pair_latency_tokio",
        unit: "ratio",
        goal: Goal::AtMost(1.2),
        measure: callers::pair_latency_tokio,
        what: "one task, uncontended acquire and release over two PINGs, each measured alone",
    },
    Benchmark {
        name: "pair_switches",
        unit: "switches",
        goal: Goal::AtMost(2.0),
        measure: callers::pair_switches,
        what: "voluntary context switches of the process per pair of one thread",
    },
    Benchmark {
        name: "tls_pair",
        unit: "ratio",
        goal: Goal::AtMost(1.5),
        measure: callers::tls_pair,
        what: "one thread, uncontended acquire and release over TLS over the same without",
    },
    Benchmark {
        name: "callers_64",
        unit: "ratio",
        goal: Goal::AtLeast(1.1),
        measure: callers::callers_64,
        what: "64 tasks with names of their own, pairs/s over the better of rslock and rlock",
    },
    Benchmark {
        name: "callers_512",
        unit: "ratio",
        goal: Goal::AtLeast(1.1),
        measure: callers::callers_512,
        what: "512 tasks with names of their own, pairs/s over the better of rslock and rlock",
    },
    Benchmark {
        name: "network_pair_1",
        unit: "ratio",
        goal: Goal::AtMost(1.05),
        measure: network::pair_1,
        what: "one caller, 1 ms away: the median of a pair over two round trips",
    },
    Benchmark {
        name: "network_pair_16",
        unit: "ratio",
        goal: Goal::AtMost(1.15),
        measure: network::pair_16,
        what: "16 callers with names of their own, 1 ms away: the same",
    },
    Benchmark {
        name: "network_pair_64",
        unit: "ratio",
        goal: Goal::AtMost(1.25),
        measure: network::pair_64,
        what: "64 callers with names of their own, 1 ms away: the same",
    },
    Benchmark {
        name: "network_handover",
        unit: "ratio",
        goal: Goal::AtMost(1.3),
        measure: network::handover,
        what: "from release to the next holder, two clients, 1 ms away, over one round trip",
    },
    Benchmark {
        name: "pair_throughput",
        unit: "ratio",
        goal: Goal::AtLeast(1.0),
        measure: redis::pair_throughput,
        what: "512 tasks with names of their own over a plain pipelined connection",
    },
    Benchmark {
        name: "server_cost",
        unit: "ratio",
        goal: Goal::AtMost(0.8),
        measure: redis_server::server_cost,
        what: "server CPU per uncontended pair over Redisson's",
    },
    Benchmark {
        name: "contended_local",
        unit: "ratio",
        goal: Goal::AtLeast(20.0),
        measure: redis_contended::local,
        what: "64 tasks of one process on one name, sections/s over PINGs/s",
    },
    Benchmark {
        name: "contended_cross",
        unit: "ratio",
        goal: Goal::AtLeast(0.95),
        measure: redis_contended::cross,
        what: "8 processes on one name, 2 ms section, over one process without a lock",
    },
    Benchmark {
        name: "cross_share",
        unit: "ratio",
        goal: Goal::AtLeast(0.9),
        measure: redis_contended::cross_share,
        what: "of those, the least served over the most served",
    },
    Benchmark {
        name: "cross_wait",
        unit: "ratio",
        goal: Goal::AtMost(2.0),
        measure: redis_contended::cross_wait,
        what: "of those, the worst wait over the ideal",
    },
    Benchmark {
        name: "cross_commands",
        unit: "calls",
        goal: Goal::AtMost(3.0),
        measure: redis_contended::cross_commands,
        what: "of those, server commands per section",
    },
    Benchmark {
        name: "handover",
        unit: "ratio",
        goal: Goal::AtMost(1.3),
        measure: redis_contended::handover,
        what: "from release to the next holder, two processes, over one PING",
    },
    Benchmark {
        name: "handover_relay",
        unit: "ratio",
        goal: Goal::AtMost(2.0),
        measure: redis_contended::handover_relay,
        what: "the same, over a bare message from one process to the other",
    },
    Benchmark {
        name: "two_processes",
        unit: "per second",
        goal: Goal::AtLeast(7_000.0),
        measure: redis_contended::two_processes,
        what: "sections of two processes that do nothing in them",
    },
    Benchmark {
        name: "two_share",
        unit: "ratio",
        goal: Goal::AtLeast(0.9),
        measure: redis_contended::two_share,
        what: "the less served of the two, over the other",
    },
    Benchmark {
        name: "queue_scale",
        unit: "ratio",
        goal: Goal::AtMost(1.5),
        measure: redis_server::queue_scale,
        what: "server CPU per hand-over with 10,000 waiters over with 10",
    },
    Benchmark {
        name: "renew_100k",
        unit: "of a core",
        goal: Goal::AtMost(0.05),
        measure: redis_server::renew_100k,
        what: "server CPU for renewing 100,000 locks; none lost in a minute of load",
    },
    Benchmark {
        name: "memory_per_lock",
        unit: "ratio",
        goal: Goal::AtMost(1.2),
        measure: redis_server::memory_per_lock,
        what: "server memory per held lock over Redisson's hash",
    },
    Benchmark {
        name: "residue",
        unit: "keys",
        goal: Goal::AtMost(16.0),
        measure: residue::keys,
        what: "left 65 s after 200,000 pairs on distinct names",
    },
    Benchmark {
        name: "residue_bytes",
        unit: "bytes",
        goal: Goal::AtMost(180.0),
        measure: residue::bytes,
        what: "of server memory for each of these names, at once",
    },
    Benchmark {
        name: "rw_readers",
        unit: "ratio",
        goal: Goal::AtLeast(0.8),
        measure: redis_kinds::rw_readers,
        what: "64 readers of one process on one name, sections/s over locks on names of their own",
    },
    Benchmark {
        name: "semaphore_1000",
        unit: "ratio",
        goal: Goal::AtMost(1.3),
        measure: redis_kinds::semaphore_1000,
        what: "server CPU per acquire and release beside 1,000 holders over beside 10",
    },
];

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
