//! Checks that the library compiles for the other systems that the README names, where rustup has their targets.
//!
//! A check links nothing, so the C code of the dependencies need not be compiled: their build scripts (the `cc`
//! crate) get `true` as the compiler and the archiver of the target, and no toolchain of that system is needed. They
//! run again when those variables change, so a real build for the target is not affected.

use std::process::Command;

use crate::sh::{self, Outcome};

const TARGETS: [&str; 2] = ["x86_64-apple-darwin", "x86_64-pc-windows-gnu"];

pub(crate) fn check() -> Outcome {
    let installed = sh::rustup_output(&["target", "list", "--installed"])?;
    for target in TARGETS {
        if installed.lines().any(|line| line == target) {
            sh::run(clippy(target))?;
        } else {
            sh::say(format!(
                "{target} NOT CHECKED: `rustup target add {target}` installs what the check needs"
            ));
        }
    }
    Ok(())
}

fn clippy(target: &str) -> Command {
    let mut clippy = sh::cargo(&["clippy", "-p", "tenure", "--all-features", "--locked"]);
    clippy.args(["--target", target, "--", "-D", "warnings"]);
    let suffix = target.replace('-', "_");
    clippy.env(format!("CC_{suffix}"), "true").env(format!("AR_{suffix}"), "true");
    // Otherwise the build scripts ask Apple's developer tools for it.
    clippy.env("SDKROOT", "/");
    clippy
}
