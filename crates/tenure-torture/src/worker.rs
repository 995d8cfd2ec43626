//! A client process: some tasks take locks, and change the registers under them, until standard input ends.
//!
//! A task writes whether or not it still holds the lock: a late write is what the fence is for. It never writes what it
//! has not read under the same fence.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use tenure::{Error, Guard, Tenure};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::history::{Hold, Section, Written};
use crate::time::{micros, now};

/// The lease of all locks: short, so that many end while a process is stopped.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// How long a task waits for a lock at most.
const WITHIN: Duration = Duration::from_secs(8);

#[derive(Args)]
pub(crate) struct Options {
    #[arg(long)]
    url: String,
    /// Where the registers are.
    #[arg(long)]
    registers: PathBuf,
    /// Where to write the history.
    #[arg(long)]
    history: PathBuf,
    /// The number of this process.
    #[arg(long)]
    process: u32,
    #[arg(long)]
    tasks: u32,
    #[arg(long)]
    names: u32,
    #[arg(long)]
    seed: u64,
}

pub(crate) fn run(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let is_over = Arc::new(AtomicBool::new(false));
    std::thread::spawn({
        let is_over = is_over.clone();
        move || {
            // The coordinator closes it, also by being killed.
            let _ = io::stdin().read(&mut [0]);
            is_over.store(true, Ordering::SeqCst);
        }
    });
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build()?;
    runtime.block_on(work(options, is_over))
}

async fn work(
    options: &Options,
    is_over: Arc<AtomicBool>,
) -> Result<(), Box<dyn std::error::Error>> {
    let tenure = connect(&options.url, &is_over).await?;
    let history = Arc::new(File::options().create(true).append(true).open(&options.history)?);
    let mut tasks = Vec::new();
    for number in 0..options.tasks {
        let task = Task {
            tenure: tenure.clone(),
            registers: BufReader::new(UnixStream::connect(&options.registers).await?),
            history: history.clone(),
            random: fastrand::Rng::with_seed(options.seed ^ u64::from(number) << 32),
            process: options.process,
            names: options.names,
        };
        tasks.push(tokio::spawn(task.run(is_over.clone())));
    }
    for task in tasks {
        task.await??;
    }
    // What was dropped is released before the process ends.
    tenure.flush(Duration::from_secs(5)).await;
    Ok(())
}

/// How often a client tries to connect after the last fault, which the first attempt may have met.
const AFTER_FAULTS: usize = 3;

/// The store may be down at this moment.
async fn connect(url: &str, is_over: &AtomicBool) -> Result<Tenure, Error> {
    let mut after_faults = 0;
    loop {
        let connected = Tenure::builder().lease(LEASE).connect(url).await;
        after_faults += usize::from(is_over.load(Ordering::SeqCst));
        if connected.is_ok() || after_faults == AFTER_FAULTS {
            return connected;
        }
        pause(Duration::from_millis(100)).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "work under a lock takes time")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

struct Task {
    tenure: Tenure,
    registers: BufReader<UnixStream>,
    history: Arc<File>,
    random: fastrand::Rng,
    process: u32,
    names: u32,
}

impl Task {
    async fn run(mut self, is_over: Arc<AtomicBool>) -> io::Result<()> {
        while !is_over.load(Ordering::SeqCst) {
            let section = self.section().await?;
            // One system call for a line, so that no line of another task is within it.
            (&*self.history).write_all(format!("{section}\n").as_bytes())?;
        }
        Ok(())
    }

    async fn section(&mut self) -> io::Result<Section> {
        let (process, name) = (self.process, self.random.u32(..self.names));
        let lock = self.tenure.lock(format!("torture/{name}"));
        let (asked, within) = (now(), micros(WITHIN));
        let acquired = lock.acquire_within(WITHIN).await;
        let returned = now();
        let mut section = Section { process, name, asked, within, returned, hold: None };
        match acquired {
            Ok(guard) => section.hold = Some(self.hold(name, guard).await?),
            // The store cannot be reached: not all at once again.
            Err(_) => pause(Duration::from_millis(self.random.u64(1..20))).await,
        }
        Ok(section)
    }

    /// Reads, works, and writes.
    async fn hold(&mut self, name: u32, guard: Guard) -> io::Result<Hold> {
        let fence = guard.fence().value();
        let mut hold = Hold { fence, held: 0, write: None };
        hold.look(&guard);
        let read = self.ask(&format!("{name} {fence}")).await?;
        let values: Vec<u64> = read.split_ascii_whitespace().flat_map(str::parse).collect();
        // Another one has a later fence already.
        let [fenced, unfenced] = values[..] else { return Ok(hold) };
        match self.random.u32(..1_000) {
            // Longer than a lease, which is renewed meanwhile.
            0 => pause(LEASE + LEASE / 2).await,
            1..20 => pause(Duration::from_millis(self.random.u64(1..20))).await,
            _ => {}
        }
        hold.look(&guard);
        let write = format!("{name} {fence} {} {}", fenced + 1, unfenced + 1);
        let is_accepted = self.ask(&write).await? == "accepted";
        hold.write = Some(if is_accepted { Written::Accepted } else { Written::Refused });
        hold.look(&guard);
        // Without the answer, sometimes: dropping a guard must release, too.
        if self.random.u32(..4) == 0 {
            drop(guard);
        } else {
            let _ = guard.release().await;
        }
        Ok(hold)
    }

    async fn ask(&mut self, question: &str) -> io::Result<String> {
        self.registers.write_all(format!("{question}\n").as_bytes()).await?;
        let mut answer = String::new();
        self.registers.read_line(&mut answer).await?;
        Ok(answer.trim_end().to_owned())
    }
}

impl Hold {
    /// The clock is read before the guard is asked: what it says then held at that moment, too.
    fn look(&mut self, guard: &Guard) {
        let at = now();
        if !guard.is_lost() {
            self.held = at;
        }
    }
}
