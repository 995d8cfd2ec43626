//! `POST …/acquire`: long polling, or an event stream (`waiting`).

use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use serde_json::Value;
use tenure::{Error, Guard, Handle, Lock, LockName};
use tokio::time::{Instant, timeout};

use super::keys::Granted;
use super::request::Wanted;
use super::{json, waiting};
use crate::clock::now_ms;
use crate::listener::Client;
use crate::problem::Problem;
use crate::server::Server;
use crate::shape::{self, whole_millis};
use crate::word::Word;

pub(super) async fn answer(
    server: &Server,
    name: LockName,
    request: Request,
) -> Result<Response<Body>, Problem> {
    let client = request.extensions().get::<Client>().cloned();
    let wanted = Wanted::read(request).await?;
    let place = server.wait_place()?;
    let tenure = server.tenure().await?;
    let lock = wanted.lock(tenure, &name);
    let wait = wanted.wait(server.longest_wait())?;
    if wanted.is_stream {
        return waiting::stream(server, name, lock, wait, place);
    }
    let wait = wait.unwrap_or_default();
    let granted = async {
        match &wanted.key {
            Some(key) => once(server, &name, key, wanted.print(), &lock, wait).await,
            None => detached(&lock, wait, client).await,
        }
    };
    tokio::select! {
        granted = granted => match granted {
            Ok((handle, left)) => Ok(json(&object(&handle, handle.lease().duration(), left))),
            Err(problem) => Err(problem),
        },
        // The request leaves the queue.
        () = server.stopped() => Err(Problem::stopping()),
    }
}

/// A grant, as clients get it.
pub(super) fn object(handle: &Handle, lease: Duration, left: Duration) -> Value {
    let mut object = shape::handle(handle, lease);
    object["left_ms"] = whole_millis(left).into();
    object["expires_at_ms"] = now_ms().saturating_add(whole_millis(left)).into();
    object
}

/// Acquires a lock, or returns the one that an earlier request with this key has acquired.
async fn once(
    server: &Server,
    name: &LockName,
    key: &str,
    print: String,
    lock: &Lock,
    wait: Duration,
) -> Result<(Handle, Duration), Problem> {
    let started = Instant::now();
    let late = || Problem::from(Error::TimedOut { name: name.clone(), waited: wait });
    let slot = timeout(wait.max(SHORTEST), server.door().keys.slot(name, key));
    let mut slot = slot.await.map_err(|_| late())??;
    if let Some(granted) = &mut *slot {
        if granted.print != print {
            let sentence = "this idempotency key was used for another request: the kind, the limit, the permits or the lease differ";
            return Err(Problem::usage(sentence));
        }
        // Renewed, which also shows whether it is still held.
        let (lease, asked) = (granted.handle.lease().duration(), Instant::now());
        match server.tenure().await?.renew(&granted.handle).await {
            Ok(()) => {
                let left = lease.saturating_sub(asked.elapsed());
                granted.extend(left);
                return Ok((granted.handle.clone(), left));
            }
            Err(Error::Lost(_)) => *slot = None,
            Err(error) => return Err(error.into()),
        }
    }
    // Also for a client that has hung up: it asks again, with this key.
    let (handle, left) = detached(lock, wait.saturating_sub(started.elapsed()), None).await?;
    *slot = Some(Granted::new(handle.clone(), left, print));
    Ok((handle, left))
}

/// How long a retry waits at least for the request that it repeats.
const SHORTEST: Duration = Duration::from_secs(1);

/// Acquires a lock for a client that is still there: one that is not would never release it.
async fn detached(
    lock: &Lock,
    wait: Duration,
    client: Option<Client>,
) -> Result<(Handle, Duration), Problem> {
    let guard = guard(lock, wait).await?;
    if client.is_some_and(|client| client.has_hung_up()) {
        return Err(Problem::of_word(Word::Lost, "the client has hung up"));
    }
    // As detaching does, so that what is left is known before it: at least so much, by the time at which the store was asked.
    guard.confirm().await?;
    let (left, known) = (guard.remaining(), Instant::now());
    let handle = guard.detach().await?;
    Ok((handle, left.saturating_sub(known.elapsed())))
}

/// Acquires a lock. A refusal names the holders.
async fn guard(lock: &Lock, wait: Duration) -> Result<Guard, Problem> {
    let error = match wait.is_zero() {
        false => match lock.acquire_within(wait).await {
            Ok(guard) => return Ok(guard),
            Err(error) => error,
        },
        true => match lock.try_acquire().await? {
            Some(guard) => return Ok(guard),
            None => return Err(refused(lock, "it is held, or waited for, by others").await),
        },
    };
    match Word::of(&error) {
        Word::NotAcquired => Err(refused(lock, &error.to_string()).await),
        _ => Err(error.into()),
    }
}

/// The refusal of a lock that others hold.
pub(super) async fn refused(lock: &Lock, why: &str) -> Problem {
    let problem = Problem::of_word(Word::NotAcquired, why);
    match lock.inspect().await {
        Ok(info) => problem.with("lock", shape::lock(&info)),
        Err(_) => problem,
    }
}
