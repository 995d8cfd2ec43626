//! The client processes of a run: started, stopped, continued, killed and replaced.

use std::io;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::time::pass;

/// How the clients are started.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) url: String,
    pub(crate) registers: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) tasks: u32,
    pub(crate) names: u32,
    pub(crate) seed: u64,
}

/// All client processes.
pub(crate) struct Clients {
    setup: Setup,
    running: Vec<Client>,
    started: u32,
}

struct Client {
    number: u32,
    child: Child,
    /// It ends when this is closed.
    input: Option<ChildStdin>,
}

impl Clients {
    pub(crate) fn start(setup: Setup, count: usize) -> io::Result<Self> {
        let mut clients = Self { setup, running: Vec::new(), started: 0 };
        for _ in 0..count {
            let client = clients.another()?;
            clients.running.push(client);
        }
        Ok(clients)
    }

    fn another(&mut self) -> io::Result<Client> {
        self.started += 1;
        let (number, setup) = (self.started, &self.setup);
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("client").args(["--url", &setup.url]);
        command.arg("--registers").arg(&setup.registers);
        command.arg("--history").arg(setup.folder.join(format!("client-{number}.history")));
        for (option, value) in [
            ("--process", u64::from(number)),
            ("--tasks", setup.tasks.into()),
            ("--names", setup.names.into()),
            ("--seed", setup.seed.wrapping_add(number.into())),
        ] {
            command.arg(option).arg(value.to_string());
        }
        let mut child = command.stdin(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        Ok(Client { number, child, input })
    }

    /// The number of a client, by a random number.
    pub(crate) fn pick(&self, random: &mut fastrand::Rng) -> usize {
        random.usize(..self.running.len())
    }

    /// Kills a client, and starts another one. Returns the number of the process that was killed.
    pub(crate) fn kill(&mut self, client: usize) -> io::Result<u32> {
        let another = self.another()?;
        let mut killed = std::mem::replace(&mut self.running[client], another);
        killed.child.kill()?;
        killed.child.wait()?;
        Ok(killed.number)
    }

    /// Stops a client for a time. Returns its number.
    pub(crate) fn stop(&self, client: usize, time: Duration) -> io::Result<u32> {
        let client = &self.running[client];
        let pid = i32::try_from(client.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("a process without a number"))?;
        kill_process(pid, Signal::STOP)?;
        pass(time);
        kill_process(pid, Signal::CONT)?;
        Ok(client.number)
    }

    /// Has all clients end, and returns how many did so with an error.
    pub(crate) fn end(mut self) -> io::Result<usize> {
        self.running.iter_mut().for_each(|client| drop(client.input.take()));
        let mut failed = 0;
        for client in &mut self.running {
            failed += usize::from(!client.child.wait()?.success());
        }
        self.running.clear();
        Ok(failed)
    }

    /// Resident memory of all clients, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.running.iter().filter_map(|client| resident(client.child.id())).sum()
    }
}

/// Resident memory of a process, in bytes.
pub(crate) fn resident(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

impl Drop for Clients {
    fn drop(&mut self) {
        for client in &mut self.running {
            let _ = client.child.kill();
            let _ = client.child.wait();
        }
    }
}
