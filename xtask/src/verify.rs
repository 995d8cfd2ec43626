//! `cargo xtask verify`: every check that a change must pass, cheapest first, so that a mistake shows in seconds.

use clap::Args;

use crate::{deny, documents, fuzz, msrv, portability, promises, requirements, sh, test};

#[derive(Args)]
pub(crate) struct Options {
    /// Leave out the tests.
    #[arg(long, conflicts_with = "long")]
    quick: bool,
    /// Run the tests at length, as `cargo xtask test --long` does, and install cargo-deny if it is missing.
    #[arg(long)]
    long: bool,
    /// Install a missing system package without asking.
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(options: &Options) -> sh::Outcome {
    sh::step("formatting", formatting)?;
    sh::step("lints", lints)?;
    sh::step("documentation", documentation)?;
    sh::step("documents", documents::check)?;
    sh::step("promises", promises::check)?;
    sh::step("requirements", requirements::check)?;
    sh::step("oldest Rust", msrv::check)?;
    sh::step("other systems", portability::check)?;
    sh::step("fuzz targets", fuzz::check)?;
    sh::step("dependencies", || deny::check(options.long))?;
    if !options.quick {
        let Options { long, yes, .. } = *options;
        let run = |busy| test::run(&test::Options { long, busy, yes });
        sh::step("tests", || run(false))?;
        // A property that holds only on an idle machine does not hold.
        sh::step("tests beside busy loops", || run(true))?;
    }
    eprintln!("\nAll checks passed.");
    Ok(())
}

fn formatting() -> sh::Outcome {
    sh::run(sh::cargo(&["fmt", "--all", "--check"]))
}

fn lints() -> sh::Outcome {
    let deny = ["--locked", "--", "-D", "warnings"];
    let all = ["clippy", "--workspace", "--all-targets", "--all-features"];
    sh::run(sh::cargo(&[&all[..], &deny].concat()))?;
    // Users may leave features out; the code that only those need must be left out with them.
    for (package, sets) in [
        ("tenure", &["", "local", "redis"][..]),
        ("tenure-fenced", &["", "http", "postgres", "sqlite"]),
    ] {
        for features in sets {
            let some = ["clippy", "-p", package, "--no-default-features", "--features", features];
            sh::run(sh::cargo(&[&some[..], &deny].concat()))?;
        }
    }
    Ok(())
}

fn documentation() -> sh::Outcome {
    let mut doc = sh::cargo(&["doc", "--workspace", "--all-features", "--no-deps", "--locked"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    sh::run(doc)
}
