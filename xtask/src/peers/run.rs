//! One run: the processes of one program do one work.

use std::time::Duration;

use super::info::Cost;
use super::metric::Values;
use super::peer::Program;
use super::process::Process;
use super::report::Crowd;
use super::store::{self, Store};
use super::work::{Place, Work};

/// After this time all is gone that a lock keeps for a minute after its release.
const LATER: Duration = Duration::from_secs(65);

/// Fewer keys than this are not those of the names.
const FEW_KEYS: f64 = 16.0;

/// How long, and how much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) seconds: f64,
    /// Of the time that a program is given to warm up.
    pub(crate) warm_part: f64,
    pub(crate) names: u64,
    pub(crate) poll_us: Option<f64>,
}

/// What a run had for results.
pub(crate) struct Run {
    pub(crate) version: String,
    pub(crate) values: Values,
    /// The median of a PING, in µs.
    pub(crate) ping_us: f64,
}

/// Runs the program. `waits` is whether what is left of names is measured again later. The error is a sentence.
pub(crate) fn run(
    program: &Program,
    work: &Work,
    store: &Store,
    effort: Effort,
    prefix: &str,
    waits: bool,
) -> Result<Run, String> {
    store.clear()?;
    let bytes_before = store.stored()?.1;
    let warm = program.peer.warm_seconds * effort.warm_part;
    let spawn = |_| Process::spawn(command(program, work, store, effort, prefix));
    let mut processes = (0..work.processes).map(spawn).collect::<Result<Vec<_>, _>>()?;
    processes.iter_mut().try_for_each(|process| process.wait(warm))?;
    // What the warming up left is not counted.
    let keys_before = store.stored()?.0;
    let mut servers = store.connect()?;
    let ping_before = store.ping_us()?;
    let begun = store::begin(&mut servers)?;
    processes.iter_mut().try_for_each(Process::start)?;
    let reports = processes.iter_mut().map(|process| process.report(effort.seconds));
    let reports = reports.collect::<Result<Vec<_>, _>>()?;
    let cost = store::cost(begun, &mut servers)?;
    let ping_us = (ping_before + store.ping_us()?) / 2.0;
    drop(processes);
    let version = reports.first().map(|report| report.version.clone()).unwrap_or_default();
    let crowd = Crowd::new(reports);
    if crowd.count() == 0.0 {
        return Err("it was never served".into());
    }
    let mut values = values(work, &crowd, effort.seconds, ping_us);
    values.extend(costs(cost, crowd.count()));
    if work.of_program == "names" {
        values.extend(left(store, (keys_before, bytes_before), waits)?);
    }
    Ok(Run { version, values, ping_us })
}

fn command(
    program: &Program,
    work: &Work,
    store: &Store,
    effort: Effort,
    prefix: &str,
) -> std::process::Command {
    let mut command = program.command();
    let poll_us = effort.poll_us.unwrap_or(work.poll_us);
    let warm = program.peer.warm_seconds * effort.warm_part;
    let options = [
        ("--url", store.urls()),
        ("--work", work.of_program.into()),
        ("--callers", work.callers.to_string()),
        ("--seconds", effort.seconds.to_string()),
        ("--warm-seconds", warm.to_string()),
        ("--section-ms", work.section_ms.to_string()),
        ("--pause-ms", work.pause_ms.to_string()),
        ("--name", prefix.into()),
        ("--count", effort.names.to_string()),
        ("--poll-us", poll_us.to_string()),
    ];
    for (option, value) in options {
        command.args([option, value.as_str()]);
    }
    command
}

/// Marks the servers of a quorum, which Tenure asks for once.
pub(crate) fn prepare(tenure: &Program, store: &Store, place: Place) -> Result<(), String> {
    if place != Place::Five {
        return Ok(());
    }
    let mut command = tenure.command();
    command.args(["--url", &store.urls(), "--work", "prepare"]);
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("the quorum cannot be prepared: {other:?}")),
    }
}

fn values(work: &Work, crowd: &Crowd, seconds: f64, ping_us: f64) -> Values {
    let is_timed = work.of_program != "names";
    let rate = if is_timed { crowd.rate(seconds) } else { crowd.whole_rate() };
    let [p50, p99, worst] = crowd.waits_ms([0.5, 0.99, 1.0]);
    let mut values = Values::from([("rate", rate), ("ping_us", ping_us)]);
    let mut add = |key, value: Option<f64>| values.extend(value.map(|value| (key, value)));
    add("pair_us", crowd.pair_us());
    add("pair_over_pings", crowd.pair_us().map(|pair| pair / (2.0 * ping_us)));
    if work.is_shared() {
        add("wait_p50_ms", p50);
        add("wait_p99_ms", p99);
        add("wait_worst_ms", worst);
        add("held_percent", Some(crowd.held_percent(seconds)));
        add("overlaps", crowd.overlaps());
    }
    if work.processes > 1 {
        add("share", crowd.share(seconds));
        add("hand_over_us", crowd.hand_over_us());
        add("hand_over_over_ping", crowd.hand_over_us().map(|time| time / ping_us));
    }
    values
}

/// Of one section.
fn costs(cost: Cost, sections: f64) -> Values {
    let Cost { commands, scripts, bytes_in, bytes_out, cpu_us } = cost;
    let all = [
        ("commands", commands),
        ("scripts", scripts),
        ("bytes_in", bytes_in),
        ("bytes_out", bytes_out),
        ("server_us", cpu_us),
    ];
    all.into_iter().map(|(key, value)| (key, value / sections)).collect()
}

/// Keys and bytes that are there and were not before.
fn left(store: &Store, before: (f64, f64), waits: bool) -> Result<Values, String> {
    // What the warming up left may be gone by then, too.
    let since = |now: (f64, f64)| ((now.0 - before.0).max(0.0), (now.1 - before.1).max(0.0));
    let (keys, bytes) = since(store.stored()?);
    let mut values = Values::from([("keys", keys), ("bytes_left", bytes)]);
    let is_little = keys <= FEW_KEYS;
    if waits && !is_little {
        pass(LATER);
    }
    if waits || is_little {
        let (keys, bytes) = since(store.stored()?);
        values.extend([("keys_later", keys), ("bytes_later", bytes)]);
    }
    Ok(values)
}

#[expect(clippy::disallowed_methods, reason = "only time is to pass here")]
fn pass(time: Duration) {
    std::thread::sleep(time);
}
