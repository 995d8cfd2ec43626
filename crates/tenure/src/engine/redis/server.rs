//! Requests that are not batched: registering the client, inspecting, listing and forcing locks.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use super::link::Link;
use super::protocol::Protocol;
use super::records::{self, Clients};
use super::redirect;
use super::resp::{Command, Reply};
use super::routes::{MOST_REDIRECTS, Purpose, Routes};
use super::together::together;
use super::{errors, keys, scripts};
use crate::core::name::LockName;
use crate::engine::{AcquireRequest, ForceOutcome, ForceRequest, ListRequest};
use crate::error::StoreError;
use crate::info::{About, LockInfo};
use crate::owner::{Owner, unique_number};

/// How long the record of a forced release is kept.
const RECORD_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long the record of a client is kept without being refreshed: longer than any lease.
pub(super) const CLIENT_KEPT: Duration = Duration::from_secs(25 * 3600);

/// The servers, and this client's identity on them.
pub(super) struct Server {
    pub(super) routes: Routes,
    pub(super) client: Arc<str>,
    pub(super) about: About,
    /// The id of the store, once it is known.
    pub(super) store: OnceLock<String>,
    /// The store's address, in case its id cannot be read.
    pub(super) address: String,
}

/// The outcome of registering this client.
pub(super) enum Registered {
    Written,
    /// The server is out of memory or disk space.
    Refused,
}

impl Server {
    /// Refuses a lock that cannot be stored in this format.
    pub(super) fn check(&self, request: &AcquireRequest) -> Result<(), StoreError> {
        match &self.routes {
            Routes::One(_) => Ok(()),
            Routes::Cluster(cluster) => {
                cluster.protocol().check_in_cluster(&request.name, request.shape.kind())
            }
        }
    }

    /// Writes this client's record, for clients that inspect its locks, and reads the store's id.
    ///
    /// Locks need neither. So a server without memory or disk space for the record is used all the same,
    /// and the record is written later. Any other refusal concerns locks as well, and is reported here: Redis 6.2,
    /// with too few replicas, refuses this write but not scripts.
    pub(super) async fn register(&self) -> Result<Registered, StoreError> {
        let kept = CLIENT_KEPT.as_millis().to_string();
        if self.routes.protocol().is_redisson() {
            // No lock in that format names its client.
            self.read_store_id(&kept).await?;
            return Ok(Registered::Written);
        }
        let key = keys::client(&self.client);
        let record = records::client(&self.about);
        let set = Command::new("SET").arg(&key).arg(record).arg("PX").arg(&kept);
        let written = self.request_at(&key, &set);
        let store = self.read_store_id(&kept);
        let (written, store) = tokio::join!(written, store);
        if let Routes::Cluster(_) = self.routes
            && let Err(error) = written.as_ref().map(drop).and(store.as_ref().map(drop))
        {
            // The nodes that have these keys may be down: locks of others do not depend on them.
            return if error.is_lasting() { Err(error.clone()) } else { Ok(Registered::Refused) };
        }
        let written = written?;
        store?;
        match errors::error_in(&written) {
            None => Ok(Registered::Written),
            Some(error) if errors::is_full(error) => Ok(Registered::Refused),
            Some(error) => Err(errors::of_server(error)),
        }
    }

    /// Reads the id of the store from a key that the first client of a store writes; it expires, like the
    /// records of clients, a day after the last client registered.
    ///
    /// The server's own `run_id` would need a permission that locks do not, and changes with every restart
    /// and failover. The key is replicated and persisted like the locks, so where the locks are the same,
    /// the id is. A store that was made by copying another's data counts as the same one, so that a set of locks
    /// of both is refused as a duplicate, rather than risked. When all data was lost, the first client
    /// that reconnects writes the id that it knows.
    async fn read_store_id(&self, kept: &str) -> Result<(), StoreError> {
        let fresh = || format!("{:016x}{:016x}", unique_number(), unique_number());
        let store = self.store.get().cloned().unwrap_or_else(fresh);
        let set = Command::new("SET").arg(keys::STORE).arg(store).arg("NX").arg("PX").arg(kept);
        let keep = Command::new("PEXPIRE").arg(keys::STORE).arg(kept);
        let get = Command::new("GET").arg(keys::STORE);
        let asked = [set, keep, get];
        let [set, keep, get] = asked.each_ref().map(|it| self.request_at(keys::STORE, it));
        // The first two may fail.
        let (_, _, get) = tokio::join!(set, keep, get);
        if let Some(store) = get?.text() {
            // The first answer is kept: locks that were ordered by it stay in order.
            let _ = self.store.set(store.to_owned());
        }
        Ok(())
    }

    /// The id of the store, which is the same for all its clients, whatever address they use; or its address, if the
    /// id could not be read.
    pub(super) fn store_id(&self) -> String {
        self.store.get().unwrap_or(&self.address).clone()
    }

    /// Resolves when a connection for commands has been re-established since the last call. For one task.
    pub(super) async fn reconnected(&self) {
        match &self.routes {
            Routes::One(node) => node.commands.reconnected().await,
            Routes::Cluster(cluster) => cluster.reconnected().await,
        }
    }

    /// Deletes this client's record, without waiting for the answer.
    pub(super) fn unregister(&self) {
        if self.routes.protocol().is_redisson() {
            return;
        }
        let key = keys::client(&self.client);
        if let Ok(node) = self.routes.node(self.routes.slot_of_key(&key)) {
            node.commands.send(&Command::new("DEL").arg(&key), Box::new(|_| ()));
        }
    }

    /// Sends a command about one key to the server that has it. An error of the server is a reply.
    pub(super) async fn request_at(
        &self,
        key: &str,
        command: &Command,
    ) -> Result<Reply, StoreError> {
        let slot = self.routes.slot_of_key(key);
        let (mut node, mut is_asking) = (self.routes.node(slot)?, false);
        for _ in 0..MOST_REDIRECTS {
            let mut command = command.clone();
            command.is_asking = is_asking;
            let reply = node.commands.request(&command).await?;
            let redirect = redirect::read(&reply, &node.commands.address);
            let Some(redirect) = redirect else { return Ok(reply) };
            (node, is_asking) = self.routes.follow(slot, &redirect)?;
        }
        Err(redirect::too_often())
    }

    /// Inspects these locks: each is the lock, or the error with which it cannot be read.
    pub(super) async fn inspect(
        &self,
        names: &[LockName],
        holders: usize,
        waiters: usize,
    ) -> Result<Vec<Result<LockInfo, StoreError>>, StoreError> {
        let by_slot = names.chunk_by(|a, b| self.routes.slot(a) == self.routes.slot(b));
        let calls = by_slot.map(|some| self.inspect_in_one_slot(some, holders, waiters));
        let mut replies = Vec::with_capacity(names.len());
        for some in together(calls).await {
            replies.extend(some?);
        }
        let clients = match self.routes.protocol() {
            Protocol::Tenure => {
                self.clients(replies.iter().flat_map(records::clients).collect()).await?
            }
            Protocol::Redisson { .. } => {
                let fields = replies.iter().flat_map(records::clients);
                fields.map(|field| (field.clone(), records::redisson_client(&field))).collect()
            }
        };
        let infos = names.iter().zip(&replies).map(|(name, reply)| match reply {
            Reply::Error(error) => Err(errors::of_server(error)),
            reply => records::read_lock(name.clone(), reply, &clients).ok_or_else(not_understood),
        });
        let mut infos: Vec<Result<LockInfo, _>> = infos.collect();
        if self.routes.protocol().is_redisson() {
            // No lock in that format says since when it is held.
            let known = infos.iter_mut().flatten().flat_map(|info| &mut info.holders);
            known.for_each(|holder| holder.since = UNIX_EPOCH);
        }
        Ok(infos)
    }

    async fn inspect_in_one_slot(
        &self,
        names: &[LockName],
        holders: usize,
        waiters: usize,
    ) -> Result<Vec<Reply>, StoreError> {
        let Some(first) = names.first() else { return Ok(Vec::new()) };
        let slot = self.routes.slot(first);
        let client = self.routes.client(&self.client, slot);
        let prepare = |link: &Link| {
            let mut call = link.prepare(&scripts::INSPECT, names.iter(), &client);
            [waiters, holders].iter().for_each(|most| call.command.push(most.to_string()));
            call
        };
        let (_, reply) = self.routes.run(slot, Purpose::Commands, prepare).await?;
        array(reply)
    }

    /// The records of the clients with these ids.
    async fn clients(&self, mut ids: Vec<String>) -> Result<Clients, StoreError> {
        ids.sort_unstable();
        ids.dedup();
        let mut by_slot: BTreeMap<u16, Vec<String>> = BTreeMap::new();
        for id in ids {
            let slot = self.routes.slot_of_key(&keys::client(&id));
            by_slot.entry(slot).or_default().push(id);
        }
        let mut known = Clients::new();
        for ids in by_slot.into_values() {
            let mut command = Command::new("MGET");
            ids.iter().for_each(|id| command.push(keys::client(id)));
            let reply = self.request_at(&keys::client(&ids[0]), &command).await;
            let reply = match (reply, &self.routes) {
                (Ok(Reply::Error(error)), _) => return Err(errors::of_server(&error)),
                // A client whose record is at a node that is down is unknown; its locks may be elsewhere.
                (Err(_), Routes::Cluster(_)) => continue,
                (reply, _) => reply?,
            };
            let found = ids.into_iter().zip(reply.array().ok_or_else(not_understood)?);
            known.extend(found.filter_map(|(id, record)| {
                Some((id, records::read_client(&mut record.text()?.split(' '))?))
            }));
        }
        Ok(known)
    }

    /// Locks with holders or waiters. Scans every key of the server, in small steps.
    pub(super) async fn list(&self, request: ListRequest) -> Result<Vec<LockInfo>, StoreError> {
        let mut names = self.names(&request.prefix).await?;
        names.sort_unstable();
        names.dedup();
        let mut infos = Vec::new();
        for some in names.chunks(100) {
            let seen = self.inspect_each(some).await?;
            infos.extend(seen.into_iter().filter(|info| info.kind.is_some() || !info.is_free()));
            if infos.len() >= request.limit {
                break;
            }
        }
        infos.truncate(request.limit);
        Ok(infos)
    }

    /// Inspects these locks for a list. An error of one is shown with it, and affects no other: a
    /// call that the server refuses because of one of its keys is split.
    async fn inspect_each(&self, names: &[LockName]) -> Result<Vec<LockInfo>, StoreError> {
        let mut infos = Vec::with_capacity(names.len());
        let mut parts = vec![names];
        while let Some(part) = parts.pop() {
            let seen = self.inspect(part, LockInfo::HOLDERS_LISTED, 0).await;
            match seen {
                Ok(seen) => infos.extend(part.iter().zip(seen).map(|(name, seen)| {
                    seen.unwrap_or_else(|error| LockInfo::unreadable(name.clone(), &error))
                })),
                Err(error) if errors::may_be_about_one(&error) => match part {
                    [name] => infos.push(LockInfo::unreadable(name.clone(), &error)),
                    // The second half first: the last one pushed is handled next.
                    part => parts.extend([&part[part.len() / 2..], &part[..part.len() / 2]]),
                },
                Err(error) => return Err(error),
            }
        }
        Ok(infos)
    }

    /// The names of all locks, of every server. Without one of them it would be no list: an operator might take a lock for free.
    async fn names(&self, prefix: &str) -> Result<Vec<LockName>, StoreError> {
        let mut names = Vec::new();
        for node in self.routes.nodes() {
            let scanned = scan(&node.commands, prefix, &mut names).await;
            scanned.map_err(|error| match &self.routes {
                Routes::One(_) => error,
                Routes::Cluster(_) => StoreError::refused(format!(
                    "the locks of the node {} are missing: {error}; the others can be inspected by name",
                    node.commands.address.master
                )),
            })?;
        }
        Ok(names)
    }

    /// Takes a lock away from its holders, from as many as possible in each call. Also returns whether there is more
    /// to settle.
    pub(super) async fn force(
        &self,
        request: &ForceRequest,
    ) -> Result<(ForceOutcome, bool), StoreError> {
        let mut owners = Vec::new();
        loop {
            let (some, is_rest, is_more) = self.force_some(request).await?;
            let is_done = !is_rest || some.is_empty();
            owners.extend(some);
            match owners.is_empty() {
                _ if !is_done => {}
                true => return Ok((ForceOutcome::NotHeld, is_more)),
                false => return Ok((ForceOutcome::Released(owners), is_more)),
            }
        }
    }

    /// The owners that lost it, whether others still hold it, and whether there is more to settle.
    async fn force_some(
        &self,
        request: &ForceRequest,
    ) -> Result<(Vec<Owner>, bool, bool), StoreError> {
        let slot = self.routes.slot(&request.name);
        let client = self.routes.client(&self.client, slot);
        let expected = request.expected.map(|owner| owner.to_string()).unwrap_or_default();
        let record = format!("{} {}", records::client(&request.by), keys::encode(&request.reason));
        let kept = RECORD_KEPT.as_millis().to_string();
        let prepare = |link: &Link| {
            let mut call = link.prepare(&scripts::FORCE, std::iter::once(&request.name), &client);
            [&expected, &record, &kept].iter().for_each(|argument| call.command.push(argument));
            if link.protocol.is_redisson() {
                call.command.push(keys::lock_key(&request.name));
            }
            call
        };
        let (_, reply) = self.routes.run(slot, Purpose::Commands, prepare).await?;
        let replies = array(reply)?;
        let (owners, rest, more) = match &replies[..] {
            [Reply::Error(error), ..] => return Err(errors::of_server(error)),
            [Reply::Array(owners), rest, more] => (owners.iter(), rest.number(), more.number()),
            _ => return Err(not_understood()),
        };
        let owners: Option<Vec<_>> = owners.map(|owner| owner.text()?.parse().ok()).collect();
        Ok((owners.ok_or_else(not_understood)?, rest == Some(1), more == Some(1)))
    }
}

/// Adds the names of one server's locks. Scans every key of it, in small steps.
async fn scan(link: &Link, prefix: &str, into: &mut Vec<LockName>) -> Result<(), StoreError> {
    let mut cursor = "0".to_owned();
    loop {
        let pattern = link.protocol.pattern(prefix);
        let mut command = Command::new("SCAN").arg(&cursor).arg("MATCH").arg(pattern);
        if link.protocol.is_redisson() {
            command = command.arg("TYPE").arg("hash");
        }
        let reply = link.request(&command.arg("COUNT").arg("1000")).await?;
        let (next, found) = match &reply {
            Reply::Error(error) => return Err(errors::of_server(error)),
            Reply::Array(parts) if parts.len() == 2 => (&parts[0], &parts[1]),
            _ => return Err(not_understood()),
        };
        let found = found.array().ok_or_else(not_understood)?;
        into.extend(found.iter().filter_map(|key| link.protocol.name(key.text()?, prefix)));
        cursor = next.text().ok_or_else(not_understood)?.to_owned();
        if cursor == "0" {
            return Ok(());
        }
    }
}

/// The items of a script's answer, after the nonce.
fn array(reply: Reply) -> Result<Vec<Reply>, StoreError> {
    match reply {
        Reply::Array(mut replies) if !replies.is_empty() => {
            replies.remove(0);
            Ok(replies)
        }
        _ => Err(not_understood()),
    }
}

fn not_understood() -> StoreError {
    StoreError::unknown("the server's answer cannot be parsed")
}
