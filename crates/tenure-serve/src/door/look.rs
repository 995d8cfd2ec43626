//! Requests that change nothing: one lock, a list, events, and the stream that feeds the page.

use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use tenure::LockName;

use super::{Query, json, written};
use crate::access::Right;
use crate::problem::Problem;
use crate::server::Server;
use crate::{shape, stream};

/// How many locks a list has, if the request does not say, and at most.
const USUAL: u64 = 1_000;
const MOST: u64 = 10_000;

pub(super) async fn one(server: &Server, name: &LockName) -> Result<Response<Body>, Problem> {
    let info = server.tenure().await?.lock(name.clone()).inspect().await?;
    Ok(json(&shape::lock(&info)))
}

pub(super) async fn list(server: &Server, mut query: Query) -> Result<Response<Body>, Problem> {
    let prefix = query.take("prefix").unwrap_or_default();
    let limit = query.number("limit")?.unwrap_or(USUAL);
    query.end()?;
    if limit > MOST {
        return Err(Problem::usage(format!("`limit` may be {MOST} at most: give a prefix")));
    }
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let lists = &server.door().lists;
    let turn = lists.turn().await;
    let mut locks = server.tenure().await?.list(&prefix, limit + 1).await?;
    let more = locks.len() > limit;
    locks.truncate(limit);
    // On another thread: 10,000 locks take longer than a request should wait.
    let text = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        shape::locks_text(&locks, more)
    });
    let text = text.await.map_err(|_| Problem::stopping())?;
    Ok(written(lists.hold(text)?))
}

/// What happens to the locks of the store: acquires, hand-overs, releases, ended leases and forced releases.
pub(super) fn events(server: &Server, request: &Request) -> Result<Response<Body>, Problem> {
    let mut query = Query::parse(request.uri().query())?;
    let prefix = query.take("prefix").unwrap_or_default();
    query.end()?;
    let last = request.headers().get("last-event-id");
    let last = last.and_then(|id| id.to_str().ok()?.parse().ok());
    let place = server.stream_place()?;
    let watcher = server.watcher().clone();
    let server = server.clone();
    Ok(stream::response(move |events| async move {
        let _place = place;
        watcher.follow_events(&server, &events, &prefix, last).await;
    }))
}

/// All locks, and then what changes: for the page.
pub(super) fn state(server: &Server, request: &Request) -> Result<Response<Body>, Problem> {
    let mut query = Query::parse(request.uri().query())?;
    let lock = query.take("lock").map(LockName::new).transpose();
    let lock = lock.map_err(|invalid| Problem::usage(invalid.to_string()))?;
    query.end()?;
    let right = match server.access().right(request.headers()) {
        Right::Act => "act",
        _ => "look",
    };
    let place = server.stream_place()?;
    let watcher = server.watcher().clone();
    let server = server.clone();
    Ok(stream::response(move |events| async move {
        let _place = place;
        // The page offers what its user may do.
        if !events.send("hello", None, &serde_json::json!({ "right": right })).await {
            return;
        }
        watcher.follow_state(&server, &events, lock).await;
    }))
}
