//! The locking of the HTTP backend of Terraform and OpenTofu.
//!
//! `LOCK` and `UNLOCK` come with the same JSON object, which names the lock by an ID; 423 answers with the object of the
//! holder. The object is kept in the holder's note and the ID is the owner, so any server of the store knows both. The lock is
//! held until it is unlocked, or for a day: these tools do not renew it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use serde_json::{Map, Value, json};
use tenure::engine::ForceOutcome;
use tenure::{About, Handle, HolderInfo, Lease, LockInfo, LockName, Owner};

use crate::door::{Query, json as json_response, lock_name};
use crate::problem::Problem;
use crate::server::Server;
use crate::shape::millis;
use crate::word::Word;
use crate::{body, clock};

/// What the note of such a lock begins with.
const MARK: &str = "terraform ";

/// Members that are left out of the note, in this order, if it would be too long.
const OPTIONAL: [&str; 4] = ["Info", "Path", "Version", "Who"];

pub(crate) async fn answer(server: &Server, request: Request) -> Result<Response<Body>, Problem> {
    let path = request.uri().path().to_owned();
    let name = lock_name(path.strip_prefix("/v1/terraform/").unwrap_or_default())?;
    let mut query = Query::parse(request.uri().query())?;
    let lease = query.number("lease_ms")?.map(Duration::from_millis);
    // OpenTofu and Terraform add the ID to the address of the state, not to this one; it is harmless.
    query.take("ID");
    query.end()?;
    let method = request.method().as_str().to_owned();
    let sent = body::read(request.into_body()).await?;
    match &*method {
        "LOCK" | "PUT" => {
            let info = Info::parse(&sent)?.ok_or_else(|| Problem::usage("the body is empty"))?;
            lock(server, &name, &info, lease.unwrap_or(Lease::MAX.duration())).await
        }
        "UNLOCK" | "DELETE" => match Info::parse(&sent)? {
            Some(info) => unlock(server, &name, info.owner).await,
            None => force_unlock(server, &name).await,
        },
        _ => Err(Problem::method("LOCK, UNLOCK, PUT, DELETE")),
    }
}

/// The object that the tools send.
struct Info {
    owner: Owner,
    fields: Map<String, Value>,
}

impl Info {
    /// None if nothing was sent.
    fn parse(sent: &[u8]) -> Result<Option<Self>, Problem> {
        if sent.trim_ascii().is_empty() {
            return Ok(None);
        }
        let wrong = |why: &str| Problem::usage(format!("this is no lock of Terraform: {why}"));
        let Ok(Value::Object(fields)) = serde_json::from_slice(sent) else {
            return Err(wrong("the body is no JSON object"));
        };
        let id = fields.get("ID").and_then(Value::as_str);
        let id = id.ok_or_else(|| wrong("it has no ID"))?;
        let owner = owner_of(id).ok_or_else(|| wrong("its ID is no UUID"))?;
        Ok(Some(Self { owner, fields }))
    }

    /// The object as a note, shortened if it must be.
    fn note(&self) -> String {
        let mut fields = self.fields.clone();
        for name in OPTIONAL {
            if let Some(note) = fitting(&fields) {
                return note;
            }
            fields.remove(name);
        }
        fitting(&fields).unwrap_or_else(|| {
            // An ID is a UUID, so it fits alone.
            fields.retain(|name, _| name == "ID");
            written(&fields)
        })
    }
}

/// The owner that an ID stands for: the 32 digits of a UUID, in groups of 8, 4, 4, 4 and 12 or in one. Nothing else may be in it,
/// because it is part of the note, whose length is bounded.
fn owner_of(id: &str) -> Option<Owner> {
    let dashes: Vec<_> = id.match_indices('-').map(|(at, _)| at).collect();
    let is_uuid = dashes.is_empty() || dashes == [8, 13, 18, 23];
    if is_uuid { id.replace('-', "").parse().ok() } else { None }
}

fn written(fields: &Map<String, Value>) -> String {
    format!("{MARK}{}", Value::Object(fields.clone()))
}

/// The note, if it is not too long.
fn fitting(fields: &Map<String, Value>) -> Option<String> {
    Some(written(fields)).filter(|note| note.len() <= About::MAX_NOTE_BYTES)
}

/// The handles of the locks that this server has acquired for the tools. Another server, or this one after a restart, takes the
/// lock away from the ID instead, which keeps a record.
#[derive(Default)]
pub(crate) struct Handles(Mutex<HashMap<(LockName, Owner), Handle>>);

impl Handles {
    fn put(&self, handle: Handle) {
        let mut handles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if handles.len() >= MOST_HANDLES {
            handles.clear();
        }
        handles.insert((handle.name().clone(), handle.owner()), handle);
    }

    fn take(&self, name: &LockName, owner: Owner) -> Option<Handle> {
        let mut handles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        handles.remove(&(name.clone(), owner))
    }
}

/// How many handles are remembered.
const MOST_HANDLES: usize = 10_000;

async fn lock(
    server: &Server,
    name: &LockName,
    info: &Info,
    lease: Duration,
) -> Result<Response<Body>, Problem> {
    let tenure = server.tenure().await?;
    if !tenure.features().has_notes {
        let sentence = "this store cannot keep the object that Terraform and OpenTofu send, so they cannot lock here: Redisson's format has no room for it";
        return Err(Problem::usage(sentence));
    }
    let lock = tenure.lock(name.clone()).lease(lease).owner(info.owner).note(info.note());
    let present = lock.inspect().await?;
    match holder(&present, info.owner) {
        // The same request, sent again: its first answer was lost.
        Some(holder) if is_of_tool(holder) => {
            return Ok(json_response(&Value::Object(info.fields.clone())));
        }
        // Of another program, which shows its owner to all.
        Some(_) => return Ok(locked(&present)),
        None => {}
    }
    match lock.try_acquire().await? {
        Some(guard) => {
            server.terraform().put(guard.detach().await?);
            Ok(json_response(&Value::Object(info.fields.clone())))
        }
        None => Ok(locked(&lock.inspect().await?)),
    }
}

/// Ends the hold of this ID.
async fn unlock(server: &Server, name: &LockName, owner: Owner) -> Result<Response<Body>, Problem> {
    let tenure = server.tenure().await?;
    let present = tenure.lock(name.clone()).inspect().await?;
    let Some(holder) = holder(&present, owner) else {
        if present.is_free() {
            let detail = format!("`{name}` was not held any more");
            return Err(Problem::of_word(Word::Lost, detail));
        }
        return Ok(locked(&present));
    };
    if !is_of_tool(holder) {
        return Err(not_of_tool(name));
    }
    if let Some(handle) = server.terraform().take(name, owner) {
        tenure.release(&handle).await?;
    }
    // A hold that another server made, or a second entry of a request that was sent twice at once.
    let reason = "unlocked by Terraform or OpenTofu";
    tenure.force_release(name.clone(), Some(holder.owner), reason).await?;
    Ok(StatusCode::OK.into_response())
}

/// `terraform force-unlock` sends no body: the tool has asked its user.
async fn force_unlock(server: &Server, name: &LockName) -> Result<Response<Body>, Problem> {
    let tenure = server.tenure().await?;
    let present = tenure.lock(name.clone()).inspect().await?;
    let Some(holder) = present.holders.iter().find(|holder| is_of_tool(holder)) else {
        return Err(not_of_tool(name));
    };
    let reason = "force-unlock by Terraform or OpenTofu";
    match tenure.force_release(name.clone(), Some(holder.owner), reason).await? {
        ForceOutcome::Released(_) => {
            server.log(&format!("the release of `{name}` was forced: {reason}"));
            Ok(StatusCode::OK.into_response())
        }
        ForceOutcome::NotHeld => {
            Err(Problem::of_word(Word::Lost, format!("`{name}` was not held any more")))
        }
    }
}

/// What the tools sent for a lock that they hold: its note is their object, with the ID that is its owner.
fn sent_for(holder: &HolderInfo) -> Option<Info> {
    let sent = holder.about.note.as_deref()?.strip_prefix(MARK)?;
    let info = Info::parse(sent.as_bytes()).ok()??;
    Some(info).filter(|info| info.owner == holder.owner)
}

fn is_of_tool(holder: &HolderInfo) -> bool {
    sent_for(holder).is_some()
}

fn not_of_tool(name: &LockName) -> Problem {
    let detail = format!("`{name}` is not locked by Terraform or OpenTofu: nothing was done");
    Problem::of_word(Word::NotAcquired, detail).with_status(StatusCode::CONFLICT)
}

fn holder(info: &LockInfo, owner: Owner) -> Option<&HolderInfo> {
    info.holders.iter().find(|holder| holder.owner == owner)
}

/// The refusal, as the tools read it: the object of the holder.
fn locked(info: &LockInfo) -> Response<Body> {
    let mut response = json_response(&described(info));
    *response.status_mut() = StatusCode::LOCKED;
    response
}

fn described(info: &LockInfo) -> Value {
    let Some(holder) = info.holders.first() else {
        let now = clock::rfc3339(clock::now_ms());
        return json!({ "ID": "", "Operation": "waiting", "Info": "others wait for it", "Who": "", "Version": "",
                       "Created": now, "Path": info.name.as_str() });
    };
    let (about, note) = (&holder.about, holder.about.note.as_deref().unwrap_or_default());
    match sent_for(holder) {
        Some(info) => Value::Object(info.fields),
        // A member that is no time would make the tools refuse the whole object.
        None => json!({
            "ID": holder.owner.to_string(),
            "Operation": "held by another program",
            "Info": note,
            "Who": format!("{}@{}", about.program, about.host),
            "Version": "",
            "Created": clock::rfc3339(millis(holder.since)),
            "Path": info.name.as_str(),
        }),
    }
}
