//! The locks of the source documents, each as it was before the next fault was found.
//!
//! One lock with five choices: what a stage mends is one of them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tenure_testkit::resp::{Connection, Reply};

use crate::link::{Node, connect};
use crate::time::{millis, pause};

/// How a lock is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recipe {
    pub(crate) expiry: Expiry,
    pub(crate) release: Release,
    pub(crate) renewal: Renewal,
    pub(crate) wait: Wait,
}

/// How the key gets its expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// Not at all: `SETNX`.
    None,
    /// By a second command: `SETNX`, then `PEXPIRE`.
    Second,
    /// In one command: `SET … NX PX`.
    Atomic,
}

/// How the key is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// By a plain `DEL`.
    Del,
    /// By `GET`, a comparison, and `DEL`.
    GetDel,
    /// By a script that compares and deletes.
    Script,
}

/// How the lease is extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// Not at all.
    None,
    /// By `PEXPIRE`, also of a key that another client owns.
    Unchecked,
    /// By a script that compares the owner.
    Checked,
}

/// How a client waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It tries again after a while.
    Poll(Duration),
    /// A release wakes all clients by a message, and they compete.
    Message,
}

/// Deletes the key if its value is the owner's.
const DELETE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// Extends the key if its value is the owner's.
const EXTEND: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";

/// How long one node of several may take. One that is stopped must not use up the lease.
const NODE_PATIENCE: Duration = millis(150);

/// How long a single server may take.
const PATIENCE: Duration = millis(2_000);

/// A lock as one client has it.
pub(crate) struct HistoricLock {
    recipe: Recipe,
    key: String,
    /// The value of the key: the client's own.
    id: String,
    lease: Duration,
    urls: Vec<String>,
    /// One server, or several of which a majority decides.
    nodes: Vec<Node>,
    subscription: Option<Connection>,
    renewer: Option<Renewer>,
}

impl HistoricLock {
    pub(crate) fn new(
        recipe: Recipe,
        urls: &[String],
        key: &str,
        id: &str,
        lease: Duration,
    ) -> Self {
        let patience = if urls.len() > 1 { NODE_PATIENCE } else { PATIENCE };
        let nodes = urls.iter().map(|url| Node::new(url, patience)).collect();
        let (key, id, urls) = (key.to_owned(), id.to_owned(), urls.to_owned());
        Self { recipe, key, id, lease, urls, nodes, subscription: None, renewer: None }
    }

    /// Waits until it has the lock. `step` is called between two commands of one attempt.
    pub(crate) fn acquire(&mut self, step: &mut dyn FnMut(&str)) -> io::Result<()> {
        if self.recipe.wait == Wait::Message {
            let mut subscription = connect(&self.urls[0])?;
            subscription.command(&["SUBSCRIBE", &channel(&self.key)])?;
            self.subscription = Some(subscription);
        }
        while !self.attempt(step)? {
            self.wait();
        }
        self.subscription = None;
        if self.recipe.renewal != Renewal::None {
            self.renewer = Some(Renewer::start(self));
        }
        Ok(())
    }

    /// One attempt. The lock is acquired if a majority of the nodes has granted it.
    fn attempt(&mut self, step: &mut dyn FnMut(&str)) -> io::Result<bool> {
        let (one, majority) = (self.nodes.len() == 1, self.nodes.len() / 2 + 1);
        let mut votes = 0;
        for number in 0..self.nodes.len() {
            match self.set(number, step) {
                Ok(is_set) => votes += usize::from(is_set),
                Err(error) if one => return Err(error),
                // A node that does not answer has no vote.
                Err(_) => {}
            }
        }
        if votes < majority && !one {
            self.delete_all();
        }
        Ok(votes >= majority)
    }

    fn set(&mut self, number: usize, step: &mut dyn FnMut(&str)) -> io::Result<bool> {
        let Self { recipe, key, id, lease, nodes, .. } = self;
        let (node, lease) = (&mut nodes[number], lease.as_millis().to_string());
        match recipe.expiry {
            Expiry::None => node.succeeds(&["SETNX", key, id]),
            Expiry::Second => {
                let is_set = node.succeeds(&["SETNX", key, id])?;
                if is_set {
                    step("SETNX is done, EXPIRE is not");
                    node.ask(&["PEXPIRE", key, &lease])?;
                }
                Ok(is_set)
            }
            Expiry::Atomic => node.succeeds(&["SET", key, id, "NX", "PX", &lease]),
        }
    }

    fn wait(&mut self) {
        match (self.recipe.wait, &mut self.subscription) {
            (Wait::Poll(time), _) => pause(time),
            // A message, or the time after which one may be lost.
            (Wait::Message, Some(subscription)) => drop(subscription.read()),
            (Wait::Message, None) => pause(millis(100)),
        }
    }

    /// Gives the lock back. `step` is called between two commands.
    pub(crate) fn release(&mut self, step: &mut dyn FnMut(&str)) -> io::Result<()> {
        self.renewer = None;
        let Self { key, id, nodes, .. } = self;
        match self.recipe.release {
            Release::Del => drop(nodes[0].ask(&["DEL", key])?),
            Release::GetDel => {
                let is_ours = nodes[0].ask(&["GET", key])? == Reply::Bulk(Some(id.clone().into()));
                step("GET has found the own value, DEL is not sent");
                if is_ours {
                    nodes[0].ask(&["DEL", key])?;
                }
            }
            Release::Script => {
                step("the script is not sent");
                self.delete_all();
            }
        }
        if self.recipe.wait == Wait::Message {
            self.nodes[0].ask(&["PUBLISH", &channel(&self.key), "free"])?;
        }
        Ok(())
    }

    /// Deletes the key at all nodes, if it is this client's. A node that does not answer keeps it until its lease ends.
    fn delete_all(&mut self) {
        for node in &mut self.nodes {
            let _ = node.ask(&["EVAL", DELETE, "1", &self.key, &self.id]);
        }
    }
}

fn channel(key: &str) -> String {
    format!("{key}:free")
}

/// The watchdog of a historic lock: a thread that extends the lease, and reports nothing.
struct Renewer {
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Renewer {
    fn start(lock: &HistoricLock) -> Self {
        let is_ended = Arc::new(AtomicBool::new(false));
        let (ended, lease) = (is_ended.clone(), lock.lease);
        let (renewal, key, id) = (lock.recipe.renewal, lock.key.clone(), lock.id.clone());
        let mut nodes: Vec<_> = lock.urls.iter().map(|url| Node::new(url, PATIENCE)).collect();
        let thread = std::thread::spawn(move || {
            let millis = lease.as_millis().to_string();
            while !is_ended_within(&ended, lease / 3) {
                for node in &mut nodes {
                    let _ = match renewal {
                        Renewal::Checked => node.ask(&["EVAL", EXTEND, "1", &key, &id, &millis]),
                        _ => node.ask(&["PEXPIRE", &key, &millis]),
                    };
                }
            }
        });
        Self { is_ended, thread: Some(thread) }
    }
}

fn is_ended_within(ended: &AtomicBool, time: Duration) -> bool {
    const TICK: Duration = millis(5);
    let ticks = time.as_millis() / TICK.as_millis();
    for _ in 0..ticks {
        if ended.load(Ordering::Acquire) {
            return true;
        }
        pause(TICK);
    }
    ended.load(Ordering::Acquire)
}

impl Drop for Renewer {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
