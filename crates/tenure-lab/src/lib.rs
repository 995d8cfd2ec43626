//! The lab: every stage of the history of distributed locks, run on real servers under a real fault, with Tenure beside it.
//!
//! - [`stages`]: how the lock was made at the time, what breaks it, and what the clients do; `historic` has those locks.
//! - `experiment`: servers, clients in processes of their own ([`client`]), and faults: real kills, stops and failovers.
//! - [`history`]: what happened, in order. [`checker`] judges it, and knows nothing but it.
//! - `timeline`, `drawing`, [`svg`], [`report`]: pictures and words.

pub mod checker;
pub mod client;
mod drawing;
mod experiment;
mod historic;
pub mod history;
mod link;
pub mod report;
mod servers;
pub mod stages;
mod svg;
mod time;
mod timeline;

pub use drawing::LEGEND;
pub use experiment::Side;
pub use servers::{Needs, Source};
pub use svg::svg;

use std::path::PathBuf;

use checker::Verdict;
use experiment::{Experiment, Outcome};
use report::{SideReport, StageReport};
use stages::Stage;
use time::{millis, now};

/// Runs experiments.
#[derive(Clone, Debug)]
pub struct Lab {
    /// The program that becomes a client when it is started as [`client::NAME`].
    pub program: PathBuf,
    /// Where the servers come from.
    pub source: Source,
}

impl Lab {
    /// Runs a stage: with the lock of that time and with Tenure, each on servers of its own, at the same time.
    pub fn run(&self, stage: &'static Stage) -> StageReport {
        let sides = [Side::Historic(stage.number), Side::Tenure];
        let run = |side| {
            let lab = self.clone();
            std::thread::spawn(move || lab.run_side(stage, side))
        };
        let [historic, tenure] = sides.map(run).map(|thread| {
            // The servers of the testkit panic with a sentence.
            thread.join().unwrap_or_else(|panic| Err(sentence(&*panic)))
        });
        let sides = historic.and_then(|historic| Ok([historic, tenure?]));
        StageReport { stage, sides }
    }

    fn run_side(&self, stage: &'static Stage, side: Side) -> Outcome<SideReport> {
        let servers = self.source.provide(stage.needs)?;
        let word = if side == Side::Tenure { "tenure" } else { "historic" };
        // Unlike any other one, on a server that others use.
        let key = format!("tenure-lab:{}:{word}:{}", stage.number, now());
        let lease = millis(stage.lease);
        let mut experiment = Experiment::new(side, &key, lease, self.program.clone(), servers);
        if experiment.is_tenure() {
            experiment.replicas = stage.replicas;
        }
        (stage.play)(&mut experiment)?;
        let (history, requests) = experiment.finish();
        let verdict = Verdict::of(&history, &stage.bounds(), requests);
        Ok(SideReport { side, history, verdict })
    }
}

fn sentence(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("an experiment ended midway").to_owned()
}
