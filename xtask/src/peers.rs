//! `cargo xtask bench-peers`: Tenure beside other lock libraries. The same work on the same server in the same minute, done by the
//! programs in `bench/peers`.
//!
//! The figures of two runs are seldom comparable, those of one run are: each round of a work runs a peer, and Tenure right after
//! it, and all ratios are of such pairs.

mod chart;
mod document;
mod info;
mod machine;
mod metric;
mod peer;
mod process;
mod report;
mod results;
mod run;
mod statistics;
mod store;
mod table;
mod work;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::sh::{self, Failure, Outcome};
use metric::Values;
use peer::{Peer, Program};
use results::{Results, Round, Row};
use run::{Effort, Run};
use store::Store;
use work::{Place, Work};

#[derive(Args)]
pub(crate) struct Options {
    /// Compare with these peers only, separated by commas; --list names them all.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    only: Vec<String>,
    /// Do these works only, separated by commas; --list names them all.
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    work: Vec<String>,
    /// How often each peer does each work, and Tenure after it [default: 3, or 1 with --quick].
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// How long each does it [default: 3, or 0.3 with --quick].
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// The pause of clients that poll for a lock, in µs, instead of the one that was found best for the work.
    #[arg(long, value_name = "US")]
    poll_us: Option<f64>,
    /// Only see that everything works: the figures mean nothing.
    #[arg(long)]
    quick: bool,
    /// Also write all results to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw a chart of each work in this folder.
    #[arg(long, value_name = "FOLDER")]
    svg: Option<PathBuf>,
    /// Also write tables to this file, in Markdown: docs/peers.md, for example.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// List the peers and the works, and stop.
    #[arg(long)]
    list: bool,
}

impl Options {
    fn effort(&self) -> Effort {
        Effort {
            seconds: self.seconds.unwrap_or(if self.quick { 0.3 } else { 3.0 }),
            warm_part: if self.quick { 0.2 } else { 1.0 },
            names: if self.quick { 5_000 } else { 200_000 },
            poll_us: self.poll_us,
        }
    }

    fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 1 } else { 3 }).max(1)
    }

    /// How much was measured, in words. One round has no spread, and is no result.
    fn how(&self) -> String {
        let (rounds, seconds) = (self.rounds(), self.effort().seconds);
        let plural = if rounds == 1 { "" } else { "s" };
        let warning = if rounds < 3 { ", too few for a result" } else { "" };
        format!("{rounds} round{plural} of {seconds} s{warning}")
    }
}

pub(crate) fn run(options: &Options) -> Outcome {
    if options.list {
        list();
        return Ok(());
    }
    let peers = chosen(peer::ALL, &options.only, |peer| peer.name, "peer")?;
    let works = chosen(work::ALL, &options.work, |work| work.name, "work")?;
    tenure_testkit::program::of_tests().map_err(Failure::new)?;
    sh::say("building the programs in bench/peers; the first time this takes minutes");
    let tenure = peer::TENURE.build().map_err(|why| Failure::new(format!("Tenure: {why}.")))?;
    let (programs, skipped) = build(&peers);
    let facts = machine::facts(&Store::start(Place::Near).version());
    let mut all = Vec::new();
    for work in works {
        let results = measure(work, &tenure, &programs, options)?;
        if results.rows.is_empty() {
            sh::say(format!("{}: left out, because none of these peers has it", work.name));
            continue;
        }
        println!("{}", table::terminal(&results));
        all.push(results);
    }
    println!("◀: better than Tenure beside it. ↓: less is better. ↑: more is better.");
    println!("Medians of {}, with the lowest and the highest.", options.how());
    skipped.iter().for_each(|why| println!("{why}"));
    write(options, &all, &facts, &skipped)
}

fn list() {
    println!("peers:");
    peer::ALL.iter().for_each(|peer| println!("  {:18} {}", peer.name, peer.title));
    println!("works:");
    work::ALL.iter().for_each(|work| println!("  {:18} {}", work.name, work.what));
}

/// Those with the names, in the order of the list; all of them without names.
fn chosen<T>(
    all: &'static [T],
    names: &[String],
    name: impl Fn(&T) -> &'static str,
    kind: &str,
) -> Outcome<Vec<&'static T>> {
    if let Some(unknown) = names.iter().find(|it| all.iter().all(|one| name(one) != *it)) {
        let known = all.iter().map(&name).collect::<Vec<_>>().join(", ");
        return Err(Failure::new(format!("there is no {kind} {unknown}; there are {known}.")));
    }
    let is_chosen = |one: &&T| names.is_empty() || names.iter().any(|it| it == name(one));
    Ok(all.iter().filter(is_chosen).collect())
}

/// The programs that can be built, and a sentence for each other one.
fn build(peers: &[&'static Peer]) -> (Vec<Program>, Vec<String>) {
    let (mut programs, mut skipped) = (Vec::new(), Vec::new());
    for peer in peers {
        match peer.build() {
            Ok(program) => programs.push(program),
            Err(why) => {
                let sentence = format!("{} was left out: {why}.", peer.title);
                sh::say(&sentence);
                skipped.push(sentence);
            }
        }
    }
    (programs, skipped)
}

/// All rounds of a work.
fn measure(
    work: &'static Work,
    tenure: &Program,
    programs: &[Program],
    options: &Options,
) -> Outcome<Results> {
    let can = |program: &&Program| work.place != Place::Five || program.peer.has_redlock;
    let programs: Vec<_> = programs.iter().filter(can).collect();
    let store = Store::start(work.place);
    let failed = |why| Failure::new(format!("{}: Tenure: {why}.", work.name));
    run::prepare(tenure, &store, work.place).map_err(failed)?;
    let rows = programs.iter().map(|program| Row::new(program.peer)).collect();
    let mut results = Results { work, rows, tenure_version: String::new(), pings: Vec::new() };
    let mut later = Values::new();
    for round in 0..options.rounds() {
        for (index, program) in programs.iter().enumerate() {
            let name = program.peer.name;
            sh::say(format!("{}: round {}: {name}, and Tenure beside it", work.name, round + 1));
            let one = |program: &Program, waits| {
                let prefix = format!("{}/{name}/{round}/{}", work.name, program.peer.name);
                run::run(program, work, &store, options.effort(), &prefix, waits)
            };
            // What is left later is the same in all rounds, and takes a minute to see.
            let waits = round == 0 && !options.quick;
            let theirs = one(program, waits);
            let mut ours = one(tenure, waits && later.is_empty()).map_err(failed)?;
            later.extend(ours.values.iter().filter(|(key, _)| key.ends_with("_later")));
            if waits {
                ours.values.extend(&later);
            }
            results.add(index, theirs, ours);
        }
    }
    Ok(results)
}

impl Results {
    fn add(&mut self, index: usize, theirs: Result<Run, String>, ours: Run) {
        let row = &mut self.rows[index];
        self.tenure_version = ours.version;
        self.pings.push(ours.ping_us);
        match theirs {
            Ok(theirs) => {
                row.version = theirs.version;
                self.pings.push(theirs.ping_us);
                row.rounds.push(Round { peer: theirs.values, tenure: ours.values });
            }
            Err(why) => {
                sh::say(format!("{}: {}: {why}", self.work.name, row.peer.title));
                row.failures.push(why);
            }
        }
    }
}

/// Writes the files that the options name.
fn write(
    options: &Options,
    all: &[Results],
    facts: &machine::Facts,
    skipped: &[String],
) -> Outcome {
    if let Some(file) = &options.json {
        save(file, &format!("{:#}\n", document::json(all, facts, skipped)))?;
    }
    if let Some(file) = &options.markdown {
        save(file, &table::markdown(all, facts, skipped, &options.how()))?;
    }
    if let Some(folder) = &options.svg {
        fs::create_dir_all(folder).map_err(|error| cannot(folder, &error))?;
        for results in all {
            if let Some(chart) = chart::svg(results) {
                save(&folder.join(format!("peers-{}.svg", results.work.name)), &chart)?;
            }
        }
    }
    Ok(())
}

fn save(file: &Path, text: &str) -> Outcome {
    fs::write(file, text).map_err(|error| cannot(file, &error))?;
    sh::say(format!("wrote {}", file.display()));
    Ok(())
}

fn cannot(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("could not write {}: {error}.", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(chosen: Outcome<Vec<&'static Peer>>) -> Vec<&'static str> {
        chosen.unwrap().iter().map(|peer| peer.name).collect()
    }

    #[test]
    fn peers_are_chosen_by_their_names() {
        let of = |only: &[&str]| {
            let only: Vec<_> = only.iter().map(|name| (*name).to_owned()).collect();
            chosen(peer::ALL, &only, |peer| peer.name, "peer")
        };
        assert_eq!(names(of(&[])).len(), peer::ALL.len());
        assert_eq!(names(of(&["rlock", "redsync"])), ["redsync", "rlock"]);
        let unknown = of(&["rdlock"]).unwrap_err().to_string();
        assert!(unknown.starts_with("there is no peer rdlock; there are redisson, "), "{unknown}");
    }
}
