//! `cargo xtask book`: the documents as a book, by mdBook.
//!
//! It is no part of `verify`, which checks the chapters and links without it: building mdBook takes minutes.

use std::process::Command;

use crate::sh::{self, Failure, Outcome};

pub(crate) fn run() -> Outcome {
    if !sh::succeeds(mdbook(&["--version"])) {
        return Err(Failure::new(
            "mdbook is not installed. `cargo install mdbook --locked` installs it, in some minutes.",
        ));
    }
    sh::run(mdbook(&["build"]))?;
    sh::say(format!("the book is {}", sh::root().join("target/book/index.html").display()));
    Ok(())
}

fn mdbook(arguments: &[&str]) -> Command {
    let mut command = Command::new("mdbook");
    command.args(arguments).current_dir(sh::root());
    command
}
