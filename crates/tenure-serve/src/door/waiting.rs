//! An acquire whose answer is an event stream: it reports the place in the queue, then the grant, and holds the lock for as
//! long as it is open.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use serde_json::{Value, json};
use tenure::{Error, Guard, Lock, LockName, Released, Wait};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::acquire::refused;
use crate::problem::Problem;
use crate::server::Server;
use crate::shape::{fence, whole_millis};
use crate::stream::{self, Events, HEARTBEAT};
use crate::word::Word;

/// How often the place in the queue is looked up.
const LOOK: Duration = Duration::from_secs(1);

pub(super) fn stream(
    server: &Server,
    name: LockName,
    lock: Lock,
    wait: Option<Duration>,
    place: OwnedSemaphorePermit,
) -> Result<Response<Body>, Problem> {
    let stream_place = server.stream_place()?;
    let waiting = Waiting { server: server.clone(), name, lock: Arc::new(lock) };
    Ok(stream::response(move |events| async move {
        let _place = stream_place;
        let Some(guard) = waiting.acquire(&events, wait).await else { return };
        drop(place);
        waiting.hold(&events, guard).await;
    }))
}

struct Waiting {
    server: Server,
    name: LockName,
    lock: Arc<Lock>,
}

impl Waiting {
    /// Waits for the lock. None if it was not acquired, which was reported.
    async fn acquire(&self, events: &Events, wait: Option<Duration>) -> Option<Guard> {
        let wait = wait.map_or_else(Wait::forever, Wait::within);
        tokio::select! {
            acquired = self.lock.acquire_with(wait) => match acquired {
                Ok(guard) => Some(guard),
                Err(error) => {
                    let problem = match Word::of(&error) {
                        Word::NotAcquired => refused(&self.lock, &error.to_string()).await,
                        _ => error.into(),
                    };
                    events.send("refused", None, &problem.to_json()).await;
                    None
                }
            },
            () = self.report(events) => None,
            () = self.server.stopped() => {
                events.send("refused", None, &Problem::stopping().to_json()).await;
                None
            }
        }
    }

    /// Reports how many are in the queue, until the client is gone.
    async fn report(&self, events: &Events) {
        let mut last = None;
        loop {
            crate::clock::pause(LOOK).await;
            let waiting = self.lock.inspect().await.ok().map(|info| info.waiting);
            let is_there = match waiting {
                Some(waiting) if last != Some(waiting) => {
                    let data = json!({ "name": self.name.as_str(), "waiting": waiting });
                    events.send("waiting", None, &data).await
                }
                _ => events.beat().await,
            };
            if !is_there {
                return;
            }
            last = waiting;
        }
    }

    /// Holds the lock until the client hangs up, it is lost, it is released by its handle, or the server stops.
    async fn hold(&self, events: &Events, guard: Guard) {
        let owner = guard.owner();
        let data = json!({
            "name": self.name.as_str(),
            "owner": owner.to_string(),
            "fence": fence(guard.fence()),
            "left_ms": whole_millis(guard.remaining()),
        });
        if !events.send("granted", None, &data).await {
            return;
        }
        let (_open, mut release) = self.server.door().sessions.open(&self.name, owner);
        loop {
            tokio::select! {
                lost = guard.lost() => {
                    let problem = Problem::from(Error::Lost(lost)).to_json();
                    events.send("lost", None, &problem).await;
                    return;
                }
                asked = &mut release => {
                    let released = guard.release().await;
                    let data = json!({ "name": self.name.as_str(), "owner": owner.to_string() });
                    self.report_release(events, &released, &data).await;
                    if let Ok(reply) = asked {
                        let _ = reply.send(released);
                    }
                    return;
                }
                () = self.server.stopped() => {
                    let released = guard.release().await;
                    let data = Problem::stopped_holding(&self.name).to_json();
                    self.report_release(events, &released, &data).await;
                    return;
                }
                _ = timeout(HEARTBEAT, std::future::pending::<()>()) => {
                    if !events.beat().await {
                        return;
                    }
                }
            }
        }
    }

    /// Reports `released` only if the store has confirmed it: the client may rely on that the lock is free.
    async fn report_release(
        &self,
        events: &Events,
        released: &Result<Released, Error>,
        data: &Value,
    ) {
        let lost = match released {
            Ok(Released::Now) => {
                events.send("released", None, data).await;
                return;
            }
            Ok(_) => Problem::of_word(Word::Lost, format!("`{}` was not held any more", self.name)),
            Err(error) => {
                let detail = format!("the stream ends, and the lock with its lease: {error}");
                Problem::of_word(Word::Lost, detail)
            }
        };
        events.send("lost", None, &lost.to_json()).await;
    }
}
