//! Parses the server's answers about locks, and the records of clients.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::keys;
use super::messages::read_entry;
use super::operations::read_shape;
use super::resp::Reply;
use crate::core::fence::Fence;
use crate::core::name::LockName;
use crate::info::{About, ForceRecord, HolderInfo, LockInfo, WaiterInfo};

/// The records of clients, by their ids.
pub(super) type Clients = HashMap<String, About>;

/// A lock from the answer of `inspect.lua`, with the clients it names.
pub(super) fn read_lock(name: LockName, value: &Reply, clients: &Clients) -> Option<LockInfo> {
    let [shape, holding, holders, waiting, waiters, record] = value.array()? else { return None };
    let shape = shape.text()?;
    let mut info = LockInfo::free(name.clone());
    if !shape.is_empty() {
        let (kind, limit) = read_shape(shape)?;
        (info.kind, info.limit) = (Some(kind), limit);
    }
    info.holding = holding.number()? as usize;
    info.holders = holders.array()?.iter().map(|it| holder(it, clients)).collect::<Option<_>>()?;
    info.holders.sort_by_key(|holder| holder.fence);
    info.waiting = waiting.number()? as usize;
    info.waiters = waiters.array()?.iter().map(|it| waiter(it, clients)).collect::<Option<_>>()?;
    info.forced = forced(name, record.text()?);
    Some(info)
}

/// The ids of the clients that a lock names.
pub(super) fn clients(value: &Reply) -> Vec<String> {
    let Some([_, _, holders, _, waiters, _]) = value.array() else { return Vec::new() };
    let of = |list: &Reply, index: usize| {
        let rows = list.array().unwrap_or_default().iter();
        let id = |row: &Reply| Some(client_id(row.array()?.get(index)?.text()?).to_owned());
        rows.filter_map(id).collect::<Vec<_>>()
    };
    [of(holders, 5), of(waiters, 3)].concat()
}

fn holder(value: &Reply, clients: &Clients) -> Option<HolderInfo> {
    let [owner, permits, entries, fence, left, client, note] = value.array()? else { return None };
    let fence = fence.number()?;
    Some(HolderInfo {
        owner: owner.text()?.parse().ok()?,
        about: about(client.text()?, note.text()?, clients),
        permits: permits.number()? as u32,
        entries: entries.number()? as u32,
        fence: Fence::from_value(fence),
        // A fence is the time of its grant, unless several grants share a microsecond.
        since: calendar(fence),
        lease_left: Duration::from_micros(left.number()?),
    })
}

fn waiter(value: &Reply, clients: &Clients) -> Option<WaiterInfo> {
    let [entry, permits, since, client, note] = value.array()? else { return None };
    Some(WaiterInfo {
        owner: read_entry(entry.text()?)?.owner,
        about: about(client.text()?, note.text()?, clients),
        permits: permits.number()? as u32,
        since: calendar(since.number()?),
    })
}

/// The id of a client. That of a holder in Redisson's format is the whole of its field.
fn client_id(text: &str) -> &str {
    if text.starts_with('{') { keys::client_id(text) } else { text }
}

/// What is known of a holder by its field in Redisson's format: the id of its client, and the number of its thread. No thread
/// of Redisson's has the number 0.
pub(super) fn redisson_client(field: &str) -> About {
    let program = match field.rsplit_once(':') {
        Some((_, "0")) | None => "tenure".to_owned(),
        Some((client, thread)) => format!("redisson {client} thread {thread}"),
    };
    About { host: "unknown".into(), pid: 0, program: program.into(), note: None }
}

fn about(client: &str, note: &str, clients: &Clients) -> Arc<About> {
    let client = client_id(client);
    let mut about = clients.get(client).cloned().unwrap_or_else(|| About {
        host: "unknown".into(),
        pid: 0,
        program: client.into(),
        note: None,
    });
    about.note = keys::decode(note).filter(|note| !note.is_empty()).map(Into::into);
    Arc::new(about)
}

/// `microseconds owners host pid program reason`.
fn forced(name: LockName, record: &str) -> Option<ForceRecord> {
    let mut words = record.split(' ');
    let at = calendar(words.next()?.parse().ok()?);
    let owners = words.next()?.split(',').map(|owner| owner.parse().ok()).collect::<Option<_>>()?;
    let by = Arc::new(read_client(&mut words)?);
    let reason = keys::decode(words.next()?)?.into();
    Some(ForceRecord { name, owners, by, reason, at })
}

/// The record of a client: `host pid program`.
pub(super) fn client(about: &About) -> String {
    format!("{} {} {}", keys::encode(&about.host), about.pid, keys::encode(&about.program))
}

pub(super) fn read_client<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<About> {
    let host = keys::decode(words.next()?)?.into();
    let pid = words.next()?.parse().ok()?;
    let program = keys::decode(words.next()?)?.into();
    Some(About { host, pid, program, note: None })
}

fn calendar(micros: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}
