//! What an error of the server means: refused, or unknown (I6).

use super::resp::Reply;
use crate::error::StoreError;

/// What a server says before it does anything. All else may have come midway.
const REFUSALS: &[&str] = &[
    "ASK",
    "BUSY",
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
    "READONLY",
    "TRYAGAIN",
    "WRONGTYPE",
];

/// Of these, what a script can also meet at any of its commands. It may have served other locks of
/// the same call by then.
const MIDWAY: &[&str] = &["NOPERM", "WRONGTYPE"];

/// What stays until a person changes the URL, or the rights of its user.
const LASTING: &[&str] = &["DAMAGED", "NOAUTH", "NOPERM", "WRONGPASS", "WRONGTYPE"];

/// What passes with the state of the server. All else that it answers to a new client stays.
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

/// The server answered the greeting of a new connection with an error.
pub(super) fn of_greeting(what: String, error: &str) -> StoreError {
    let trouble = StoreError::refused(what).answered();
    let passes = PASSING.contains(&code(error)) || error.contains("max number of clients");
    if passes { trouble } else { trouble.lasting() }
}

fn code(error: &str) -> &str {
    error.split(' ').next().unwrap_or_default()
}

/// The server answered a script with an error.
pub(super) fn of_server(error: &str) -> StoreError {
    let what = format!("the server said: {error}");
    // Scripts look before they write.
    let code = code(error);
    let is_within_script = error.contains("user_script");
    let is_refusal = |it: &&str| is_named(error, it) && !(is_within_script && MIDWAY.contains(it));
    let is_refused = REFUSALS.iter().any(is_refusal);
    let trouble = if is_refused { StoreError::refused(what) } else { StoreError::unknown(what) };
    let trouble = trouble.answered();
    if LASTING.contains(&code) { trouble.lasting() } else { trouble }
}

/// Whether an error is of this kind. Older servers put the code of what stopped a script into the
/// text, behind a dash.
fn is_named(error: &str, code: &str) -> bool {
    error.split(' ').next() == Some(code) || error.contains(&format!(" -{code} "))
}

/// The error that a reply is.
pub(super) fn error_in(reply: &Reply) -> Option<&str> {
    match reply {
        Reply::Error(error) => Some(error),
        _ => None,
    }
}

/// What a server says that follows another one, and so takes no writes. For one lock of several, it
/// says so in a line or an item of its own.
const OF_REPLICAS: &[&str] = &["READONLY", "MASTERDOWN"];

/// Why the server that sent this cannot grant locks: it is not the master, or not any more.
pub(super) fn of_replica(reply: &Reply) -> Option<String> {
    let is_so = |error: &&str| OF_REPLICAS.iter().any(|code| is_named(error, code));
    let error = match reply {
        Reply::Error(error) => Some(error.as_str()).filter(is_so),
        // Every answer passes here, and hardly one has an error in it.
        Reply::Text(bytes) if bytes.windows(2).any(|two| two == b"\n-") => {
            let lines = std::str::from_utf8(bytes).unwrap_or_default().lines();
            lines.filter_map(|line| line.strip_prefix('-')).find(is_so)
        }
        Reply::Array(replies) => replies.iter().filter_map(error_in).find(is_so),
        _ => None,
    };
    error.map(|error| format!("the server said: {error}"))
}

/// Whether the server has no room: in its memory, or on its disk.
pub(super) fn is_full(error: &str) -> bool {
    ["OOM", "MISCONF"].iter().any(|code| is_named(error, code))
}

/// Whether this user may not run the command itself, so that nothing has run.
pub(super) fn is_forbidden(reply: &Reply) -> bool {
    error_in(reply)
        .is_some_and(|error| error.starts_with("NOPERM") && !error.contains("user_script"))
}

/// Whether a call may have failed as a whole because of one of its keys: others may be served alone.
pub(super) fn may_be_about_one(trouble: &StoreError) -> bool {
    let what = trouble.to_string();
    trouble.is_answer()
        && (what.starts_with("the server said: NOPERM") || what.contains("user_script"))
}

pub(super) fn is_missing_script(reply: &Reply) -> bool {
    error_in(reply).is_some_and(|error| error.starts_with("NOSCRIPT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that restarts is waited for; a wrong password is not.
    #[test]
    fn what_passes_is_told_from_what_stays() {
        for (error, is_lasting) in [
            ("WRONGPASS invalid username-password pair or user is disabled.", true),
            ("NOAUTH Authentication required.", true),
            ("ERR AUTH <password> called without any password configured", true),
            ("ERR DB index is out of range", true),
            ("DENIED Redis is running in protected mode", true),
            ("LOADING Redis is loading the dataset in memory", false),
            ("ERR max number of clients reached", false),
        ] {
            let trouble = of_greeting(format!("could not log in: {error}"), error);
            assert_eq!((trouble.is_lasting(), trouble.is_answer()), (is_lasting, true), "{error}");
        }
        assert!(of_server("NOPERM this user has no permissions").is_lasting());
        assert!(!of_server("LOADING Redis is loading the dataset in memory").is_lasting());
    }

    #[test]
    fn refusals_are_told_from_errors_midway() {
        assert!(!of_server("OOM command not allowed when used memory > 'maxmemory'.").is_unknown());
        let older = "ERR Error running script (call to f_12): @user_script:9: -READONLY You can't";
        assert!(!of_server(older).is_unknown());
        assert!(of_server("ERR user_script:3: attempt to index a nil value").is_unknown());
        assert!(!of_server("WRONGTYPE tenure:{x}:q holds a string").is_unknown());
        let midway = "WRONGTYPE Operation against a key script: 0430, on @user_script:251.";
        assert!(of_server(midway).is_unknown());
    }

    #[test]
    fn a_replica_is_known_by_what_it_says() {
        let is_so = |reply| of_replica(&reply).is_some();
        let error = |text: &str| Reply::Error(text.into());
        let says = "READONLY You can't write against a read only replica.";
        let older = "ERR Error running script (call to f_12): @user_script:9: -READONLY You can't";
        assert!(is_so(error(says)) && is_so(error(older)));
        assert!(is_so(error("MASTERDOWN Link with MASTER is down and replica-serve-stale-data")));
        assert!(is_so(Reply::Array(vec![Reply::Text(b"7".into()), error(says)])), "one of many");
        assert!(is_so(Reply::Text(format!("7\n1 12 1 300 9\n-{says}").into())), "one of many");
        assert!(!is_so(error("WRONGTYPE tenure:{READONLY} holds a string")));
        assert!(!is_so(Reply::Text(b"7\n-WRONGTYPE x\n0".into())));
        assert!(!is_so(Reply::Text(b"READONLY".into())), "a text is no error");
    }
}
