//! What an acquire asks for.

use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderMap, header};
use tenure::{Lock, LockName, Tenure};

use crate::body::Fields;
use crate::listener::Peer;
use crate::problem::Problem;

/// How long a request waits, if it does not say.
const USUAL_WAIT: Duration = Duration::from_secs(10);

/// The lease, if the request does not name one; as that of the command.
const USUAL_LEASE: Duration = Duration::from_secs(30);

/// The longest idempotency key.
const LONGEST_KEY: usize = 200;

/// How much of a program's name is kept.
const LONGEST_AGENT: usize = 64;

/// What an acquire asks for.
pub(super) struct Wanted {
    kind: Kind,
    lease: Duration,
    /// None if it was not said.
    note: Option<String>,
    /// Where it comes from.
    source: String,
    /// None if it was not said.
    wait: Option<Duration>,
    pub(super) key: Option<String>,
    /// The answer is an event stream.
    pub(super) is_stream: bool,
}

#[derive(Debug)]
enum Kind {
    Mutex,
    Read,
    Write,
    Semaphore { limit: u32, permits: u32 },
}

impl Wanted {
    pub(super) async fn read(request: Request) -> Result<Self, Problem> {
        let source = described(&request);
        let is_stream = accepts_events(request.headers());
        let key = request.headers().get("idempotency-key").cloned();
        let key = key.map(|key| key.to_str().map(str::to_owned)).transpose();
        let key = key.map_err(|_| Problem::usage("the header Idempotency-Key must be ASCII"))?;
        let mut fields = Fields::read(request.into_body()).await?;
        let key = fields.text("idempotency_key")?.or(key);
        if key.as_ref().is_some_and(|key| key.is_empty() || key.len() > LONGEST_KEY) {
            let sentence = format!("an idempotency key has 1 to {LONGEST_KEY} bytes");
            return Err(Problem::usage(sentence));
        }
        if key.is_some() && is_stream {
            let sentence = "an event stream has no idempotency key: its lock ends with it";
            return Err(Problem::usage(sentence));
        }
        let wanted = Self {
            kind: Kind::read(&mut fields)?,
            lease: fields.millis("lease_ms")?.unwrap_or(USUAL_LEASE),
            note: fields.text("note")?,
            source,
            wait: fields.millis("wait_ms")?,
            key,
            is_stream,
        };
        fields.end()?;
        Ok(wanted)
    }

    /// What it asks for, to compare it with another request: all but how long it waits, and its note.
    pub(super) fn print(&self) -> String {
        format!("{:?} {:?}", self.kind, self.lease)
    }

    /// The lock as it is asked for.
    pub(super) fn lock(&self, tenure: &Tenure, name: &LockName) -> Lock {
        let lock = match self.kind {
            Kind::Mutex => tenure.lock(name.clone()),
            Kind::Read => tenure.rwlock(name.clone()).reader(),
            Kind::Write => tenure.rwlock(name.clone()).writer(),
            Kind::Semaphore { limit, permits } => {
                tenure.semaphore(name.clone(), limit).permits(permits)
            }
        };
        let (lock, has) = (lock.lease(self.lease), tenure.features());
        // Each request is a client of its own: the queue's order is theirs, where there is a queue.
        let lock = if has.has_queue { lock.fair() } else { lock };
        // A note that the request has is one that the store must keep, or refuse.
        let source = has.has_notes.then_some(&self.source);
        match self.note.as_ref().or(source) {
            Some(note) => lock.note(note.clone()),
            None => lock,
        }
    }

    /// How long it waits; none for as long as the stream is open.
    pub(super) fn wait(&self, longest: Duration) -> Result<Option<Duration>, Problem> {
        match self.wait {
            None if self.is_stream => Ok(None),
            None => Ok(Some(USUAL_WAIT.min(longest))),
            Some(wait) if wait > longest && !self.is_stream => {
                let most = longest.as_millis();
                Err(Problem::usage(format!("`wait_ms` may be {most} at most: ask again after it")))
            }
            wait => Ok(wait),
        }
    }
}

impl Kind {
    fn read(fields: &mut Fields) -> Result<Self, Problem> {
        let limit = fields.small_number("limit")?;
        let permits = fields.small_number("permits")?;
        let kind = fields.text("kind")?;
        let kind = match (kind.as_deref(), limit) {
            (None, Some(_)) => "semaphore",
            (kind, _) => kind.unwrap_or("mutex"),
        };
        match (kind, limit, permits) {
            ("semaphore", Some(limit), permits) => {
                Ok(Self::Semaphore { limit, permits: permits.unwrap_or(1) })
            }
            ("semaphore", None, _) => Err(Problem::usage("a semaphore needs a `limit`")),
            ("mutex" | "read" | "write", Some(_), _) | (_, _, Some(_)) => {
                Err(Problem::usage("`limit` and `permits` belong to the kind `semaphore`"))
            }
            ("mutex", ..) => Ok(Self::Mutex),
            ("read", ..) => Ok(Self::Read),
            ("write", ..) => Ok(Self::Write),
            _ => Err(Problem::usage("`kind` is one of mutex, semaphore, read and write")),
        }
    }
}

/// Where a request comes from, for the note of its lock.
fn described(request: &Request) -> String {
    let agent = request.headers().get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
    let agent: String = agent.unwrap_or("HTTP").chars().take(LONGEST_AGENT).collect();
    match request.extensions().get::<Peer>() {
        Some(Peer(peer)) => format!("{agent} from {}", peer.ip()),
        None => agent,
    }
}

fn accepts_events(headers: &HeaderMap) -> bool {
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    accept.flat_map(|accept| accept.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_events = parts.next().is_some_and(|it| it.eq_ignore_ascii_case("text/event-stream"));
        is_events && !parts.any(is_refusal)
    })
}

/// A weight of zero: what has it is not accepted.
fn is_refusal(parameter: &str) -> bool {
    let weight =
        parameter.split_once('=').filter(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
    weight.is_some_and(|(_, weight)| weight.trim().parse() == Ok(0.0_f32))
}
