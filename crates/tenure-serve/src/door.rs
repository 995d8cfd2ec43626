//! The HTTP interface: each request is one operation on a lock.
//!
//! The name of a lock is the rest of the path, percent-encoded; slashes need not be. In a `POST` the last segment is the
//! operation.

mod acquire;
pub(crate) mod keys;
pub(crate) mod lists;
mod look;
mod name;
mod release;
mod renew;
mod request;
pub(crate) mod sessions;
mod waiting;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, Response, header};
use axum::response::IntoResponse;
use serde_json::Value;

pub(crate) use name::{Query, lock_name};

use crate::problem::Problem;
use crate::server::Server;
use keys::Keys;
use lists::Lists;
use sessions::Sessions;

/// What the interface remembers.
pub(crate) struct Door {
    pub(crate) keys: Keys,
    pub(crate) lists: Lists,
    pub(crate) sessions: Sessions,
}

/// Answers a request below `/v1/`.
pub(crate) async fn answer(server: &Server, request: Request) -> Result<Response<Body>, Problem> {
    let path = request.uri().path().to_owned();
    let is_looking = matches!(*request.method(), Method::GET | Method::HEAD);
    let rest = path.strip_prefix("/v1/").unwrap_or_default();
    if !matches!(rest, "locks" | "events" | "state") {
        // A member of the body that is given as a parameter would be ignored.
        Query::parse(request.uri().query())?.end()?;
    }
    match rest {
        "locks" | "events" | "state" | "health" if !is_looking => Err(Problem::method("GET, HEAD")),
        "locks" => look::list(server, Query::parse(request.uri().query())?).await,
        "events" => look::events(server, &request),
        "state" => look::state(server, &request),
        "health" => Ok(json(&server.watcher().health())),
        _ => match rest.strip_prefix("locks/") {
            Some(name) if is_looking => look::one(server, &lock_name(name)?).await,
            Some(rest) if request.method() == Method::POST => act(server, rest, request).await,
            Some(_) => Err(Problem::method("GET, HEAD, POST")),
            None => Err(Problem::not_found()),
        },
    }
}

/// Performs the operation that the last segment names.
async fn act(server: &Server, rest: &str, request: Request) -> Result<Response<Body>, Problem> {
    let (name, operation) = rest.rsplit_once('/').ok_or_else(Problem::not_found)?;
    let name = lock_name(name)?;
    match operation {
        "acquire" => Box::pin(acquire::answer(server, name, request)).await,
        "renew" => renew::answer(server, &name, request).await,
        "release" => release::answer(server, &name, request).await,
        "force-release" => release::force(server, name, request).await,
        _ => Err(Problem::not_found()),
    }
}

/// An answer with a JSON object.
pub(crate) fn json(value: &Value) -> Response<Body> {
    written(value.to_string())
}

/// An answer with JSON that is written already.
fn written(text: impl Into<Body>) -> Response<Body> {
    ([(header::CONTENT_TYPE, "application/json")], text.into()).into_response()
}
