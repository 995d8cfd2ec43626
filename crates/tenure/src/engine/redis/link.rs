//! One connection to a server, kept up.
//!
//! A supervisor connects, and connects again after a loss, with growing delays. Requests go
//! through a multiplexed connection. One that is not answered in time ends the connection: a
//! black hole must not swallow one request after the other. What was in flight then is unknown
//! (I6); what comes while there is no connection is refused at once.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Cmd, Value};
use tokio::sync::{Notify, watch};

use super::address::Address;
use super::scripts::{self, Script};
use super::stream;
use super::trouble::{is_missing_script, of_connecting, of_request, of_server};
use crate::core::backoff::Backoff;
use crate::error::Trouble;
use crate::sync::lock;

/// Far longer than any answer takes, and well below a third of the default lease.
pub(super) const RESPONSE_TIME: Duration = Duration::from_secs(2);

/// How long connecting may take.
pub(super) const CONNECT_TIME: Duration = Duration::from_secs(2);

/// How soon to connect again: at once to a server that restarts, seldom to one that is gone.
pub(super) const RECONNECT: Backoff =
    Backoff::jitter(Duration::from_millis(20), Duration::from_secs(2));

/// One connection, kept up.
pub(super) struct Link {
    address: Address,
    state: Mutex<State>,
    changed: Notify,
    /// The last connection that was given up.
    given_up: watch::Sender<u64>,
    nonce: AtomicU64,
}

/// Moves the bytes of a connection, until it is lost.
type Traffic = Pin<Box<dyn Future<Output = ()> + Send>>;

enum State {
    Up { connection: MultiplexedConnection, epoch: u64 },
    Down { why: Trouble, epoch: u64 },
}

impl Link {
    pub(super) fn new(address: Address) -> Arc<Self> {
        let why = Trouble::refused("not connected yet");
        Arc::new(Self {
            address,
            state: Mutex::new(State::Down { why, epoch: 0 }),
            changed: Notify::new(),
            given_up: watch::Sender::new(0),
            nonce: AtomicU64::new(0),
        })
    }

    /// Keeps the connection up, for ever. Runs on the I/O thread.
    pub(super) async fn keep_up(self: Arc<Self>) {
        let mut delays = RECONNECT.delays(crate::owner::unique_number());
        for epoch in 1.. {
            match self.connect().await {
                Ok((connection, traffic)) => {
                    delays = RECONNECT.delays(crate::owner::unique_number());
                    self.set(State::Up { connection, epoch });
                    let mut given_up = self.given_up.subscribe();
                    tokio::select! {
                        () = traffic => {}
                        _ = given_up.wait_for(|last| *last >= epoch) => {}
                    }
                    let why =
                        Trouble::refused(format!("lost the connection to {}", self.address.place));
                    self.set(State::Down { why, epoch });
                }
                Err(why) => self.set(State::Down { why, epoch }),
            }
            pause(delays.next()).await;
        }
    }

    /// Resolves when the first attempt to connect has ended.
    pub(super) async fn first_attempt(&self) -> Result<(), Trouble> {
        loop {
            let changed = self.changed.notified();
            match &*lock(&self.state) {
                State::Up { .. } => return Ok(()),
                State::Down { why, epoch } if *epoch > 0 => return Err(why.clone()),
                State::Down { .. } => {}
            }
            changed.await;
        }
    }

    /// Runs a script, loading it where the server does not know it, and checks that the answer is
    /// the one to this very call.
    pub(super) async fn call(
        &self,
        script: &Script,
        keys: &[String],
        arguments: &[Vec<u8>],
    ) -> Result<Vec<Value>, Trouble> {
        let nonce = self.nonce.fetch_add(1, Ordering::Relaxed).to_string();
        let mut command = redis::cmd("EVALSHA");
        command.arg(&script.hash).arg(keys.len()).arg(keys).arg(&nonce).arg(arguments);
        let mut answer = self.send(&command).await?;
        if is_missing_script(&answer) {
            self.send(redis::cmd("SCRIPT").arg("LOAD").arg(&script.text)).await?;
            answer = self.send(&command).await?;
        }
        let epoch = self.epoch();
        match answer {
            Value::Array(values) => match values.split_first() {
                Some((Value::BulkString(echo), rest)) if *echo == nonce.as_bytes() => {
                    Ok(rest.to_vec())
                }
                _ => {
                    // Somebody else's answer: this connection cannot be trusted any more.
                    self.give_up(epoch);
                    Err(Trouble::unknown("the server gave the answer to another request"))
                }
            },
            Value::ServerError(error) => Err(of_server(&error)),
            _ => Err(Trouble::unknown("the server gave an answer that is no script's")),
        }
    }

    /// Sends a command; errors of the server are values.
    pub(super) async fn send(&self, command: &Cmd) -> Result<Value, Trouble> {
        let (mut connection, epoch) = match &*lock(&self.state) {
            State::Up { connection, epoch } => (connection.clone(), *epoch),
            State::Down { why, .. } => return Err(why.clone()),
        };
        match tokio::time::timeout(RESPONSE_TIME, connection.req_packed_command(command)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(of_request(&error)),
            Err(_) => {
                self.give_up(epoch);
                let place = &self.address.place;
                Err(Trouble::unknown(format!("no answer from {place} within {RESPONSE_TIME:?}")))
            }
        }
    }

    async fn connect(&self) -> Result<(MultiplexedConnection, Traffic), Trouble> {
        let place = &self.address.place;
        let connecting = async {
            let stream = stream::open(place).await?;
            let config = AsyncConnectionConfig::new().set_response_timeout(None);
            let made = MultiplexedConnection::new_with_config(&self.address.user, stream, config);
            let (mut connection, traffic) =
                made.await.map_err(|error| of_connecting(place, &error))?;
            let mut traffic: Traffic = Box::pin(traffic);
            let loading = load_scripts(&mut connection);
            tokio::select! {
                loaded = loading => loaded?,
                () = &mut traffic => return Err(Trouble::refused(format!("{place} hung up"))),
            }
            Ok((connection, traffic))
        };
        let slow = |_| Trouble::refused(format!("{place} did not answer within {CONNECT_TIME:?}"));
        tokio::time::timeout(CONNECT_TIME, connecting).await.map_err(slow)?
    }

    /// Ends a connection, unless it has ended already.
    fn give_up(&self, epoch: u64) {
        self.given_up.send_if_modified(|last| {
            let is_news = epoch > *last;
            *last = epoch.max(*last);
            is_news
        });
    }

    fn epoch(&self) -> u64 {
        match *lock(&self.state) {
            State::Up { epoch, .. } | State::Down { epoch, .. } => epoch,
        }
    }

    fn set(&self, state: State) {
        *lock(&self.state) = state;
        self.changed.notify_waiters();
    }
}

/// So that the first call does not pay for it.
async fn load_scripts(connection: &mut MultiplexedConnection) -> Result<(), Trouble> {
    for script in scripts::all() {
        let command = redis::cmd("SCRIPT").arg("LOAD").arg(&script.text).to_owned();
        let loaded = connection.req_packed_command(&command).await;
        match loaded.map_err(|error| of_request(&error))? {
            Value::ServerError(error) => return Err(of_server(&error)),
            _ => continue,
        }
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the I/O thread waits before it connects again")]
pub(super) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
