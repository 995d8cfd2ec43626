//! One connection to a server, kept up.
//!
//! A supervisor connects, and connects again after a loss, when [`pace`](super::pace) says. What was
//! in flight when a connection was lost is unknown (I6); what comes while there is none is refused at
//! once.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

use super::address::{Address, Endpoint};
use super::errors::{of_greeting, of_server};
use super::pace::{Outage, Pace};
use super::resp::{Command, Reply};
use super::stream::{self, CONNECT_TIME};
use super::trip::Trip;
use super::wire::{Done, Wire};
use super::{reader, role, scripts};
use crate::engine::link_monitor::LinkMonitor;
use crate::error::StoreError;
use crate::sync::lock;

/// One connection, kept up.
pub(super) struct Link {
    pub(super) address: Address,
    pub(super) monitor: LinkMonitor,
    pub(super) pace: Arc<Pace>,
    state: Mutex<State>,
    changed: Notify,
    /// It is up, and not for the first time.
    again: Notify,
    pub(super) nonce: AtomicU64,
    /// For how long a fence outlives its lock, in ms, as the scripts are told.
    pub(super) retention: u64,
    /// The number of the next call when a script's text was last sent, by its hash.
    pub(super) told: Mutex<HashMap<&'static str, u64>>,
    /// How far away the server is.
    pub(super) trip: Arc<Trip>,
    /// Where replies are read, if not on the I/O thread.
    runtime: Option<Handle>,
}

#[derive(Clone)]
enum State {
    /// Nothing has been tried yet.
    New,
    Up(Arc<Wire>),
    Down(StoreError),
}

impl Link {
    pub(super) fn new(
        address: Address,
        pace: Arc<Pace>,
        retention: Duration,
        what_for: &'static str,
        runtime: Option<Handle>,
    ) -> Arc<Self> {
        Arc::new(Self {
            address,
            monitor: LinkMonitor::new(what_for),
            pace,
            state: Mutex::new(State::New),
            changed: Notify::new(),
            again: Notify::new(),
            nonce: AtomicU64::new(0),
            retention: u64::try_from(retention.as_millis()).unwrap_or(u64::MAX),
            told: Mutex::default(),
            trip: Arc::default(),
            runtime,
        })
    }

    /// Keeps the connection up, for ever. Runs on the I/O thread.
    pub(super) async fn keep_up(self: Arc<Self>) {
        let keeper = Keeper(self);
        let link = &keeper.0;
        let mut outage = Outage::default();
        loop {
            let Err(why) = link.connect(&mut outage).await;
            link.down(why);
            link.pace.rest(&mut outage).await;
        }
    }

    /// Connects to the master, and carries traffic until the connection is lost; why it was, or could not be made.
    async fn connect(&self, outage: &mut Outage) -> Result<Infallible, StoreError> {
        // Before it is located: no change of the master is missed.
        let moved = self.pace.moved();
        let place = self.address.master.locate().await?;
        let wire = Wire::new(stream::open(&place).await?, self.trip.clone());
        Err(self.serve(Arc::new(wire), &place, moved, outage).await)
    }

    /// Greets the server, and then carries traffic until the connection is lost; why it was, or could
    /// not be used.
    async fn serve(
        &self,
        wire: Arc<Wire>,
        place: &Endpoint,
        moved: impl Future<Output = ()>,
        outage: &mut Outage,
    ) -> StoreError {
        let carrying = wire.carry(place, moved);
        tokio::pin!(carrying);
        tokio::select! {
            greeted = self.greet(&wire, place) => {
                if let Err(trouble) = greeted {
                    return trouble;
                }
            }
            loss = &mut carrying => {
                return StoreError::refused(format!("could not speak with {place}: {}", loss.why));
            }
        }
        outage.end();
        if let Some(runtime) = &self.runtime {
            // Refused, the I/O thread reads.
            let _ = reader::read_on(&wire, runtime);
        }
        self.set(State::Up(wire.clone()));
        // Only now: what is said to be up takes requests.
        if self.monitor.up() > 1 {
            self.again.notify_one();
        }
        // The others may have been waiting for the same server.
        self.pace.want();
        let loss = carrying.await;
        if loss.is_of_replica {
            self.pace.move_on();
        }
        StoreError::refused(format!("lost the connection to {place}: {}", loss.why))
    }

    /// Logs in, makes sure that this is the master, and loads the scripts, so that the first call does
    /// not pay for it.
    async fn greet(&self, wire: &Arc<Wire>, place: &Endpoint) -> Result<(), StoreError> {
        let greeting = async {
            for command in self.address.greeting() {
                if let Reply::Error(error) = ask(wire, &command).await? {
                    let what = format!("could not log in to {place}: {error}");
                    return Err(of_greeting(what, &error));
                }
            }
            for question in role::questions() {
                if role::is_master(&ask(wire, &question).await?, place)? {
                    break;
                }
            }
            // All at once: one trip, however many there are.
            let load = |text| ask(wire, &Command::new("SCRIPT").arg("LOAD").arg(text));
            let loads = scripts::all().map(|script| (script, load(&script.text)));
            for (script, loaded) in loads {
                match loaded.await? {
                    Reply::Error(error) => return Err(of_server(&error)),
                    reply if reply.text() == Some(&script.hash) => {}
                    _ => return Err(StoreError::refused(format!("{place} does not load scripts"))),
                }
            }
            Ok(())
        };
        let greeted = tokio::time::timeout(CONNECT_TIME, greeting).await;
        let slow =
            || StoreError::refused(format!("{place} did not answer within {CONNECT_TIME:?}"));
        greeted.unwrap_or_else(|_| Err(slow()))
    }

    /// Resolves when the first attempt to connect has ended.
    pub(super) async fn first_attempt(&self) -> Result<(), StoreError> {
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

    /// Resolves when a lost connection has been made again, since this was last asked. For one task.
    pub(super) async fn made_again(&self) {
        self.again.notified().await;
    }

    /// Sends a command. An error of the server is a reply like others.
    pub(super) fn send(&self, command: &Command, done: Done) {
        let state = lock(&self.state).clone();
        match state {
            State::Up(wire) => wire.send(command, done),
            State::Down(trouble) => {
                self.pace.want();
                done(Err(trouble));
            }
            State::New => done(Err(StoreError::refused("not connected yet"))),
        }
    }

    /// Sends a command at once; then its reply can be awaited.
    pub(super) fn ask(
        &self,
        command: &Command,
    ) -> impl Future<Output = Result<Reply, StoreError>> + Send + use<> {
        let (done, reply) = oneshot::channel();
        self.send(command, Box::new(|result| drop(done.send(result))));
        async { reply.await.unwrap_or_else(|_| Err(closed())) }
    }

    fn down(&self, why: StoreError) {
        self.monitor.down(why.clone());
        self.set(State::Down(why));
    }

    fn set(&self, state: State) {
        // A connection that is dropped answers what waits for it, and that may ask for this state.
        let before = std::mem::replace(&mut *lock(&self.state), state);
        self.changed.notify_waiters();
        drop(before);
    }
}

/// Whatever ends the task that keeps a connection up: nobody waits for it in vain.
struct Keeper(Arc<Link>);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.down(StoreError::refused("the client's I/O thread has ended"));
    }
}

/// Asks on a connection that is not up yet: at once; then the reply can be awaited.
fn ask(
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
