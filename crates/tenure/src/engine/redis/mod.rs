//! The Redis engine: one server, Redis 6.2 or later, or Valkey.
//!
//! - [`scripts`] and `lua/`: each operation is one script, and so one atomic step.
//! - [`link`]: a connection kept up; [`stream`] and [`address`] are its socket and its URL.
//! - [`batch`]: concurrent operations travel together; [`operations`] are their arguments.
//! - [`subscriber`]: hears of grants.
//! - [`records`]: reads what is told about locks; [`keys`] the names they have there.
//! - [`trouble`]: what an error means.
//!
//! All sockets live on one owned I/O thread, so callers may use any executor or none, and
//! renewals go on whatever the callers do. Commands, renewals and wake-ups each have a connection
//! of their own: a renewal must not stand behind other traffic.

mod address;
mod batch;
mod keys;
mod link;
mod operations;
mod records;
mod scripts;
mod stream;
mod subscriber;
#[cfg(test)]
mod tests;
mod trouble;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use address::Address;
use batch::{Batched, Batcher};
use link::Link;
use records::Clients;
use subscriber::Subscriber;

use super::{
    AcquireRequest, Acquired, Answer, CancelRequest, Capabilities, Engine, ForceOutcome,
    ForceRequest, ListRequest, Listener, Reach, ReleaseOutcome, ReleaseRequest, Renewal, Renewed,
};
use crate::core::name::LockName;
use crate::error::{Error, Trouble};
use crate::info::{About, LockInfo};

/// How long a fence outlives its lock. It guards against a clock set back by less than that;
/// names are often used once, and a longer time would fill the server.
const RETENTION: Duration = Duration::from_secs(3600);

/// How long the record of a forced release is kept.
const RECORD_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long a client is remembered that is not heard of: longer than any lease.
const CLIENT_KEPT: Duration = Duration::from_secs(25 * 3600);

/// The lease of a hand-over until its first renewal, which is sent at once.
const CLAIM: Duration = Duration::from_secs(3);

/// A client of a Redis or Valkey server.
pub struct RedisEngine {
    inner: Arc<Inner>,
    acquires: Arc<Batcher<AcquireRequest>>,
    releases: Arc<Batcher<ReleaseRequest>>,
    cancels: Arc<Batcher<CancelRequest>>,
    subscriber: Arc<Subscriber>,
    io: Handle,
    // Dropped with the engine, which ends the I/O thread.
    _running: oneshot::Sender<()>,
}

/// What the tasks on the I/O thread share.
struct Inner {
    commands: Arc<Link>,
    renewals: Arc<Link>,
    client: String,
    about: About,
}

impl RedisEngine {
    /// Connects to the server at `url`.
    ///
    /// # Errors
    /// When the URL is not understood, or the server cannot be reached or refuses the login.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let engine = Self::start(Address::parse(url)?)?;
        let reached = async {
            engine.inner.commands.first_attempt().await?;
            engine.inner.renewals.first_attempt().await?;
            engine.subscriber.first_attempt().await?;
            engine.introduce().await
        };
        match reached.await {
            Ok(()) => Ok(engine),
            Err(trouble) => Err(Error::Connect { trouble }),
        }
    }

    fn start(address: Address) -> Result<Self, Error> {
        let failed = |source| Error::Thread { source: Arc::new(source) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let client = format!("{:016x}", crate::owner::unique_number());
        let inner = Arc::new(Inner {
            commands: Link::new(address.clone()),
            renewals: Link::new(address.clone()),
            about: About::this_process(),
            client: client.clone(),
        });
        let (running, ended) = oneshot::channel::<()>();
        let engine = Self {
            acquires: Batcher::new(),
            releases: Batcher::new(),
            cancels: Batcher::new(),
            subscriber: Subscriber::new(address, &client),
            io: runtime.handle().clone(),
            inner,
            _running: running,
        };
        engine.spawn_tasks();
        let thread = std::thread::Builder::new().name("tenure-redis".into());
        let run = move || drop(runtime.block_on(ended));
        thread.spawn(run).map_err(failed)?;
        Ok(engine)
    }

    fn spawn_tasks(&self) {
        let (inner, io) = (&self.inner, &self.io);
        io.spawn(inner.commands.clone().keep_up());
        io.spawn(inner.renewals.clone().keep_up());
        io.spawn(self.subscriber.clone().keep_up());
        let (commands, common) = (&inner.commands, inner.common());
        io.spawn(self.acquires.clone().run(commands.clone(), common.clone()));
        io.spawn(self.releases.clone().run(commands.clone(), common.clone()));
        io.spawn(self.cancels.clone().run(commands.clone(), common));
    }

    /// Says who this client is, for those who look at its locks; again from time to time.
    async fn introduce(&self) -> Result<(), Trouble> {
        let inner = self.inner.clone();
        let first = self.io.spawn({
            let inner = inner.clone();
            async move { inner.introduce().await }
        });
        first.await.unwrap_or_else(|_| Err(closed()))?;
        self.io.spawn(async move {
            loop {
                link::pause(CLIENT_KEPT / 25).await;
                // Missed, it is only shown as unknown.
                let _ = inner.introduce().await;
            }
        });
        Ok(())
    }

    /// Runs an operation on the I/O thread.
    fn perform<T: Send + Unpin + 'static>(
        &self,
        operation: impl Future<Output = Result<T, Trouble>> + Send + 'static,
    ) -> Answer<T> {
        let running = self.io.spawn(operation);
        Answer::later(async move { running.await.unwrap_or_else(|_| Err(closed())) })
    }
}

fn closed() -> Trouble {
    Trouble::unknown("the client was closed")
}

impl Inner {
    /// The arguments that every script gets first, after the nonce.
    fn common(&self) -> Vec<Vec<u8>> {
        let retention = RETENTION.as_millis().to_string();
        vec![self.client.clone().into(), keys::CHANNEL.into(), retention.into()]
    }

    async fn introduce(&self) -> Result<(), Trouble> {
        let mut command = redis::cmd("SET");
        command.arg(keys::client(&self.client)).arg(records::client(&self.about));
        command.arg("PX").arg(CLIENT_KEPT.as_millis() as u64);
        match self.commands.send(&command).await? {
            Value::ServerError(error) => Err(trouble::of_server(&error)),
            _ => Ok(()),
        }
    }

    async fn renew(&self, renewals: Vec<Renewal>) -> Result<Vec<Renewed>, Trouble> {
        if renewals.is_empty() {
            return Ok(Vec::new());
        }
        let mut arguments = self.common();
        renewals.iter().for_each(|renewal| renewal.arguments(&mut arguments));
        let keys: Vec<_> = renewals.iter().map(Batched::key).collect();
        let values = self.renewals.call(Renewal::script(), &keys, &arguments).await?;
        let mut values = values.into_iter();
        renewals.iter().map(|_| batch::read::<Renewal>(values.next())).collect()
    }

    async fn inspect(&self, names: &[LockName], waiters: usize) -> Result<Vec<LockInfo>, Trouble> {
        let mut arguments = self.common();
        arguments.push(waiters.to_string().into());
        let keys: Vec<_> = names.iter().map(keys::lock).collect();
        let values = self.commands.call(&scripts::INSPECT, &keys, &arguments).await?;
        if let Some(Value::ServerError(error)) =
            values.iter().find(|it| matches!(it, Value::ServerError(_)))
        {
            return Err(trouble::of_server(error));
        }
        let clients = self.clients(values.iter().flat_map(records::clients).collect()).await?;
        let infos = names.iter().zip(&values);
        let infos = infos.map(|(name, value)| records::lock(name.clone(), value, &clients));
        let not_understood = || Trouble::unknown("the server's answer is not understood");
        infos.collect::<Option<Vec<_>>>().ok_or_else(not_understood)
    }

    /// Who the clients with these ids are.
    async fn clients(&self, mut ids: Vec<String>) -> Result<Clients, Trouble> {
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return Ok(Clients::new());
        }
        let mut command = redis::cmd("MGET");
        command.arg(ids.iter().map(|id| keys::client(id)).collect::<Vec<_>>());
        let values = self.commands.send(&command).await?;
        let values = operations::array(&values).unwrap_or_default().iter();
        let told = ids.into_iter().zip(values).filter_map(|(id, value)| {
            let about = records::read_client(&mut operations::text(value)?.split(' '))?;
            Some((id, about))
        });
        Ok(told.collect())
    }

    /// Locks that are held or wanted. Looks at every key of the server, in small steps.
    async fn list(&self, request: ListRequest) -> Result<Vec<LockInfo>, Trouble> {
        let mut names = self.names(&request.prefix).await?;
        names.sort_unstable();
        names.dedup();
        let mut infos = Vec::new();
        for some in names.chunks(100) {
            let seen = self.inspect(some, 0).await?;
            infos.extend(seen.into_iter().filter(|info| info.kind.is_some()));
            if infos.len() >= request.limit {
                break;
            }
        }
        infos.truncate(request.limit);
        Ok(infos)
    }

    async fn names(&self, prefix: &str) -> Result<Vec<LockName>, Trouble> {
        let mut names = Vec::new();
        let mut cursor = "0".to_owned();
        loop {
            let mut command = redis::cmd("SCAN");
            command.arg(&cursor).arg("MATCH").arg(keys::pattern(prefix)).arg("COUNT").arg(1000);
            let value = self.commands.send(&command).await?;
            if let Value::ServerError(error) = &value {
                return Err(trouble::of_server(error));
            }
            let Some([next, found]) = operations::array(&value) else {
                return Err(Trouble::unknown("the server's answer is not understood"));
            };
            let found = operations::array(found).unwrap_or_default().iter();
            names.extend(found.filter_map(|key| keys::name(&operations::text(key)?)));
            cursor = operations::text(next).unwrap_or_else(|| "0".to_owned());
            if cursor == "0" {
                return Ok(names);
            }
        }
    }

    async fn force(&self, request: ForceRequest) -> Result<ForceOutcome, Trouble> {
        let mut arguments = self.common();
        let expected = request.expected.map(|owner| owner.to_string()).unwrap_or_default();
        let record = format!("{} {}", records::client(&request.by), keys::encode(&request.reason));
        arguments.extend([expected.into(), record.into()]);
        arguments.push(RECORD_KEPT.as_millis().to_string().into());
        let keys = [keys::lock(&request.name)];
        let values = self.commands.call(&scripts::FORCE, &keys, &arguments).await?;
        let owners = match values.first() {
            Some(Value::ServerError(error)) => return Err(trouble::of_server(error)),
            Some(Value::Array(owners)) => owners.iter(),
            _ => return Err(Trouble::unknown("the server's answer is not understood")),
        };
        let owners: Vec<_> =
            owners.filter_map(|owner| operations::text(owner)?.parse().ok()).collect();
        Ok(if owners.is_empty() { ForceOutcome::NotHeld } else { ForceOutcome::Released(owners) })
    }
}

impl Engine for RedisEngine {
    fn capabilities(&self) -> Capabilities {
        Capabilities { engine: "redis", reach: Reach::Network, claim: Some(CLAIM) }
    }

    fn acquire(&self, request: AcquireRequest) -> Answer<Acquired> {
        self.acquires.send(request)
    }

    fn renew(&self, renewals: Vec<Renewal>) -> Answer<Vec<Renewed>> {
        let inner = self.inner.clone();
        self.perform(async move { inner.renew(renewals).await })
    }

    fn release(&self, request: ReleaseRequest) -> Answer<ReleaseOutcome> {
        self.releases.send(request)
    }

    fn cancel(&self, request: CancelRequest) -> Answer<()> {
        self.cancels.send(request)
    }

    fn inspect(&self, name: LockName) -> Answer<LockInfo> {
        let inner = self.inner.clone();
        self.perform(async move {
            let mut infos = inner.inspect(&[name], LockInfo::WAITERS_SHOWN).await?;
            infos.pop().ok_or_else(|| Trouble::unknown("the server's answer is too short"))
        })
    }

    fn list(&self, request: ListRequest) -> Answer<Vec<LockInfo>> {
        let inner = self.inner.clone();
        self.perform(async move { inner.list(request).await })
    }

    fn force_release(&self, request: ForceRequest) -> Answer<ForceOutcome> {
        let inner = self.inner.clone();
        self.perform(async move { inner.force(request).await })
    }

    fn listen(&self, listener: Weak<dyn Listener>) {
        self.subscriber.listen(listener);
    }
}

impl fmt::Debug for RedisEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisEngine").field("client", &self.inner.client).finish_non_exhaustive()
    }
}
