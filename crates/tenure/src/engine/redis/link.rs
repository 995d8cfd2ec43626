//! One connection to a server, with reconnects.
//!
//! A supervisor connects, and reconnects after a loss with the backoff of [`pace`](super::pace). The outcome of a
//! command that was in flight when a connection was lost is unknown (I6); a command sent while there is no connection
//! is refused at once, unless the first attempt to connect is not over.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use super::address::{Address, Endpoint, Master};
use super::errors::{of_greeting, of_server};
use super::marker::Marker;
use super::pace::{Outage, Pace};
use super::protocol::Protocol;
use super::resp::{Command, Reply};
use super::stream::{self, CONNECT_TIME};
use super::trip::Trip;
use super::wire::{Corked, Done, Wire};
use super::{reader, role, scripts};
use crate::engine::link_monitor::LinkMonitor;
use crate::error::StoreError;
use crate::sync::lock;

/// One connection, with reconnects.
pub(super) struct Link {
    pub(super) address: Address,
    pub(super) monitor: LinkMonitor,
    pub(super) pace: Arc<Pace>,
    state: Mutex<State>,
    changed: Notify,
    /// Signalled when the connection is up again after a loss.
    again: Notify,
    pub(super) nonce: AtomicU64,
    /// For how long a fence outlives its lock, in ms: an argument of the scripts.
    pub(super) retention: u64,
    /// The marker of the quorum that the server is a node of: an argument of the scripts.
    pub(super) marker: Option<Marker>,
    /// The format of the locks.
    pub(super) protocol: Protocol,
    /// The number of the next call when a script's text was last sent, by its hash.
    pub(super) texts_sent: Mutex<HashMap<&'static str, u64>>,
    /// The measured round trips.
    pub(super) trip: Arc<Trip>,
    /// The runtime that reads replies, if not the I/O thread.
    runtime: Option<Handle>,
}

enum State {
    /// Before the first attempt has ended: commands wait for it.
    New(Vec<(Command, Done)>),
    Up(Arc<Wire>),
    Down(StoreError),
}

impl Link {
    pub(super) fn new(
        address: Address,
        pace: Arc<Pace>,
        retention: Duration,
        marker: Option<Marker>,
        protocol: Protocol,
        purpose: &'static str,
        runtime: Option<Handle>,
    ) -> Arc<Self> {
        Arc::new(Self {
            address,
            monitor: LinkMonitor::new(purpose),
            pace,
            state: Mutex::new(State::New(Vec::new())),
            changed: Notify::new(),
            again: Notify::new(),
            nonce: AtomicU64::new(0),
            retention: u64::try_from(retention.as_millis()).unwrap_or(u64::MAX),
            marker,
            protocol,
            texts_sent: Mutex::default(),
            trip: Arc::default(),
            runtime,
        })
    }

    /// Another connection to the same server, for another purpose.
    pub(super) fn another(&self, purpose: &'static str) -> Arc<Self> {
        let retention = Duration::from_millis(self.retention);
        let (marker, protocol) = (self.marker.clone(), self.protocol);
        let (address, pace) = (self.address.clone(), self.pace.clone());
        Self::new(address, pace, retention, marker, protocol, purpose, None)
    }

    /// Connects and reconnects; never returns. Runs on the I/O thread.
    pub(super) async fn supervise(self: Arc<Self>) {
        let down_on_drop = DownOnDrop(self);
        let link = &down_on_drop.0;
        let mut outage = Outage::default();
        loop {
            let Err(why) = link.connect(&mut outage).await;
            link.down(why);
            link.pace.back_off(&mut outage).await;
        }
    }

    /// Connects to the master, and carries traffic until the connection is lost. Returns why it was lost, or could not be
    /// established.
    async fn connect(&self, outage: &mut Outage) -> Result<Infallible, StoreError> {
        // Subscribed before the master is located, so that no change is missed.
        let moved = self.pace.moved();
        let endpoint = self.address.master.locate(&self.pace).await?;
        let wire = Wire::new(stream::open(&endpoint).await?, self.trip.clone());
        Err(self.serve(Arc::new(wire), &endpoint, moved, outage).await)
    }

    /// Greets the server, and then carries traffic until the connection is lost. Returns why it was lost, or could
    /// not be used.
    async fn serve(
        &self,
        wire: Arc<Wire>,
        endpoint: &Endpoint,
        moved: impl Future<Output = ()>,
        outage: &mut Outage,
    ) -> StoreError {
        let carrying = wire.carry(endpoint, moved);
        tokio::pin!(carrying);
        tokio::select! {
            greeted = self.greet(&wire, endpoint) => {
                if let Err(error) = greeted {
                    return error;
                }
            }
            loss = &mut carrying => {
                let what = format!("could not set up the connection to {endpoint}: {}", loss.why);
                return StoreError::refused(what);
            }
        }
        outage.end();
        if let Some(runtime) = &self.runtime {
            // If that fails, the I/O thread reads.
            let _ = reader::read_on(&wire, runtime);
        }
        self.up(&wire);
        // Only now: a link that is reported as up must take requests.
        if self.monitor.up() > 1 {
            self.again.notify_one();
        }
        // The client's other links may be waiting for the same server.
        self.pace.want();
        let loss = carrying.await;
        if loss.is_of_replica {
            self.pace.report_moved();
        }
        StoreError::refused(format!("lost the connection to {endpoint}: {}", loss.why))
    }

    /// Logs in, checks that this is the master, and loads the scripts, so that the first call need not.
    async fn greet(&self, wire: &Arc<Wire>, endpoint: &Endpoint) -> Result<(), StoreError> {
        let greeting = async {
            for command in self.address.greeting() {
                if let Reply::Error(error) = request(wire, &command).await? {
                    let what = format!("could not log in to {endpoint}: {error}");
                    return Err(of_greeting(what, &error));
                }
            }
            // Sent along with the next question.
            let mode = (!self.is_member()).then(|| request(wire, &role::mode_question()));
            for question in role::questions() {
                if role::is_master(&request(wire, &question).await?, endpoint)? {
                    break;
                }
            }
            if let Some(mode) = mode {
                role::refuse_member(&mode.await?, endpoint)?;
            }
            if let Some((marker, question)) =
                self.marker.as_ref().and_then(|marker| Some((marker, marker.question()?)))
            {
                marker.check(&request(wire, &question).await?, endpoint)?;
            }
            // Pipelined: one round trip for all scripts.
            let load = |text| request(wire, &Command::new("SCRIPT").arg("LOAD").arg(text));
            let scripts = scripts::all().map(|script| self.variant(script));
            let is_spread = self.is_member() && !self.protocol.is_redisson();
            let spread = scripts::all_spread().filter(|_| is_spread);
            let loads = scripts.into_iter().chain(spread);
            let loads: Vec<_> = loads.map(|script| (script, load(&script.text))).collect();
            for (script, loaded) in loads {
                match loaded.await? {
                    Reply::Error(error) => return Err(of_server(&error)),
                    reply if reply.text() == Some(&script.hash) => {}
                    _ => {
                        let what = format!("{endpoint} does not load scripts");
                        return Err(StoreError::refused(what));
                    }
                }
            }
            Ok(())
        };
        let greeted = tokio::time::timeout(CONNECT_TIME, greeting).await;
        let slow =
            || StoreError::refused(format!("{endpoint} did not answer within {CONNECT_TIME:?}"));
        greeted.unwrap_or_else(|_| Err(slow()))
    }

    /// Whether the server is a node of a cluster.
    pub(super) fn is_member(&self) -> bool {
        matches!(self.address.master, Master::Member(..))
    }

    /// Resolves when the first attempt to connect has ended.
    pub(super) async fn first_attempt(&self) -> Result<(), StoreError> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            match &*lock(&self.state) {
                State::New(_) => {}
                State::Up(_) => return Ok(()),
                State::Down(error) => return Err(error.clone()),
            }
            changed.await;
        }
    }

    /// Resolves when a lost connection has been re-established since the last call. For one task.
    pub(super) async fn reconnected(&self) {
        self.again.notified().await;
    }

    /// Sends a command. An error of the server is a reply.
    pub(super) fn send(&self, command: &Command, done: Done) {
        let mut state = lock(&self.state);
        let wire = match &mut *state {
            State::Up(wire) => wire.clone(),
            State::Down(error) => {
                let error = error.clone();
                drop(state);
                self.pace.want();
                return done(Err(error));
            }
            State::New(waiting) => return waiting.push((command.clone(), done)),
        };
        drop(state);
        self.send_on(&wire, command, done);
    }

    /// The connection in use, if there is one. Until that one has ended, every command is sent on it.
    pub(super) fn wire(&self) -> Option<Arc<Wire>> {
        match &*lock(&self.state) {
            State::Up(wire) => Some(wire.clone()),
            State::New(_) | State::Down(_) => None,
        }
    }

    /// Sends a command; its reply is confirmed where the server may have been replaced before.
    pub(super) fn send_on(&self, wire: &Arc<Wire>, command: &Command, done: Done) {
        let done = match &self.address.master {
            Master::At(_) => done,
            Master::Named(sentinels) => sentinels.confirm_reply(done),
            Master::Member(node) => node.confirm_answer(self.trip.fastest(), done),
        };
        wire.send(command, done);
    }

    /// Collects the commands that are sent until the result is dropped, if the connection is up.
    pub(super) fn cork(&self) -> Option<Corked> {
        let state = lock(&self.state);
        match &*state {
            State::Up(wire) => Some(wire.cork()),
            _ => None,
        }
    }

    /// Sends a command at once; the future resolves to its reply.
    pub(super) fn request(
        &self,
        command: &Command,
    ) -> impl Future<Output = Result<Reply, StoreError>> + Send + use<> {
        let (done, reply) = oneshot::channel();
        self.send(command, Box::new(|result| drop(done.send(result))));
        async { reply.await.unwrap_or_else(|_| Err(closed())) }
    }

    /// Sends a command whose reply need not be confirmed, if the connection is up.
    pub(super) fn ask(
        &self,
        command: &Command,
    ) -> impl Future<Output = Result<Reply, StoreError>> + Send + use<> {
        let asked = self.wire().map(|wire| request(&wire, command));
        async {
            match asked {
                Some(reply) => reply.await,
                None => Err(StoreError::refused("the connection is down")),
            }
        }
    }

    pub(super) fn down(&self, why: StoreError) {
        let is_lost = self.monitor.down(why.clone());
        let before = self.replace(State::Down(why.clone()));
        if let State::New(waiting) = before {
            waiting.into_iter().for_each(|(_, done)| done(Err(why.clone())));
        }
        if is_lost {
            self.pace.report_lost();
        }
    }

    fn up(&self, wire: &Arc<Wire>) {
        loop {
            let mut state = lock(&self.state);
            match &mut *state {
                // In order: a command that is sent meanwhile waits behind these.
                State::New(waiting) if !waiting.is_empty() => {
                    let waiting = std::mem::take(waiting);
                    drop(state);
                    let send =
                        |(command, done): (Command, Done)| self.send_on(wire, &command, done);
                    waiting.into_iter().for_each(send);
                }
                state => {
                    *state = State::Up(wire.clone());
                    break;
                }
            }
        }
        self.changed.notify_waiters();
    }

    /// Returns the former state, which is dropped without the mutex: a dropped connection answers its commands, and
    /// their callbacks may lock this state.
    fn replace(&self, state: State) -> State {
        let before = std::mem::replace(&mut *lock(&self.state), state);
        self.changed.notify_waiters();
        before
    }
}

/// However the supervisor ends, even by a panic: the link is down, and its waiters are answered.
struct DownOnDrop(Arc<Link>);

impl Drop for DownOnDrop {
    fn drop(&mut self) {
        self.0.down(StoreError::refused("the client's I/O thread has ended"));
    }
}

/// Sends a command at once, on a connection that is not up yet; the future resolves to its reply.
fn request(
    wire: &Arc<Wire>,
    command: &Command,
) -> impl Future<Output = Result<Reply, StoreError>> + use<> {
    let (done, reply) = oneshot::channel();
    wire.send(command, Box::new(|result| drop(done.send(result))));
    async { reply.await.unwrap_or_else(|_| Err(closed())) }
}

pub(super) fn closed() -> StoreError {
    StoreError::unknown("the client was closed")
}
