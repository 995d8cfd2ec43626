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

pub(crate) struct Nemesis {
    faults: Vec<Fault>,
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
        Ok(Self { faults, random: fastrand::Rng::with_seed(seed), history })
    }

    /// Injects faults until a moment. Between two of them the clients work undisturbed, for a moment mostly, and sometimes for
    /// long enough that the order of the queue can be judged.
    pub(crate) fn run(
        &mut self,
        until: Micros,
        stage: &mut dyn Stage,
        clients: &mut Clients,
    ) -> io::Result<()> {
        while now() < until {
            let rest = if self.random.u32(..50) == 0 { 9_000 } else { self.random.u64(1..150) };
            pass(Duration::from_millis(rest));
            let fault = self.faults[self.random.usize(..self.faults.len())];
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
