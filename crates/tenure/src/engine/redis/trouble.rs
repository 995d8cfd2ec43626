//! What an error of the server means: refused, or unknown (I6).

use super::resp::Reply;
use crate::error::Trouble;

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
const LASTING: &[&str] = &["NOAUTH", "NOPERM", "WRONGPASS"];

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
pub(super) fn of_greeting(what: String, error: &str) -> Trouble {
    let trouble = Trouble::refused(what).answered();
    let passes = PASSING.contains(&code(error)) || error.contains("max number of clients");
    if passes { trouble } else { trouble.lasting() }
}

fn code(error: &str) -> &str {
    error.split(' ').next().unwrap_or_default()
}

/// The server answered a script with an error.
pub(super) fn of_server(error: &str) -> Trouble {
    let what = format!("the server said: {error}");
    let code = code(error);
    // Scripts look before they write. Older servers put the code of what stopped a script into the
    // text, behind a dash.
    let is_within_script = error.contains("user_script");
    let is_refusal = |it: &&str| {
        let is_named = code == *it || error.contains(&format!(" -{it} "));
        is_named && !(is_within_script && MIDWAY.contains(it))
    };
    let is_refused = REFUSALS.iter().any(is_refusal);
    let trouble = if is_refused { Trouble::refused(what) } else { Trouble::unknown(what) };
    let trouble = trouble.answered();
    if LASTING.contains(&code) { trouble.lasting() } else { trouble }
}

/// Whether a call may have failed as a whole because of one of its keys: others may be served alone.
pub(super) fn may_be_about_one(trouble: &Trouble) -> bool {
    let what = trouble.to_string();
    trouble.is_answer()
        && (what.starts_with("the server said: NOPERM") || what.contains("user_script"))
}

pub(super) fn is_missing_script(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(error) if error.starts_with("NOSCRIPT"))
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
}
