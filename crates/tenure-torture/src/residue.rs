//! What is left behind when all clients have ended: nothing may be.

use std::time::Duration;

use tenure::blocking::block_on;
use tenure::{Error, Tenure};

use crate::stage::{Stage, Usage};
use crate::time::{Micros, now, pass};
use crate::worker::LEASE;

/// Growth of memory that a server, or the clients, may show in a run: buffers and fragmentation, but no leak.
const GROWTH: u64 = 64 * 1024 * 1024;

/// How long servers may take to be usable again after the last fault: nodes of a quorum are without a vote for a time.
const PATIENCE: Micros = 60_000_000;

/// A waiter that was killed is dead after 15 s; what is handed over to one that was stopped ends with its lease after that.
const DEAD_WAITERS: Micros = 20_000_000;

pub(crate) struct Residue {
    /// Locks that still have a holder or a waiter.
    busy: usize,
    before: Usage,
    after: Usage,
    /// Clients that ended with an error.
    failed: usize,
    /// Memory of all clients: early in the run, and at its end.
    memory: (u64, u64),
}

/// Connects as soon as that is possible.
async fn connect(url: &str) -> Result<Tenure, Error> {
    let until = now() + PATIENCE;
    loop {
        let connected = Tenure::connect(url).await;
        if connected.is_ok() || now() >= until {
            return connected;
        }
        pass(Duration::from_millis(200));
    }
}

impl Residue {
    /// To be called when all clients have ended. Leases of killed ones may be left, and end by themselves; so do their places in
    /// queues, later.
    pub(crate) fn of(
        stage: &dyn Stage,
        before: Usage,
        failed: usize,
        memory: (u64, u64),
    ) -> Result<Self, Error> {
        pass(4 * LEASE + Duration::from_secs(6));
        let busy = block_on(async {
            let (tenure, until) = (connect(&stage.url()).await?, now() + DEAD_WAITERS);
            loop {
                let locks = tenure.list("torture/", 10_000).await?;
                let is_busy = |lock: &&tenure::LockInfo| !lock.is_free() || lock.waiting > 0;
                let busy = locks.iter().filter(is_busy).count();
                if busy == 0 || now() >= until {
                    return Ok::<_, Error>(busy);
                }
                pass(Duration::from_millis(200));
            }
        })?;
        pass(Duration::from_millis(500));
        Ok(Self { busy, before, after: stage.usage(), failed, memory })
    }

    pub(crate) fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        let mut fail = |is_so: bool, sentence: String| failures.extend(is_so.then_some(sentence));
        fail(self.busy > 0, format!("{} locks are still held or waited for", self.busy));
        fail(self.failed > 0, format!("{} clients ended with an error", self.failed));
        let (before, after) = (self.before, self.after);
        let more = after.connections.saturating_sub(before.connections);
        fail(more > 0, format!("{more} connections are still open"));
        fail(after.bytes > before.bytes + GROWTH, format!("the servers use {} bytes", after.bytes));
        let (early, late) = self.memory;
        fail(late > early + GROWTH, format!("clients grew from {early} to {late} bytes"));
        failures
    }

    pub(crate) fn print(&self) {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        println!(
            "left behind           {} locks, {} connections, {:.1} MB at the servers (before: {}, {:.1} MB)",
            self.busy,
            self.after.connections,
            megabytes(self.after.bytes),
            self.before.connections,
            megabytes(self.before.bytes),
        );
        let (early, late) = self.memory;
        println!(
            "memory of clients     {:.1} MB, {:.1} MB early",
            megabytes(late),
            megabytes(early)
        );
    }
}
