//! `cargo xtask verify`: all that a change must pass, cheapest first, so that a slip shows in seconds.

use clap::Args;

use crate::{msrv, promises, requirements, sh, test};

#[derive(Args)]
pub(crate) struct Options {
    /// Leave out the tests.
    #[arg(long, conflicts_with = "long")]
    quick: bool,
    /// Run the tests at length, as `cargo xtask test --long` does.
    #[arg(long)]
    long: bool,
}

pub(crate) fn run(options: &Options) -> sh::Outcome {
    sh::step("formatting", formatting)?;
    sh::step("lints", lints)?;
    sh::step("documentation", documentation)?;
    sh::step("promises", promises::check)?;
    sh::step("requirements", requirements::check)?;
    sh::step("oldest Rust", msrv::check)?;
    sh::step("dependencies", dependencies)?;
    if !options.quick {
        let run = |busy| test::run(&test::Options { long: options.long, busy });
        sh::step("tests", || run(false))?;
        // What only holds on an idle machine does not hold.
        sh::step("tests beside busy loops", || run(true))?;
    }
    eprintln!("\nAll is well.");
    Ok(())
}

fn formatting() -> sh::Outcome {
    sh::run(sh::cargo(&["fmt", "--all", "--check"]))
}

fn lints() -> sh::Outcome {
    let clippy = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
    sh::run(sh::cargo(&clippy))?;
    // Users may leave engines out; what only those need must go with them.
    for features in ["", "local", "redis"] {
        let some = ["clippy", "-p", "tenure", "--no-default-features", "--features", features];
        sh::run(sh::cargo(&[&some[..], &["--locked", "--", "-D", "warnings"]].concat()))?;
    }
    Ok(())
}

fn documentation() -> sh::Outcome {
    let mut doc = sh::cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    sh::run(doc)
}

/// Licences, advisories and sources. Optional, because cargo-deny takes minutes to build.
fn dependencies() -> sh::Outcome {
    if !sh::succeeds(sh::cargo(&["deny", "--version"])) {
        sh::say(
            "skipped, because cargo-deny is not installed (`cargo install cargo-deny` adds it)",
        );
        return Ok(());
    }
    sh::run(sh::cargo(&["deny", "--all-features", "check"]))
}
