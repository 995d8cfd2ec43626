//! The Redis engine: one server, Redis or Valkey, or a cluster of them.
//!
//! - [`routes`]: which server has a lock; [`node`]: the connections to one server; [`cluster`], [`redirect`], [`slot`]
//!   and [`topics`]: the nodes of a cluster, their slots, and the subscriptions to them; [`sentinel`]: the master that
//!   Sentinels name.
//! - [`protocol`]: the format of the locks, Tenure's own or Redisson's. [`scripts`] and `lua/`: each operation is one script, and so one atomic step.
//! - [`batch`]: concurrent operations share calls; [`operations`]: their arguments and answers; [`trip`]: how
//!   many calls may be in flight.
//! - [`link`]: a connection with reconnects; [`call`]: runs scripts on it; [`role`]: whether the server is a
//!   master; [`pace`]: the backoff between attempts to connect.
//! - [`wire`]: one established connection; [`reader`]: which thread reads its replies; [`inbox`], [`stream`],
//!   [`socket`], [`tls`], [`resp`] and [`address`]: received replies, the stream, its socket, its encryption, the
//!   protocol and the URL.
//! - [`subscriber`]: receives wake-ups; [`messages`]: their texts.
//! - [`server`]: requests that are not batched; [`renewals`]: many leases in one call; [`confirmations`]: waits for
//!   replicas; [`records`]: parses the answers about locks; [`keys`]: the names of keys.
//! - [`marker`], [`survey`], [`quorum_url`]: the server as a node of a quorum.
//! - [`errors`]: what an error of the server means; [`checkup`]: the findings of `doctor`;
//!   [`permissions`]: what this user may do on the server.
//!
//! One owned I/O thread connects, detects overdue replies, and reads replies unless another thread does. So callers
//! may use any executor or none, and renewals continue whatever the callers do. Commands, renewals and wake-ups each
//! have a connection of their own: a renewal must not queue behind other traffic. So do confirmations by replicas, which
//! block theirs, once there is one.

mod address;
mod batch;
mod call;
mod checkup;
mod cluster;
mod cluster_checkup;
mod cluster_url;
mod confirmations;
mod dialogue;
mod errors;
#[cfg(fuzzing)]
pub(super) mod fuzzing;
mod host_list;
mod inbox;
mod keys;
mod late;
mod link;
mod marker;
mod messages;
mod node;
mod operations;
mod options;
mod pace;
mod permissions;
mod protocol;
mod quorum_url;
mod reader;
mod records;
mod redirect;
mod redisson_checkup;
mod renewals;
mod resp;
mod role;
mod routes;
mod scripts;
mod sentinel;
mod sentinel_url;
mod server;
mod slot;
mod socket;
mod stream;
mod subscriber;
mod survey;
#[cfg(test)]
mod tests;
mod tls;
mod together;
mod topics;
mod topology;
mod trip;
mod wakeups;
mod wire;

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use address::{Address, Master, Store};
use batch::Batcher;
use cluster::Cluster;
pub(crate) use marker::Marker;
use node::{Node, Setup};
pub(crate) use options::Options;
use pace::{Pace, pause};
pub(crate) use protocol::Protocol;
pub(crate) use quorum_url::{NodeAddress, parse as parse_quorum};
use resp::Command;
use routes::Routes;
use server::{CLIENT_KEPT, Registered, Server};
pub(crate) use survey::{Mark, Survey};
use topics::Scope;
use wakeups::Wakeups;

use super::link_monitor::LinkMonitor;
use super::{
    AcquireRequest, Acquired, Answer, CancelRequest, Capabilities, Engine, Features, Finding,
    ForceOutcome, ForceRequest, Health, ListRequest, Listener, Reach, ReleaseOutcome,
    ReleaseRequest, Renewal, Renewed, Replicas, Topology, Wakeup,
};
use crate::core::fence::RETENTION;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::error::{Error, StoreError};
use crate::info::{About, LockInfo};
use crate::sync::lock;
use crate::thread;

/// The lease of a hand-over until its first renewal, which the watchdog sends after a third of it at the latest; a
/// hold that is released before then needs none. Longer if the server is far away.
const CLAIM: Duration = Duration::from_secs(3);

/// When to register this client again after the server refused to write its record.
const REGISTER_AGAIN: Duration = Duration::from_secs(10);

/// A client of a Redis or Valkey server, or of a cluster.
pub struct RedisEngine {
    server: Arc<Server>,
    operations: Arc<Batcher>,
    wakeups: Arc<Wakeups>,
    io: Handle,
    /// Tasks on runtimes that outlive the engine.
    tasks: Mutex<Vec<AbortHandle>>,
    // Dropped with the engine, which ends the I/O thread, unless that is another engine's.
    _running: Option<oneshot::Sender<()>>,
}

impl RedisEngine {
    /// Connects to the server at `url`.
    ///
    /// # Errors
    /// When the URL is invalid, or the server cannot be reached or refuses the login.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_as(url, Options::default()).await
    }

    pub(crate) async fn connect_as(url: &str, mut options: Options) -> Result<Self, Error> {
        let (protocol, url) = Protocol::take(url)?;
        options.protocol = options.protocol.and(protocol);
        Self::connect_to(Store::parse(&url)?, options).await
    }

    /// Connects to a node of a quorum.
    pub(crate) async fn connect_node(
        address: &NodeAddress,
        options: Options,
    ) -> Result<Self, Error> {
        Self::connect_to(Store::One(Box::new(address.0.clone())), options).await
    }

    async fn connect_to(store: Store, options: Options) -> Result<Self, Error> {
        let (setup, running) = start_io(&options)?;
        let reached = async {
            let (routes, address) = match store {
                Store::One(address) => (one(&address, &setup).await?, address.shown()),
                Store::Cluster(members) => {
                    let shown = members.to_string();
                    (Routes::Cluster(Cluster::connect(members, setup.clone()).await?), shown)
                }
            };
            let engine = Self::new(routes, address, setup, options.about, running);
            engine.register().await.map(|()| engine)
        };
        reached.await.map_err(|error| Error::Connect { error })
    }

    fn new(
        routes: Routes,
        address: String,
        setup: Setup,
        about: About,
        running: Option<oneshot::Sender<()>>,
    ) -> Self {
        let Setup { client, io, wakeups, runtime: caller, .. } = setup;
        let operations = Batcher::new(routes.clone(), client.clone());
        if let Routes::Cluster(cluster) = &routes {
            let cluster = cluster.clone();
            drop(io.spawn(thread::lasting(move || cluster.clone().watch())));
        }
        let sending = operations.clone();
        let sending = match caller {
            // It runs after the tasks that a reply has woken, and so finds the operations of all of them. If it does
            // not run, the gathered operations are sent when the next answer arrives.
            Some(runtime) => runtime.spawn(sending.keep_sending()).abort_handle(),
            None => {
                let sending = thread::lasting(move || sending.clone().keep_sending());
                io.spawn(sending).abort_handle()
            }
        };
        let store = OnceLock::new();
        let server = Arc::new(Server { routes, client, about, store, address });
        let tasks = Mutex::new(vec![sending]);
        Self { server, operations, wakeups, io, tasks, _running: running }
    }

    /// Registers this client, for other clients that inspect its locks; again from time to time, and after every
    /// reconnect, when the server may have lost the record.
    async fn register(&self) -> Result<(), StoreError> {
        let (server, wakeups) = (self.server.clone(), self.wakeups.clone());
        let mut registered = server.register().await?;
        let registering = self.io.spawn(async move {
            loop {
                let rest = match registered {
                    Registered::Written => CLIENT_KEPT / 25,
                    Registered::Refused => REGISTER_AGAIN,
                };
                tokio::select! {
                    () = pause(rest) => {}
                    () = server.reconnected() => wakeups.wake(Wakeup::Returned),
                }
                // Without a record, inspecting clients see it as unknown: nothing else depends on it.
                registered = server.register().await.unwrap_or(Registered::Refused);
            }
        });
        lock(&self.tasks).push(registering.abort_handle());
        Ok(())
    }
}

/// Starts the I/O thread, which ends when the sender is dropped, unless there is one.
fn start_io(options: &Options) -> Result<(Setup, Option<oneshot::Sender<()>>), Error> {
    let (io, running) = match options.io.clone() {
        Some(io) => (io, None),
        None => {
            let (io, running) = thread::start_io("tenure-redis")?;
            (io, Some(running))
        }
    };
    // Fences must outlive their locks at a node of a quorum for as long as clocks may differ.
    let retention = match options.quorum {
        Some(_) => options.retention.max(RETENTION),
        None => options.retention,
    };
    let setup = Setup {
        client: format!("{:016x}", crate::owner::unique_number()).into(),
        retention,
        marker: options.quorum.clone(),
        protocol: options.protocol,
        runtime: options.runtime.clone(),
        io,
        wakeups: Arc::default(),
    };
    Ok((setup, running))
}

/// Connects to one server, which may be replaced by another one.
async fn one(address: &Address, setup: &Setup) -> Result<Routes, StoreError> {
    let pace = Pace::default();
    let node = Node::start(address, setup, pace, Scope::All);
    if let Master::Named(sentinels) = &address.master {
        let (sentinels, pace) = (sentinels.clone(), node.commands.pace.clone());
        let watching = thread::lasting(move || sentinels.clone().watch(pace.clone()));
        drop(setup.io.spawn(watching));
    }
    node.first_attempt().await?;
    Ok(Routes::One(node))
}

impl Engine for RedisEngine {
    fn capabilities(&self) -> Capabilities {
        let (engine, claim, features) = match self.server.routes.protocol() {
            Protocol::Tenure => ("redis", Some(CLAIM), Features::ALL),
            Protocol::Redisson { is_fenced } => {
                ("redisson", None, Features::of_redisson(is_fenced))
            }
        };
        Capabilities { engine, reach: Reach::Network, claim, has_replicas: true, features }
    }

    fn acquire(&self, request: AcquireRequest) -> Answer<Acquired> {
        match self.server.check(&request) {
            Ok(()) => self.operations.send(request),
            Err(error) => Answer::now(Err(error)),
        }
    }

    fn acquire_all(&self, requests: Vec<AcquireRequest>) -> Vec<Answer<Acquired>> {
        if requests.iter().any(|request| self.server.check(request).is_err()) {
            return requests.into_iter().map(|request| self.acquire(request)).collect();
        }
        self.operations.send_all(requests)
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Answer<Vec<Result<Renewed, StoreError>>> {
        self.extend(renewals, None)
    }

    fn renew_replicated(
        &self,
        renewals: Vec<Renewal>,
        replicas: Replicas,
    ) -> Answer<Vec<Result<Renewed, StoreError>>> {
        self.extend(renewals, Some(replicas))
    }

    fn server_of(&self, name: &LockName, _entry: crate::Entry) -> u64 {
        self.server.routes.number_of(name)
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

    fn topology(&self) -> Answer<Topology> {
        let server = self.server.clone();
        Answer::later(async move { topology::topology(&server).await })
    }

    fn health(&self) -> Health {
        let nodes = self.server.routes.nodes();
        let links = nodes.iter().flat_map(|node| node.health());
        Health { links: links.collect(), degraded: 0 }
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        self.wakeups.listen(listener);
    }

    fn time(&self) -> Answer<Option<Moment>> {
        let server = self.server.clone();
        Answer::later(async move {
            let reply = server.request_at(keys::STORE, &Command::new("TIME")).await?;
            match errors::error_in(&reply) {
                Some(error) => Err(errors::of_server(error)),
                None => Ok(survey::read_time(&reply)),
            }
        })
    }

    fn round_trip(&self) -> Duration {
        self.server.routes.round_trip()
    }

    fn await_wakeup(&self) {
        // In a cluster, it is not known from which node it will come.
        if let Routes::One(node) = &self.server.routes {
            node.subscriber.await_wakeup();
        }
    }
}

impl Drop for RedisEngine {
    fn drop(&mut self) {
        for node in self.server.routes.nodes() {
            node.monitors().into_iter().for_each(LinkMonitor::end);
        }
        lock(&self.tasks).iter().for_each(AbortHandle::abort);
        // The records of short-lived clients, such as commands in a shell, must not pile up in the server.
        self.server.unregister();
    }
}

impl fmt::Debug for RedisEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisEngine").field("client", &self.server.client).finish_non_exhaustive()
    }
}
