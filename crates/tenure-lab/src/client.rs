//! A client of an experiment: a process of its own, which can be killed and stopped.
//!
//! It reads orders from standard input, a line each, and writes what happens to standard output, with the time. The first
//! order says which lock it uses.

use std::fmt::Display;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure::blocking::{Guard, block_on};
use tenure::{Tenure, fenced};

use crate::historic::HistoricLock;
use crate::history::What;
use crate::link::Node;
use crate::stages;
use crate::time::{millis, now, pause};

/// The name under which the command starts a client.
pub const NAME: &str = "tenure-lab-client";

/// How often a client reports until when it holds its lock.
const REPORT: Duration = millis(5);

/// Serves the experiment at the other end of standard input, until that ends.
pub fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&What::Refused(error));
            ExitCode::FAILURE
        }
    }
}

/// Writes what has happened now. An experiment that has ended reads no more.
fn report(what: &What) {
    report_at(now(), what);
}

fn report_at(at: u64, what: &What) {
    let _ = writeln!(io::stdout().lock(), "{at} {what}");
}

fn serve() -> Result<(), String> {
    let mut lines = io::stdin().lock().lines();
    let first = lines.next().and_then(Result::ok).ok_or("no order")?;
    let mut client = Client::open(&first)?;
    report(&What::Ready);
    for line in lines {
        let line = line.map_err(text)?;
        client.obey(&line)?;
    }
    Ok(())
}

fn text(error: impl Display) -> String {
    error.to_string()
}

/// What the first order says, on one line.
pub(crate) struct Opening<'a> {
    /// The stage whose lock it uses; Tenure if none.
    pub(crate) stage: Option<usize>,
    pub(crate) key: &'a str,
    pub(crate) lease: Duration,
    /// The replicas that must have the lock.
    pub(crate) replicas: u32,
    /// Where the lock is: one store for Tenure, one or more servers for a historic lock.
    pub(crate) urls: &'a [String],
    /// Where the data is.
    pub(crate) data: &'a str,
}

impl Display for Opening<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (stage, lease) = (self.stage.unwrap_or(0), self.lease.as_millis());
        let Self { key, replicas, urls, data, .. } = self;
        write!(f, "{stage} {key} {lease} {replicas} {data} {}", urls.join(" "))
    }
}

struct Client {
    lock: Lock,
    data: Node,
    key: String,
    left: i64,
}

enum Lock {
    Historic(HistoricLock),
    Tenure(TenureLock),
}

impl Client {
    fn open(line: &str) -> Result<Self, String> {
        let words: Vec<_> = line.split(' ').collect();
        let [stage, key, lease, replicas, data, urls @ ..] = &words[..] else {
            return Err(format!("`{line}` is no opening"));
        };
        let number = |word: &str| word.parse::<u64>().map_err(text);
        let (stage, lease) = (number(stage)?, millis(number(lease)?));
        let urls: Vec<_> = urls.iter().map(|url| (*url).to_owned()).collect();
        let lock = match usize::try_from(stage).ok().and_then(stages::recipe) {
            Some(recipe) => {
                let id = tenure::Owner::new().to_string();
                Lock::Historic(HistoricLock::new(recipe, &urls, key, &id, lease))
            }
            None => Lock::Tenure(TenureLock::open(&urls.join(" "), key, lease, number(replicas)?)?),
        };
        let data = Node::new(data, millis(2_000));
        Ok(Self { lock, data, key: (*key).to_owned(), left: 0 })
    }

    fn obey(&mut self, line: &str) -> Result<(), String> {
        let (order, rest) = line.split_once(' ').unwrap_or((line, "0"));
        let time = || rest.parse().map(millis).map_err(text);
        match order {
            "acquire" => self.acquire(time()?),
            "release" => self.release(time()?),
            "section" => {
                self.acquire(Duration::ZERO)?;
                pause(time()?);
                self.release(Duration::ZERO)
            }
            "read" => self.read(),
            "sell" => self.sell(),
            _ => Err(format!("`{line}` is no order")),
        }
    }

    /// Acquires. Between two commands of one attempt it reports the step, and pauses.
    fn acquire(&mut self, gap: Duration) -> Result<(), String> {
        report(&What::Asks);
        let outcome = match &mut self.lock {
            Lock::Historic(lock) => lock.acquire(&mut |what| step(what, gap)).map_err(text),
            Lock::Tenure(lock) => lock.acquire(),
        };
        match outcome {
            Ok(()) => {
                report(&What::Holds);
                // Before any stop: a client that knows its time knows it from the grant on.
                if let Lock::Tenure(lock) = &self.lock {
                    watch(&lock.guards);
                }
            }
            Err(why) => report(&What::Refused(why)),
        }
        Ok(())
    }

    /// Releases. Between two commands, or before a single one, it reports the step, and pauses.
    fn release(&mut self, gap: Duration) -> Result<(), String> {
        report(&What::Releases);
        match &mut self.lock {
            Lock::Historic(lock) => lock.release(&mut |what| step(what, gap)).map_err(text),
            Lock::Tenure(lock) => {
                step("the release is not sent", gap);
                lock.release();
                Ok(())
            }
        }
    }

    /// Reads how many items are left. With a fence, the data learns of the fence first: from then on it refuses every
    /// earlier holder, whether or not this one writes.
    fn read(&mut self) -> Result<(), String> {
        let stock = stock(&self.key);
        if let Some(fence) = self.fence() {
            self.data
                .ask(&["EVAL", fenced::REDIS_REGISTER, "1", &fence_of(&stock), &fence])
                .map_err(text)?;
        }
        let read = self.data.ask(&["GET", &stock]).map_err(text)?;
        self.left = read.text().and_then(|it| it.parse().ok()).unwrap_or(0);
        report(&What::Reads(self.left));
        Ok(())
    }

    /// Sells one of the items that it has read of, if there was one.
    fn sell(&mut self) -> Result<(), String> {
        if self.left <= 0 {
            return Ok(());
        }
        let (stock, left) = (stock(&self.key), (self.left - 1).to_string());
        let is_accepted = match self.fence() {
            None => self.data.succeeds(&["SET", &stock, &left]),
            Some(fence) => {
                let key = fence_of(&stock);
                self.data.succeeds(&["EVAL", fenced::REDIS_SET, "2", &stock, &key, &fence, &left])
            }
        };
        report(&What::Sells(is_accepted.map_err(text)?));
        Ok(())
    }

    fn fence(&self) -> Option<String> {
        match &self.lock {
            Lock::Historic(_) => None,
            Lock::Tenure(lock) => lock.fence(),
        }
    }
}

/// The key of the items that are left.
pub(crate) fn stock(key: &str) -> String {
    format!("{{{key}}}:stock")
}

fn fence_of(stock: &str) -> String {
    format!("{stock}:fence")
}

fn step(what: &str, gap: Duration) {
    if !gap.is_zero() {
        report(&What::Step(what.to_owned()));
        pause(gap);
    }
}

/// Tenure's lock, re-entrant, with what its client knows of it.
struct TenureLock {
    lock: tenure::blocking::Lock,
    guards: Arc<Mutex<Vec<Guard>>>,
    fence: Option<String>,
}

impl TenureLock {
    fn open(url: &str, name: &str, lease: Duration, replicas: u64) -> Result<Self, String> {
        let tenure = block_on(Tenure::connect(url)).map_err(text)?;
        let mut lock = tenure.lock(name).lease(lease).reentrant();
        if let Some(replicas) = u32::try_from(replicas).ok().filter(|count| *count > 0) {
            lock = lock.wait_replicas(replicas, lease / 3);
        }
        let guards = Arc::<Mutex<Vec<Guard>>>::default();
        let watched = guards.clone();
        std::thread::spawn(move || {
            loop {
                watch(&watched);
                pause(REPORT);
            }
        });
        Ok(Self { lock: lock.blocking(), guards, fence: None })
    }

    fn acquire(&mut self) -> Result<(), String> {
        let guard = self.lock.acquire().map_err(|error| reason(&error))?;
        self.fence = Some(guard.fence().to_string());
        self.guards().push(guard);
        Ok(())
    }

    /// A release that is not answered goes on in the background.
    fn release(&mut self) {
        let guard = self.guards().pop();
        let _ = guard.map(Guard::release);
    }

    /// The fence of the last grant, which a late writer has, too.
    fn fence(&self) -> Option<String> {
        self.fence.clone()
    }

    fn guards(&self) -> std::sync::MutexGuard<'_, Vec<Guard>> {
        self.guards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a lock was refused, without the lock's name, which is long, and the advice.
fn reason(error: &tenure::Error) -> String {
    let text = error.to_string();
    let text = text.split_once("`: ").map_or(&*text, |(_, reason)| reason);
    text.split(';').next().unwrap_or(text).to_owned()
}

/// Reports until when the client knows that it holds the lock, or that it has lost it.
fn watch(guards: &Mutex<Vec<Guard>>) {
    let mut guards = guards.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(guard) = guards.last() else { return };
    let (at, left) = (now(), guard.remaining());
    if guard.is_lost() {
        report_at(at, &What::Loses);
        guards.clear();
    } else {
        let left = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
        report_at(at, &What::Until(at.saturating_add(left)));
    }
}
