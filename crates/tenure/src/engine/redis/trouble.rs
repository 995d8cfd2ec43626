//! What an error of the client library means: refused, or unknown (I6).

use redis::{RedisError, ServerError, Value};

use super::address::Place;
use crate::error::Trouble;

/// What a server says before it does anything. All else may have come midway.
const REFUSALS: &[&str] = &[
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "CROSSSLOT",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOAUTH",
    "NOPERM",
    "NOREPLICAS",
    "NOSCRIPT",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "WRONGTYPE",
];

/// The server answered a script with an error.
pub(super) fn of_server(error: &ServerError) -> Trouble {
    let code = error.code();
    let what = match error.details() {
        Some(details) => format!("the server said {code}: {details}"),
        None => format!("the server said {code}"),
    };
    // Scripts check before they write, and a script that was stopped by memory, rights or role
    // says so in its text.
    let is_refusal = |it: &&str| code == *it || what.contains(&format!("-{it} "));
    if REFUSALS.iter().any(is_refusal) { Trouble::refused(what) } else { Trouble::unknown(what) }
}

/// A request got no answer from the server.
pub(super) fn of_request(error: &RedisError) -> Trouble {
    Trouble::unknown(error.to_string())
}

/// Logging in failed: nothing was asked for yet.
pub(super) fn of_connecting(place: &Place, error: &RedisError) -> Trouble {
    Trouble::refused(format!("could not log in to {place}: {error}"))
}

pub(super) fn is_missing_script(value: &Value) -> bool {
    matches!(value, Value::ServerError(error) if error.code() == "NOSCRIPT")
}
