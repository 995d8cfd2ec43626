//! What `doctor` finds of locks in Redisson's format, on a server whose locks are in Tenure's own.

use std::collections::BTreeSet;

use super::link::Link;
use super::resp::{Command, Reply};
use super::server::Server;
use super::together::together;
use crate::core::name::LockName;
use crate::engine::ListRequest;
use crate::engine::checkup::{Finding, Severity};
use crate::error::StoreError;

/// How many keys are looked at, and how many hashes among them: more is not worth the time of the server.
const SCANNED: usize = 20_000;
const HASHES: usize = 1_000;

/// A finding, if locks of Redisson's are there.
pub(super) async fn shared_locks(server: &Server) -> Result<Option<Finding>, StoreError> {
    let (mut found, mut fair) = (BTreeSet::new(), BTreeSet::new());
    for node in server.routes.nodes() {
        search(&node.commands, &mut found, &mut fair).await?;
    }
    let own = held_names(server).await?;
    if let Some(name) = own.iter().find(|name| found.contains(name.as_str())) {
        let found = format!("the lock `{name}` is held in Tenure's format and in Redisson's");
        let advice = "they do not exclude each other: have all clients of Tenure that share it use ?protocol=redisson";
        return Ok(Some(Finding::bad("redisson", Severity::Problem, found, advice)));
    }
    let named = |names: &BTreeSet<String>| {
        names.first().map(|name| name.escape_debug().to_string()).unwrap_or_default()
    };
    if !fair.is_empty() {
        let found = format!("Redisson's fair locks are in use, such as `{}`", named(&fair));
        let advice =
            "Tenure does not join their queues: to share a lock, Java takes it with getLock";
        return Ok(Some(Finding::bad("redisson", Severity::Warning, found, advice)));
    }
    Ok((!found.is_empty()).then(|| {
        let name = named(&found);
        let how = "with ?protocol=redisson in the URL, Tenure takes the same locks";
        Finding::fine("redisson", format!("Redisson's locks are in use, such as `{name}`: {how}"))
    }))
}

/// The names of the locks that are held in Tenure's format.
async fn held_names(server: &Server) -> Result<BTreeSet<LockName>, StoreError> {
    let request = ListRequest { prefix: String::new(), limit: SCANNED };
    match server.list(request).await {
        Err(error) if error.is_answer() => Ok(BTreeSet::new()),
        listed => Ok(listed?.into_iter().filter(|it| !it.is_free()).map(|it| it.name).collect()),
    }
}

/// Adds the names of locks and of fair locks.
async fn search(
    link: &Link,
    found: &mut BTreeSet<String>,
    fair: &mut BTreeSet<String>,
) -> Result<(), StoreError> {
    const QUEUE: &str = "redisson_lock_queue:";
    for key in scan(link, &["MATCH", "redisson_lock_queue:*"]).await? {
        let name = key.strip_prefix(QUEUE).unwrap_or_default();
        fair.insert(name.trim_matches(['{', '}']).to_owned());
    }
    let mut hashes = scan(link, &["TYPE", "hash"]).await?;
    hashes.retain(|key| !key.starts_with("tenure:"));
    hashes.truncate(HASHES);
    // In flight together.
    let asked = hashes.iter().map(|key| {
        let some = Command::new("HSCAN").arg(key).arg("0").arg("COUNT").arg("4");
        link.request(&some)
    });
    for (key, reply) in hashes.iter().zip(together(asked).await) {
        let reply = reply?;
        let fields = reply.array().and_then(|parts| parts.get(1)?.array()).unwrap_or_default();
        if fields.iter().step_by(2).filter_map(Reply::text).any(is_holder) {
            found.insert(key.clone());
        }
    }
    Ok(())
}

/// The first keys that fit these options. None if the server refuses: the finding on permissions reports it.
async fn scan(link: &Link, options: &[&str]) -> Result<Vec<String>, StoreError> {
    let (mut cursor, mut all) = ("0".to_owned(), Vec::new());
    for _ in 0..SCANNED / 1000 {
        let scan = Command::new("SCAN").arg(&cursor).arg("COUNT").arg("1000");
        let reply = link.request(&options.iter().fold(scan, |scan, it| scan.arg(it))).await?;
        let Some([next, keys]) = reply.array() else { break };
        let texts = keys.array().unwrap_or_default().iter().filter_map(Reply::text);
        all.extend(texts.map(str::to_owned));
        cursor = next.text().unwrap_or("0").to_owned();
        if cursor == "0" {
            break;
        }
    }
    Ok(all)
}

/// Whether a field is the id of a client or of a transaction, and the number of a thread, which may be negative.
fn is_holder(field: &str) -> bool {
    let field = field.strip_suffix(":write").unwrap_or(field);
    let Some((client, thread)) = field.split_once(':') else { return false };
    let is_client = matches!(client.len(), 32 | 36)
        && client.bytes().all(|it| it == b'-' || it.is_ascii_hexdigit());
    let thread = thread.strip_prefix('-').unwrap_or(thread);
    is_client && !thread.is_empty() && thread.bytes().all(|it| it.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_known_by_their_fields() {
        let client = "6b5dfc51-2d52-4dc1-ab0e-5b7f11d4f3a1";
        assert!(is_holder(&format!("{client}:23")) && is_holder(&format!("{client}:23:write")));
        assert!(is_holder(&format!("{client}:-5")), "a thread of another library");
        assert!(is_holder("0123456789abcdef0123456789abcdef:12"), "a transaction");
        for field in ["mode", "name", client, &format!("{client}:"), &format!("{client}:x")] {
            assert!(!is_holder(field), "{field}");
        }
    }
}
