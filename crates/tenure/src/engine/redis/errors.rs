//! Classifies errors of the server: refused, or unknown outcome (I6).

use super::resp::Reply;
use crate::error::StoreError;

/// Errors that a server returns before it has any effect. All others may come midway.
const REFUSALS: &[&str] = &[
    "AHEAD",
    "ASK",
    "BUSY",
    "CLOCKSET",
    "CLUSTERDOWN",
    "CROSSSLOT",
    "DAMAGED",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOAUTH",
    "NOPERM",
    "NOREPLICAS",
    "NOSCRIPT",
    "OOM",
    "QUARANTINED",
    "READONLY",
    "TRYAGAIN",
    "WRONGTYPE",
];

/// Of these, the errors that any command of a script can also return. By then, it may have served other locks of
/// the same call.
const MIDWAY: &[&str] = &["NOPERM", "WRONGTYPE"];

/// Errors that stay until an operator changes the URL, or the permissions of its user.
const LASTING: &[&str] =
    &["AHEAD", "DAMAGED", "MOVED", "NOAUTH", "NOPERM", "WRONGPASS", "WRONGTYPE"];

/// Errors that pass with the state of the server. Any other error on a new connection stays.
const PASSING: &[&str] = &[
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "TRYAGAIN",
];

/// Whether an error passes with the state of the server, or that of its cluster.
pub(super) fn is_passing(reply: &str) -> bool {
    PASSING.contains(&code(reply)) || matches!(code(reply), "ASK" | "MOVED")
}

/// The error for an error reply on a new connection.
pub(super) fn of_greeting(what: String, reply: &str) -> StoreError {
    let error = StoreError::refused(what).answered();
    let passes = PASSING.contains(&code(reply)) || reply.contains("max number of clients");
    if passes { error } else { error.lasting() }
}

fn code(error: &str) -> &str {
    error.split(' ').next().unwrap_or_default()
}

/// The error for an error reply to a script.
pub(super) fn of_server(reply: &str) -> StoreError {
    let mut what = format!("the server said: {reply}");
    // A redirection reaches this only where none is followed.
    if matches!(code(reply), "CROSSSLOT" | "MOVED") {
        what += ": it is a node of a cluster, so write redis+cluster:// for redis://";
    }
    // Scripts check a lock before they write.
    let code = code(reply);
    let is_within_script = reply.contains("user_script");
    let is_refusal = |it: &&str| is_named(reply, it) && !(is_within_script && MIDWAY.contains(it));
    let is_refused = REFUSALS.iter().any(is_refusal);
    let error = if is_refused { StoreError::refused(what) } else { StoreError::unknown(what) };
    let error = error.answered();
    let error = if code == "QUARANTINED" { error.quarantined() } else { error };
    if LASTING.contains(&code) { error.lasting() } else { error }
}

/// Whether an error has this code. Older servers put the code of an error within a script into the text, after a dash.
fn is_named(error: &str, code: &str) -> bool {
    error.split(' ').next() == Some(code) || error.contains(&format!(" -{code} "))
}

/// The text of an error reply.
pub(super) fn error_in(reply: &Reply) -> Option<&str> {
    match reply {
        Reply::Error(error) => Some(error),
        _ => None,
    }
}

/// Why a connection is closed on which a reply arrived without a request.
pub(super) fn unexpected(reply: &Reply) -> String {
    match error_in(reply) {
        Some(error) => format!("the server sent an error without a request: {error}"),
        None => "the server sent a reply without a request".to_owned(),
    }
}

/// The errors of a replica, which takes no writes. If one lock of several meets them, they are in its line or
/// item of the answer.
const OF_REPLICAS: &[&str] = &["READONLY", "MASTERDOWN"];

/// The error of a server that cannot grant locks because it is not the master, or not any more.
pub(super) fn of_replica(reply: &Reply) -> Option<String> {
    let is_so = |error: &&str| OF_REPLICAS.iter().any(|code| is_named(error, code));
    let error = match reply {
        Reply::Error(error) => Some(error.as_str()).filter(is_so),
        // Every answer passes here, and few contain an error: search the bytes first.
        Reply::Text(bytes) if bytes.windows(2).any(|two| two == b"\n-") => {
            let lines = std::str::from_utf8(bytes).unwrap_or_default().lines();
            lines.filter_map(|line| line.strip_prefix('-')).find(is_so)
        }
        Reply::Array(replies) => replies.iter().filter_map(error_in).find(is_so),
        _ => None,
    };
    error.map(|error| format!("the server said: {error}"))
}

/// Whether the server is out of memory or disk space.
pub(super) fn is_full(error: &str) -> bool {
    ["OOM", "MISCONF"].iter().any(|code| is_named(error, code))
}

/// Whether this user may not run the command itself, which therefore had no effect.
pub(super) fn is_forbidden(reply: &Reply) -> bool {
    error_in(reply)
        .is_some_and(|error| error.starts_with("NOPERM") && !error.contains("user_script"))
}

/// Whether a call may have failed as a whole because of one of its keys, so that a call for each may succeed.
pub(super) fn may_be_about_one(error: &StoreError) -> bool {
    let what = error.to_string();
    // TRYAGAIN: a cluster moves the slot, and the locks of the call are at both nodes.
    let codes = ["NOPERM", "TRYAGAIN"].map(|code| format!("the server said: {code}"));
    let is_of_one = codes.iter().any(|code| what.starts_with(code));
    error.is_answer() && (is_of_one || what.contains("user_script"))
}

pub(super) fn is_missing_script(reply: &Reply) -> bool {
    error_in(reply).is_some_and(|error| error.starts_with("NOSCRIPT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that restarts is waited for; a wrong password is not.
    #[test]
    fn passing_errors_are_distinguished_from_lasting_ones() {
        for (error, is_lasting) in [
            ("WRONGPASS invalid username-password pair or user is disabled.", true),
            ("NOAUTH Authentication required.", true),
            ("ERR AUTH <password> called without any password configured", true),
            ("ERR DB index is out of range", true),
            ("DENIED Redis is running in protected mode", true),
            ("LOADING Redis is loading the dataset in memory", false),
            ("ERR max number of clients reached", false),
        ] {
            let refused = of_greeting(format!("could not log in: {error}"), error);
            assert_eq!((refused.is_lasting(), refused.is_answer()), (is_lasting, true), "{error}");
        }
        assert!(of_server("NOPERM this user has no permissions").is_lasting());
        assert!(!of_server("LOADING Redis is loading the dataset in memory").is_lasting());
    }

    /// I6: a node without its marker has changed nothing, and its vote does not count.
    #[test]
    fn a_quarantined_node_is_recognised() {
        let error = of_server("QUARANTINED this server does not have the marker of its quorum");
        assert!(error.is_quarantined() && error.is_answer() && !error.is_unknown());
        assert!(!of_server("LOADING Redis is loading the dataset in memory").is_quarantined());
    }

    #[test]
    fn refusals_are_distinguished_from_errors_midway() {
        assert!(!of_server("OOM command not allowed when used memory > 'maxmemory'.").is_unknown());
        let older = "ERR Error running script (call to f_12): @user_script:9: -READONLY You can't";
        assert!(!of_server(older).is_unknown());
        assert!(of_server("ERR user_script:3: attempt to index a nil value").is_unknown());
        assert!(!of_server("WRONGTYPE tenure:{x}:q holds a string").is_unknown());
        let midway = "WRONGTYPE Operation against a key script: 0430, on @user_script:251.";
        assert!(of_server(midway).is_unknown());
    }

    #[test]
    fn a_replica_is_known_by_its_errors() {
        let is_so = |reply| of_replica(&reply).is_some();
        let error = |text: &str| Reply::Error(text.into());
        let readonly = "READONLY You can't write against a read only replica.";
        let older = "ERR Error running script (call to f_12): @user_script:9: -READONLY You can't";
        assert!(is_so(error(readonly)) && is_so(error(older)));
        assert!(is_so(error("MASTERDOWN Link with MASTER is down and replica-serve-stale-data")));
        assert!(
            is_so(Reply::Array(vec![Reply::Text(b"7".into()), error(readonly)])),
            "one of many"
        );
        assert!(is_so(Reply::Text(format!("7\n1 12 1 300 9\n-{readonly}").into())), "one of many");
        assert!(!is_so(error("WRONGTYPE tenure:{READONLY} holds a string")));
        assert!(!is_so(Reply::Text(b"7\n-WRONGTYPE x\n0".into())));
        assert!(!is_so(Reply::Text(b"READONLY".into())), "a text is no error");
    }
}
