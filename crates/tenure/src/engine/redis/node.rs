//! One server, and this client's connections to it: commands, renewals and wake-ups; confirmations by replicas as well, once
//! one is wanted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::address::{Address, Master};
use super::confirmations::Confirmations;
use super::link::Link;
use super::marker::Marker;
use super::pace::Pace;
use super::protocol::Protocol;
use super::sentinel::Asked;
use super::subscriber::Subscriber;
use super::topics::Scope;
use super::wakeups::Wakeups;
use crate::core::clock_step::ClockWatch;
use crate::engine::LinkHealth;
use crate::engine::link_monitor::LinkMonitor;
use crate::error::StoreError;
use crate::thread;

/// What all connections of a client have in common.
#[derive(Clone)]
pub(super) struct Setup {
    /// The client's id.
    pub(super) client: Arc<str>,
    /// For how long fences outlive their locks.
    pub(super) retention: Duration,
    /// The marker of the server, if it is a node of a quorum.
    pub(super) marker: Option<Marker>,
    /// The format of the locks.
    pub(super) protocol: Protocol,
    /// The runtime that reads replies and wake-ups, if not the I/O thread.
    pub(super) runtime: Option<Handle>,
    /// The I/O thread's runtime.
    pub(super) io: Handle,
    pub(super) wakeups: Arc<Wakeups>,
}

/// How many nodes were made so far.
static NODES: AtomicU64 = AtomicU64::new(1);

/// One server. Dropped, its connections end.
pub(super) struct Node {
    /// Different for each node of a client.
    pub(super) number: u64,
    pub(super) commands: Arc<Link>,
    /// A renewal must not queue behind other traffic.
    pub(super) renewals: Arc<Link>,
    pub(super) subscriber: Arc<Subscriber>,
    confirmations: OnceLock<Arc<Confirmations>>,
    io: Handle,
    pub(super) clock: Mutex<ClockWatch>,
    tasks: Vec<AbortHandle>,
}

impl Node {
    /// Starts to connect. `scope` says which wake-ups are missed while this server is not connected.
    pub(super) fn start(address: &Address, setup: &Setup, pace: Pace, scope: Scope) -> Arc<Self> {
        let pace = Arc::new(pace);
        let link = |purpose, runtime| {
            let (marker, protocol) = (setup.marker.clone(), setup.protocol);
            let (address, pace) = (address.clone(), pace.clone());
            Link::new(address, pace, setup.retention, marker, protocol, purpose, runtime)
        };
        let commands = link("commands", setup.runtime.clone());
        // Renewals must not depend on the callers' runtime (I9).
        let renewals = link("renewals", None);
        let trip = commands.trip.clone();
        let subscriber = Subscriber::new(address.clone(), pace.clone(), setup, trip, scope);
        let supervise = |link: &Arc<Link>| {
            let link = link.clone();
            setup.io.spawn(thread::lasting(move || link.clone().supervise())).abort_handle()
        };
        let mut tasks = vec![supervise(&commands), supervise(&renewals)];
        let receiving = subscriber.clone();
        let receiving = thread::lasting(move || receiving.clone().supervise());
        tasks.push(setup.io.spawn(receiving).abort_handle());
        let number = NODES.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self {
            number,
            commands,
            renewals,
            subscriber,
            confirmations: OnceLock::new(),
            io: setup.io.clone(),
            clock: Mutex::default(),
            tasks,
        })
    }

    /// Resolves when every connection was tried once.
    pub(super) async fn first_attempt(&self) -> Result<(), StoreError> {
        // First, because a server that requires a password says so here. A client that sends long scripts without one
        // is only disconnected.
        self.subscriber.first_attempt().await?;
        self.commands.first_attempt().await?;
        self.renewals.first_attempt().await
    }

    /// Confirmations by the server's replicas. The first call starts to connect.
    pub(super) fn confirmations(&self) -> &Arc<Confirmations> {
        let start = || Confirmations::start(self.commands.another("confirmations"), &self.io);
        self.confirmations.get_or_init(start)
    }

    /// Whether this client has waited for its replicas.
    pub(super) fn has_confirmations(&self) -> bool {
        self.confirmations.get().is_some()
    }

    /// What each Sentinel that watches this server answers now; none without Sentinels. Asked on the I/O thread: the caller may be on
    /// any executor.
    pub(super) async fn ask_sentinels(&self) -> Option<Vec<Asked>> {
        let Master::Named(sentinels) = &self.commands.address.master else { return None };
        let sentinels = sentinels.clone();
        self.io.spawn(async move { sentinels.survey().await }).await.ok()
    }

    /// The state of its connections, with its address if it is one of several nodes.
    pub(super) fn health(&self) -> Vec<LinkHealth> {
        let master = &self.commands.address.master;
        let node = matches!(master, Master::Member(_)).then(|| master.to_string());
        let health = |monitor: &LinkMonitor| LinkHealth { node: node.clone(), ..monitor.health() };
        self.monitors().into_iter().map(health).collect()
    }

    pub(super) fn monitors(&self) -> Vec<&LinkMonitor> {
        let Self { commands, renewals, subscriber, .. } = self;
        let mut monitors = vec![&commands.monitor, &renewals.monitor, &subscriber.monitor];
        monitors.extend(self.confirmations.get().map(|it| &it.link.monitor));
        monitors
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.monitors().into_iter().for_each(LinkMonitor::end);
        self.tasks.iter().for_each(AbortHandle::abort);
        if let Some(confirmations) = self.confirmations.get() {
            confirmations.end();
        }
    }
}
