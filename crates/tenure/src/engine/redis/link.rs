//! One connection to a server, kept up.
//!
//! A supervisor connects, and connects again after a loss, with growing delays. What was in flight
//! when a connection was lost is unknown (I6); what comes while there is none is refused at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::address::Address;
use super::keys;
use super::resp::{Command, Reply};
use super::scripts::{self, Script};
use super::stream::{self, CONNECT_TIME};
use super::trouble::{is_missing_script, of_greeting, of_server};
use super::wire::{Done, Wire};
use crate::core::backoff::Backoff;
use crate::core::name::LockName;
use crate::engine::pulse::Pulse;
use crate::error::Trouble;
use crate::sync::lock;

/// How soon to connect again: at once to a server that restarts, seldom to one that is gone.
pub(super) const RECONNECT: Backoff =
    Backoff::jitter(Duration::from_millis(20), Duration::from_secs(2));

/// One connection, kept up.
pub(super) struct Link {
    address: Address,
    pub(super) pulse: Pulse,
    state: Mutex<State>,
    changed: Notify,
    nonce: AtomicU64,
}

#[derive(Clone)]
enum State {
    /// Nothing has been tried yet.
    New,
    Up(Arc<Wire>),
    Down(Trouble),
}

/// A call of a script.
pub(super) struct Call {
    script: &'static Script,
    nonce: String,
    pub(super) command: Command,
}

/// Called with a script's answer.
pub(super) type Landed = Done;

impl Link {
    pub(super) fn new(address: Address, what_for: &'static str) -> Arc<Self> {
        Arc::new(Self {
            address,
            pulse: Pulse::new(what_for),
            state: Mutex::new(State::New),
            changed: Notify::new(),
            nonce: AtomicU64::new(0),
        })
    }

    /// Keeps the connection up, for ever. Runs on the I/O thread.
    pub(super) async fn keep_up(self: Arc<Self>) {
        let mut delays = RECONNECT.delays(crate::owner::unique_number());
        loop {
            let was_up = match stream::open(&self.address.place).await {
                Ok(stream) => self.serve(Arc::new(Wire::new(stream))).await,
                Err(trouble) => Err(trouble),
            };
            let why = match was_up {
                Ok(()) => {
                    delays = RECONNECT.delays(crate::owner::unique_number());
                    Trouble::refused(format!("lost the connection to {}", self.address.place))
                }
                Err(trouble) => trouble,
            };
            self.pulse.down(why.clone());
            self.set(State::Down(why));
            pause(delays.next()).await;
        }
    }

    /// Greets the server, and then carries traffic until the connection is lost.
    async fn serve(&self, wire: Arc<Wire>) -> Result<(), Trouble> {
        let carrying = wire.carry(&self.address.place);
        tokio::pin!(carrying);
        tokio::select! {
            greeted = self.greet(&wire) => greeted?,
            why = &mut carrying => {
                let place = &self.address.place;
                return Err(Trouble::refused(format!("could not speak with {place}: {why}")));
            }
        }
        self.pulse.up();
        self.set(State::Up(wire.clone()));
        carrying.await;
        Ok(())
    }

    /// Logs in, and loads the scripts, so that the first call does not pay for it.
    async fn greet(&self, wire: &Wire) -> Result<(), Trouble> {
        let place = &self.address.place;
        let greeting = async {
            for command in self.address.greeting() {
                if let Reply::Error(error) = ask(wire, &command).await? {
                    let what = format!("could not log in to {place}: {error}");
                    return Err(of_greeting(what, &error));
                }
            }
            for script in scripts::all() {
                let command = Command::new("SCRIPT").arg("LOAD").arg(&script.text);
                if let Reply::Error(error) = ask(wire, &command).await? {
                    return Err(of_server(&error));
                }
            }
            Ok(())
        };
        let greeted = tokio::time::timeout(CONNECT_TIME, greeting).await;
        let slow = || Trouble::refused(format!("{place} did not answer within {CONNECT_TIME:?}"));
        greeted.unwrap_or_else(|_| Err(slow()))
    }

    /// The server and its database.
    pub(super) fn place(&self) -> String {
        format!("{} database {}", self.address.place, self.address.database())
    }

    /// Resolves when the first attempt to connect has ended.
    pub(super) async fn first_attempt(&self) -> Result<(), Trouble> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            match lock(&self.state).clone() {
                State::New => {}
                State::Up(_) => return Ok(()),
                State::Down(trouble) => return Err(trouble),
            }
            changed.await;
        }
    }

    /// Sends a command. An error of the server is a reply like others.
    pub(super) fn send(&self, command: &Command, done: Done) {
        let state = lock(&self.state).clone();
        match state {
            State::Up(wire) => wire.send(command, done),
            State::Down(trouble) => done(Err(trouble)),
            State::New => done(Err(Trouble::refused("not connected yet"))),
        }
    }

    /// Sends a command, and awaits its reply.
    pub(super) async fn ask(&self, command: &Command) -> Result<Reply, Trouble> {
        let (done, reply) = oneshot::channel();
        self.send(command, Box::new(|result| drop(done.send(result))));
        reply.await.unwrap_or_else(|_| Err(closed()))
    }

    /// A call of a script on some locks, to which the operation's own arguments are added.
    pub(super) fn prepare<'a>(
        &self,
        script: &'static Script,
        names: impl ExactSizeIterator<Item = &'a LockName>,
        client: &str,
    ) -> Call {
        let nonce = self.nonce.fetch_add(1, Ordering::Relaxed).to_string();
        let mut command = Command::new("EVALSHA").arg(&script.hash).arg(names.len().to_string());
        names.for_each(|name| command.push(keys::lock(name)));
        command.push(&nonce);
        command.push(client);
        Call { script, nonce, command }
    }

    /// Runs a script, loading it where the server does not know it, and checks that the answer is
    /// the one to this very call.
    pub(super) fn call(self: &Arc<Self>, call: Call, landed: Landed) {
        let (link, call) = (self.clone(), Arc::new(call));
        let sent = call.clone();
        let done = Box::new(move |result: Result<Reply, Trouble>| match result {
            Ok(reply) if is_missing_script(&reply) => link.load_and_call(call, landed),
            Ok(reply) => landed(answer(reply, &call.nonce)),
            Err(trouble) => landed(Err(trouble)),
        });
        self.send(&sent.command, done);
    }

    /// The server has forgotten its scripts: it is told this one, and asked again, once.
    fn load_and_call(self: Arc<Self>, call: Arc<Call>, landed: Landed) {
        let load = Command::new("SCRIPT").arg("LOAD").arg(&call.script.text);
        self.send(&load, Box::new(|_| ()));
        let sent = call.clone();
        let done = Box::new(move |result: Result<Reply, Trouble>| {
            landed(result.and_then(|reply| answer(reply, &call.nonce)));
        });
        self.send(&sent.command, done);
    }

    /// Runs a script, and awaits its answer.
    pub(super) async fn run(self: &Arc<Self>, call: Call) -> Result<Reply, Trouble> {
        let (done, answer) = oneshot::channel();
        self.call(call, Box::new(|result| drop(done.send(result))));
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    fn set(&self, state: State) {
        *lock(&self.state) = state;
        self.changed.notify_waiters();
    }
}

/// Asks on a connection that is not up yet.
async fn ask(wire: &Wire, command: &Command) -> Result<Reply, Trouble> {
    let (done, reply) = oneshot::channel();
    wire.send(command, Box::new(|result| drop(done.send(result))));
    reply.await.unwrap_or_else(|_| Err(closed()))
}

/// What a script answered: a text or an array that begins with the nonce.
fn answer(reply: Reply, nonce: &str) -> Result<Reply, Trouble> {
    let echo = match &reply {
        Reply::Error(error) => return Err(of_server(error)),
        Reply::Array(replies) => replies.first().and_then(Reply::text),
        text => text.text().and_then(|text| text.lines().next()?.split(' ').next()),
    };
    if echo == Some(nonce) {
        return Ok(reply);
    }
    Err(Trouble::unknown("the server gave the answer to another request"))
}

pub(super) fn closed() -> Trouble {
    Trouble::unknown("the client was closed")
}

#[expect(clippy::disallowed_methods, reason = "the I/O thread waits before it connects again")]
pub(super) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
