//! `cargo xtask mutants`: shows that the tests catch the bugs of locks. Each mutant is a copy of the sources with one bug; a
//! test that is named for it must fail, and pass without it.
//!
//! The bugs are edits of the sources, so that the product has no switch for them.

mod list;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;

use self::list::MUTANTS;
use crate::server::Servers;
use crate::sh;

#[derive(Args)]
pub(crate) struct Options {
    /// Only the mutants whose name contains one of these texts, separated by commas.
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    only: Vec<String>,
    /// List the mutants, and stop.
    #[arg(long)]
    list: bool,
}

/// One bug.
pub(crate) struct Mutant {
    pub(crate) name: &'static str,
    /// The file, below `crates/tenure/src`.
    pub(crate) file: &'static str,
    /// What is replaced; it is there once.
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
    /// Where the test is: `lib`, or the name of a file in `tests`.
    pub(crate) target: &'static str,
    /// The test that catches it.
    pub(crate) test: &'static str,
}

pub(crate) fn run(options: &Options) -> sh::Outcome {
    let chosen = |mutant: &&Mutant| {
        options.only.is_empty() || options.only.iter().any(|only| mutant.name.contains(&**only))
    };
    let chosen: Vec<_> = MUTANTS.iter().filter(chosen).collect();
    if options.list {
        chosen.iter().for_each(|it| println!("{:<58}{}", it.name, it.test));
        return Ok(());
    }
    let copy = Copy { folder: sh::target_folder().join("mutants"), servers: Servers::find(false)? };
    copy.make()?;
    // All of them first: each change of a source costs a compilation.
    for mutant in &chosen {
        if !copy.passes(mutant)? {
            let what = format!("the test {} fails without the bug {}.", mutant.test, mutant.name);
            return Err(sh::Failure::new(what));
        }
    }
    let mut survivors = Vec::new();
    for mutant in &chosen {
        let is_caught = copy.catches(mutant)?;
        println!(
            "{:<58}{} {}",
            mutant.name,
            if is_caught { "caught by" } else { "SURVIVES" },
            mutant.test
        );
        survivors.extend((!is_caught).then_some(mutant.name));
    }
    if survivors.is_empty() {
        println!("{} of {} are caught.", chosen.len(), chosen.len());
        return Ok(());
    }
    Err(sh::Failure::new(format!("these mutants survive: {}.", survivors.join(", "))))
}

/// A copy of the sources, which may be harmed.
struct Copy {
    folder: PathBuf,
    servers: Servers,
}

impl Copy {
    /// Copies all files that git knows, as they are now.
    fn make(&self) -> sh::Outcome {
        let mut git = Command::new("git");
        git.args(["ls-files", "-z"]).current_dir(sh::root());
        let listed = sh::output(git)?;
        for file in listed.split('\0').filter(|file| !file.is_empty()) {
            let (from, to) = (sh::root().join(file), self.sources().join(file));
            // A file that was deleted, or is the same as before: its time must not change, or all is compiled again.
            let Ok(text) = fs::read(&from) else { continue };
            if fs::read(&to).is_ok_and(|before| before == text) {
                continue;
            }
            let written = to.parent().map_or(Ok(()), fs::create_dir_all);
            written.and_then(|()| fs::write(&to, text)).map_err(|error| failed(&to, &error))?;
        }
        Ok(())
    }

    fn sources(&self) -> PathBuf {
        self.folder.join("sources")
    }

    /// Whether the test fails with the bug.
    fn catches(&self, mutant: &Mutant) -> sh::Outcome<bool> {
        let file = self.sources().join("crates/tenure/src").join(mutant.file);
        let text = fs::read_to_string(&file).map_err(|error| failed(&file, &error))?;
        if text.matches(mutant.from).count() != 1 {
            let what = format!("what {} replaces is not once in {}.", mutant.name, mutant.file);
            return Err(sh::Failure::new(what));
        }
        let write = |text: &str| fs::write(&file, text).map_err(|error| failed(&file, &error));
        write(&text.replacen(mutant.from, mutant.to, 1))?;
        let passes = self.passes(mutant);
        write(&text)?;
        Ok(!passes?)
    }

    /// Whether the test of a mutant passes. A mutant that does not compile is an error, and so is a test that does not run.
    fn passes(&self, mutant: &Mutant) -> sh::Outcome<bool> {
        let mut cargo = sh::cargo(&["test", "--package", "tenure", "--all-features", "--quiet"]);
        match mutant.target {
            "lib" => cargo.arg("--lib"),
            file => cargo.args(["--test", file]),
        };
        self.servers.pass_to(&mut cargo);
        // Bugs of the library are warnings at most: an edit may leave something unused.
        cargo
            .env("RUSTFLAGS", "--cap-lints warn")
            .env("CARGO_TARGET_DIR", self.folder.join("target"));
        cargo.current_dir(self.sources()).stderr(Stdio::null());
        cargo.args(["--", "--exact", mutant.test]);
        let failed = |error| sh::Failure::new(format!("cannot run cargo: {error}."));
        let output = cargo.output().map_err(failed)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let has_run = text.contains("running 1 test");
        if !has_run {
            let what = format!("the test {} of {} did not run.", mutant.test, mutant.name);
            return Err(sh::Failure::new(what));
        }
        Ok(output.status.success())
    }
}

fn failed(path: &Path, error: &std::io::Error) -> sh::Failure {
    sh::Failure::new(format!("cannot use {}: {error}.", path.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// An edit that does not apply any more shows nothing.
    #[test]
    fn every_mutant_is_an_edit_of_the_sources() {
        for mutant in MUTANTS {
            let file = sh::root().join("crates/tenure/src").join(mutant.file);
            let text = fs::read_to_string(&file).expect("a source file");
            assert_eq!(text.matches(mutant.from).count(), 1, "{}", mutant.name);
            assert_ne!(mutant.from, mutant.to, "{}", mutant.name);
        }
        let names: HashSet<_> = MUTANTS.iter().map(|mutant| mutant.name).collect();
        assert_eq!(names.len(), MUTANTS.len());
        assert!(MUTANTS.len() >= 20);
    }
}
