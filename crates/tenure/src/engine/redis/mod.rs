//! The Redis engine: one server, Redis or Valkey.
//!
//! - [`scripts`] and `lua/`: each operation is one script, and so one atomic step.
//! - [`batch`]: concurrent operations share calls; [`operations`]: their arguments and answers; [`trip`]: how
//!   many calls may be in flight.
//! - [`link`]: a connection with reconnects; [`call`]: runs scripts on it; [`role`]: whether the server is a
//!   master; [`pace`]: the backoff between attempts to connect.
//! - [`wire`]: one established connection; [`reader`]: which thread reads its replies; [`inbox`], [`stream`],
//!   [`socket`], [`tls`], [`resp`] and [`address`]: received replies, the stream, its socket, its encryption, the
//!   protocol and the URL.
//! - [`subscriber`]: receives wake-ups.
//! - [`server`]: requests that are not batched; [`renewals`]: many leases in one call; [`records`]: parses the
//!   answers about locks; [`keys`]: the names of keys.
//! - [`errors`]: what an error of the server means; [`checkup`]: the findings of `doctor`;
//!   [`permissions`]: what this user may do on the server.
//!
//! One owned I/O thread connects, detects overdue replies, and reads replies unless another thread does. So callers
//! may use any executor or none, and renewals continue whatever the callers do. Commands, renewals and wake-ups each
//! have a connection of their own: a renewal must not queue behind other traffic.

mod address;
mod batch;
mod call;
mod checkup;
mod dialogue;
mod errors;
#[cfg(fuzzing)]
pub(super) mod fuzzing;
mod inbox;
mod keys;
mod link;
mod operations;
mod pace;
mod permissions;
mod reader;
mod records;
mod renewals;
mod resp;
mod role;
mod scripts;
mod sentinel;
mod sentinel_url;
mod server;
mod socket;
mod stream;
mod subscriber;
#[cfg(test)]
mod tests;
mod tls;
mod trip;
mod wire;

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use address::{Address, Master};
use batch::Batcher;
use link::Link;
use pace::{Pace, pause};
use renewals::Renewals;
use server::{CLIENT_KEPT, Registered, Server};
use subscriber::Subscriber;

use super::link_monitor::LinkMonitor;
use super::{
    AcquireRequest, Acquired, Answer, CancelRequest, Capabilities, Engine, Finding, ForceOutcome,
    ForceRequest, Health, ListRequest, Listener, Reach, ReleaseOutcome, ReleaseRequest, Renewal,
    Renewed, Wakeup,
};
use crate::core::fence::RETENTION;
use crate::core::name::LockName;
use crate::error::{Error, StoreError};
use crate::info::{About, LockInfo};
use crate::{telemetry, thread};

/// The lease of a hand-over until its first renewal, which the watchdog sends after a third of it at the latest; a
/// hold that is released before then needs none. Longer if the server is far away.
const CLAIM: Duration = Duration::from_secs(3);

/// When to register this client again after the server refused to write its record.
const REGISTER_AGAIN: Duration = Duration::from_secs(10);

/// A client of a Redis or Valkey server.
pub struct RedisEngine {
    server: Arc<Server>,
    operations: Arc<Batcher>,
    subscriber: Arc<Subscriber>,
    io: Handle,
    /// The task that sends batches on the callers' runtime.
    sending: Option<AbortHandle>,
    // Dropped with the engine, which ends the I/O thread.
    _running: oneshot::Sender<()>,
}

/// The options of a client.
pub(crate) struct Options {
    /// Host, process and program, as shown to other clients.
    pub(crate) about: About,
    /// For how long fences outlive their locks.
    pub(crate) retention: Duration,
    /// The runtime that reads replies and wake-ups, if not the I/O thread. Its I/O must be enabled.
    pub(crate) runtime: Option<Handle>,
}

impl RedisEngine {
    /// Connects to the server at `url`.
    ///
    /// # Errors
    /// When the URL is invalid, or the server cannot be reached or refuses the login.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let (about, retention) = (About::this_process(), RETENTION);
        Self::connect_as(url, Options { about, retention, runtime: None }).await
    }

    pub(crate) async fn connect_as(url: &str, options: Options) -> Result<Self, Error> {
        let engine = Self::start(Address::parse(url)?, options)?;
        let reached = async {
            // First, because a server that requires a password says so here. A client that sends
            // long scripts without one is only disconnected.
            engine.subscriber.first_attempt().await?;
            engine.server.commands.first_attempt().await?;
            engine.server.renewals.first_attempt().await?;
            engine.register().await
        };
        match reached.await {
            Ok(()) => Ok(engine),
            Err(trouble) => Err(Error::Connect { error: trouble }),
        }
    }

    fn start(address: Address, options: Options) -> Result<Self, Error> {
        let Options { about, retention, runtime: caller } = options;
        let failed = |source| Error::Thread { source: Arc::new(source) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let client = format!("{:016x}", crate::owner::unique_number());
        let pace = Arc::new(Pace::default());
        let server = Arc::new(Server {
            commands: Link::new(
                address.clone(),
                pace.clone(),
                retention,
                "commands",
                caller.clone(),
            ),
            // Renewals must not depend on the callers' runtime (I9).
            renewals: Link::new(address.clone(), pace.clone(), retention, "renewals", None),
            about,
            clock: Default::default(),
            client: client.clone(),
            store: OnceLock::new(),
        });
        let (running, ended) = oneshot::channel::<()>();
        let commands = &server.commands;
        let mut engine = Self {
            sending: None,
            operations: Batcher::new(commands.clone(), client.clone()),
            subscriber: Subscriber::new(
                address,
                pace,
                &client,
                caller.clone(),
                commands.trip.clone(),
            ),
            io: runtime.handle().clone(),
            server,
            _running: running,
        };
        let Server { commands, renewals, .. } = &*engine.server;
        for link in [commands.clone(), renewals.clone()] {
            engine.io.spawn(thread::lasting(move || link.clone().supervise()));
        }
        let operations = engine.operations.clone();
        match caller {
            // It runs after the tasks that a reply has woken, and so finds the operations of all of them. If it does
            // not run, the gathered operations are sent when the next answer arrives.
            Some(runtime) => {
                let sending = runtime.spawn(operations.keep_sending());
                engine.sending = Some(sending.abort_handle());
            }
            None => {
                let sending = thread::lasting(move || operations.clone().keep_sending());
                drop(engine.io.spawn(sending));
            }
        }
        if let Master::Named(sentinels) = &engine.server.commands.address.master {
            let (sentinels, pace) = (sentinels.clone(), engine.server.commands.pace.clone());
            let watching = thread::lasting(move || sentinels.clone().watch(pace.clone()));
            drop(engine.io.spawn(watching));
        }
        let subscriber = engine.subscriber.clone();
        engine.io.spawn(thread::lasting(move || subscriber.clone().supervise()));
        let run = async { drop(ended.await) };
        thread::run("tenure-redis", runtime, run).map_err(failed)?;
        Ok(engine)
    }

    fn monitors(&self) -> [&LinkMonitor; 3] {
        [&self.server.commands.monitor, &self.server.renewals.monitor, &self.subscriber.monitor]
    }

    /// Registers this client, for other clients that inspect its locks; again from time to time, and after every
    /// reconnect, when the server may have lost the record.
    async fn register(&self) -> Result<(), StoreError> {
        let server = self.server.clone();
        let mut registered = server.register().await?;
        self.io.spawn(async move {
            loop {
                let rest = match registered {
                    Registered::Written => CLIENT_KEPT / 25,
                    Registered::Refused => REGISTER_AGAIN,
                };
                tokio::select! {
                    () = pause(rest) => {}
                    () = server.commands.reconnected() => {}
                }
                // Without a record, inspecting clients see it as unknown: nothing else depends on it.
                registered = server.register().await.unwrap_or(Registered::Refused);
            }
        });
        Ok(())
    }
}

impl Engine for RedisEngine {
    fn capabilities(&self) -> Capabilities {
        Capabilities { engine: "redis", reach: Reach::Network, claim: Some(CLAIM) }
    }

    fn acquire(&self, request: AcquireRequest) -> Answer<Acquired> {
        self.operations.send(request)
    }

    fn acquire_all(&self, requests: Vec<AcquireRequest>) -> Vec<Answer<Acquired>> {
        self.operations.send_all(requests)
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Answer<Vec<Result<Renewed, StoreError>>> {
        let (server, subscriber) = (self.server.clone(), self.subscriber.clone());
        let operations = self.operations.clone();
        Answer::later(async move {
            let Renewals { outcomes, step, unsettled } = server.renew(&renewals).await;
            unsettled.into_iter().for_each(|name| operations.settle(name));
            if let Some(step) = step {
                telemetry::clock_stepped(step);
                // Other leases may have ended by that clock: the driver checks them now (I9).
                subscriber.wake(Wakeup::Missed);
            }
            Ok(outcomes)
        })
    }

    fn release(&self, request: ReleaseRequest) -> Answer<ReleaseOutcome> {
        self.operations.send(request)
    }

    fn cancel(&self, request: CancelRequest) -> Answer<()> {
        self.operations.send(request)
    }

    fn inspect(&self, name: LockName) -> Answer<LockInfo> {
        let server = self.server.clone();
        Answer::later(async move {
            let mut infos =
                server.inspect(&[name], LockInfo::HOLDERS_SHOWN, LockInfo::WAITERS_SHOWN).await?;
            let short = || Err(StoreError::unknown("the server's answer is too short"));
            infos.pop().unwrap_or_else(short)
        })
    }

    fn list(&self, request: ListRequest) -> Answer<Vec<LockInfo>> {
        let server = self.server.clone();
        Answer::later(async move { server.list(request).await })
    }

    fn force_release(&self, request: ForceRequest) -> Answer<ForceOutcome> {
        let (server, operations) = (self.server.clone(), self.operations.clone());
        Answer::later(async move {
            let (outcome, is_more) = server.force(&request).await?;
            if is_more {
                operations.settle(request.name);
            }
            Ok(outcome)
        })
    }

    fn checkup(&self) -> Answer<Vec<Finding>> {
        let server = self.server.clone();
        Answer::later(async move { checkup::checkup(&server).await })
    }

    fn place(&self) -> String {
        self.server.store_id()
    }

    fn health(&self) -> Health {
        Health { links: self.monitors().map(LinkMonitor::health).into(), degraded: 0 }
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        self.subscriber.listen(listener);
    }

    fn round_trip(&self) -> Duration {
        self.server.commands.trip.fastest()
    }

    fn await_wakeup(&self) {
        self.subscriber.await_wakeup();
    }
}

impl Drop for RedisEngine {
    fn drop(&mut self) {
        self.monitors().into_iter().for_each(LinkMonitor::end);
        self.sending.iter().for_each(AbortHandle::abort);
        // The records of short-lived clients, such as commands in a shell, must not pile up in the server.
        self.server.unregister();
    }
}

impl fmt::Debug for RedisEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisEngine").field("client", &self.server.client).finish_non_exhaustive()
    }
}
