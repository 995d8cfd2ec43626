//! Licences, sources, duplicates and advisories of the dependencies, by cargo-deny and `deny.toml`.
//!
//! Building cargo-deny takes over four minutes on two cores, so `verify` uses one that is installed and
//! otherwise reports loudly that the check was left out. `verify --long` installs it; in CI it has a job of its
//! own.

use std::process::Command;

use crate::sh::{self, Outcome};

/// The checks that need no network.
const OFFLINE: [&str; 3] = ["licenses", "bans", "sources"];

pub(crate) fn check(is_long: bool) -> Outcome {
    if !is_installed() {
        if !is_long {
            sh::say(
                "DEPENDENCIES NOT CHECKED: cargo-deny is not installed. \
                 `cargo install cargo-deny --locked` or `cargo xtask verify --long` installs it",
            );
            return Ok(());
        }
        sh::say("installing cargo-deny into cargo's folder (takes minutes)");
        sh::run(sh::cargo(&["install", "cargo-deny", "--locked"]))?;
    }
    let mut offline = deny(&["--all-features", "check"]);
    offline.args(OFFLINE);
    sh::run(offline)?;
    advisories()
}

/// The advisories are in a database on the network; a machine without it passes, but not silently.
fn advisories() -> Outcome {
    if let Err(failure) = sh::run(deny(&["fetch", "db"])) {
        sh::say(failure);
        sh::say("ADVISORIES NOT CHECKED: the database of advisories could not be fetched");
        return Ok(());
    }
    sh::run(deny(&["--all-features", "check", "advisories"]))
}

fn is_installed() -> bool {
    sh::succeeds(deny(&["--version"]))
}

fn deny(arguments: &[&str]) -> Command {
    sh::cargo(&[&["deny"], arguments].concat())
}
