//! Injects one fault after the other, by a seed, and records each.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use crate::clients::Clients;
use crate::fault::Fault;
use crate::history::Incident;
use crate::stage::{Stage, upto};
use crate::time::{Micros, now, pass};
use crate::worker::LEASE;

/// How many of a hundred faults are small ones, of those that the topology has: so there are many in an hour, and the clients work
/// meanwhile.
const SMALL: u32 = 75;

/// For so long there are all faults, and then, for as long, only those after which there must never be two holders: otherwise nearly
/// all of a run would be excused.
const PERIOD: Micros = 60_000_000;

pub(crate) struct Nemesis {
    faults: Vec<Fault>,
    /// Those that excuse nothing.
    strict: Vec<Fault>,
    /// The small ones of these.
    small: Vec<Fault>,
    random: fastrand::Rng,
    history: File,
}

impl Nemesis {
    /// With these faults; none means all that the topology has.
    pub(crate) fn new(
        chosen: &[Fault],
        stage: &dyn Stage,
        seed: u64,
        folder: &Path,
    ) -> Result<Self, String> {
        let mut faults = vec![Fault::KillClient, Fault::StopClient];
        faults.extend(stage.faults());
        if let Some(unknown) = chosen.iter().find(|fault| !faults.contains(fault)) {
            return Err(format!("this topology has no fault `{unknown}`"));
        }
        faults.retain(|fault| chosen.is_empty() || chosen.contains(fault));
        let history = File::create(folder.join("faults.history")).map_err(|it| it.to_string())?;
        let strict: Vec<_> = faults.iter().copied().filter(|it| !stage.excuses(*it)).collect();
        let small = strict.iter().copied().filter(|fault| fault.is_small()).collect();
        Ok(Self { faults, strict, small, random: fastrand::Rng::with_seed(seed), history })
    }

    fn choose(&mut self, is_strict: bool) -> Fault {
        let is_small = !self.small.is_empty() && self.random.u32(..100) < SMALL;
        let faults = match is_small {
            true => &self.small,
            false if is_strict && !self.strict.is_empty() => &self.strict,
            false => &self.faults,
        };
        faults[self.random.usize(..faults.len())]
    }

    /// Injects faults until a moment. Between two of them the clients work undisturbed, for a moment mostly, and sometimes for
    /// long enough that the order of the queue can be judged.
    pub(crate) fn run(
        &mut self,
        until: Micros,
        stage: &mut dyn Stage,
        clients: &mut Clients,
    ) -> io::Result<()> {
        let began = now();
        while now() < until {
            let rest = if self.random.u32(..400) == 0 { 9_000 } else { self.random.u64(1..60) };
            pass(Duration::from_millis(rest));
            let fault = self.choose((now() - began) / PERIOD % 2 == 1);
            self.inject(fault, stage, clients)?;
        }
        Ok(())
    }

    fn inject(
        &mut self,
        fault: Fault,
        stage: &mut dyn Stage,
        clients: &mut Clients,
    ) -> io::Result<()> {
        let from = now();
        let process = match fault {
            Fault::KillClient => Some(clients.kill(clients.pick(&mut self.random))?),
            Fault::StopClient => {
                let time = upto(&mut self.random, 4 * LEASE);
                Some(clients.stop(clients.pick(&mut self.random), time)?)
            }
            _ if stage.inject(fault, &mut self.random) => None,
            _ => return Ok(()),
        };
        let excuses = stage.excuses(fault);
        let fault = fault.to_string();
        let incident = Incident { from, until: now(), fault, process, excuses };
        self.history.write_all(format!("{incident}\n").as_bytes())
    }
}
