//! The shell blocks of the book and of the README run as they are printed.
//!
//! Each document is one script: its blocks marked `sh`, in order, in one `bash -eu` on a store of its own. A block that begins with
//! `#!` is a file instead, whose name is the last word with backquotes before it. What cannot run here is marked `text`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use tenure_testkit::Server;

/// The commands that examples run under a lock.
const WORK: [&str; 5] = ["backup.sh", "deploy.sh", "encode.sh", "report.sh", "scheduler"];

/// Nothing else of the caller's environment may matter.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

#[test]
fn the_shell_blocks_of_the_readme_run() {
    assert!(runs(&root().join("README.md")));
}

#[test]
fn the_shell_blocks_of_the_book_run() {
    let chapters = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let ran: Vec<_> = chapters.filter(|path| is_original(path) && runs(path)).collect();
    for chapter in ["quick-start.md", "shell.md", "operations.md", "cli.md"] {
        assert!(ran.iter().any(|path| path.ends_with(chapter)), "{chapter} is not among {ran:?}");
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A translation has the same blocks, which `cargo xtask verify` checks.
fn is_original(path: &Path) -> bool {
    let path = path.to_string_lossy();
    path.ends_with(".md") && !path.ends_with(".zh.md")
}

/// Runs the shell blocks of a document, and returns whether it has some.
fn runs(document: &Path) -> bool {
    let blocks = blocks(&fs::read_to_string(document).unwrap());
    let folder = Folder::new();
    let (files, lines): (Vec<_>, Vec<_>) =
        blocks.iter().partition(|block| block.text.starts_with("#!"));
    files.iter().for_each(|file| folder.program(&file.name, &file.text));
    let script: String = lines.iter().map(|block| format!("{}\n", block.text)).collect();
    if script.is_empty() {
        return false;
    }
    // A server for the examples that have their data in Redis.
    let server = script.contains("redis-cli").then(|| Server::builder().on_port().start());
    if let Some(port) = server.as_ref().and_then(Server::port) {
        let cli = format!("#!/bin/sh\nPATH={PATH} exec redis-cli -p {port} \"$@\"\n");
        folder.program("bin/redis-cli", &cli);
    }
    let output = folder.bash(&script).output().unwrap();
    let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    let [said, messages] = printed;
    assert!(output.status.success(), "{document:?}: {}\n{said}\n{messages}", output.status);
    true
}

/// A block of shell code.
#[derive(Debug, PartialEq)]
struct Block {
    /// What was last named with backquotes before it.
    name: String,
    text: String,
}

fn blocks(document: &str) -> Vec<Block> {
    let (mut blocks, mut name) = (Vec::new(), String::new());
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.trim_start().strip_prefix("```") else {
            name = line.split('`').skip(1).step_by(2).last().map_or(name, str::to_owned);
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        let code = lines.by_ref().take_while(|line| line.trim_start() != "```");
        let code: Vec<_> = code.map(|line| line.get(indent..).unwrap_or("")).collect();
        if language == "sh" {
            blocks.push(Block { name: name.clone(), text: code.join("\n") });
        }
    }
    blocks
}

/// Where a document's script runs: a home and a folder for it, with the programs that it calls.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        ["home", "bin"].iter().for_each(|name| fs::create_dir(folder.path(name)).unwrap());
        WORK.iter().for_each(|name| folder.program(name, "#!/bin/sh\necho \"$0 $*\"\n"));
        let script = root().join("crates/tenure/src/fenced/set.lua");
        fs::copy(script, folder.path("set.lua")).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn program(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn bash(&self, script: &str) -> Command {
        let tenure = Path::new(env!("CARGO_BIN_EXE_tenure")).parent().unwrap();
        let bin = self.path("bin");
        let mut bash = Command::new("bash");
        bash.args(["-eu", "-c", script]).current_dir(self.0.path()).stdin(Stdio::null());
        bash.env_clear()
            .env("HOME", self.path("home"))
            .env("TENURE_URL", format!("local://{}", self.path("store").display()))
            .env("PATH", format!("{}:{}:{PATH}", bin.display(), tenure.display()));
        bash
    }
}

#[test]
fn blocks_are_found_with_the_names_before_them() {
    let document = "Text, `a.sh` and `b.sh`:\n```sh\n#!/bin/sh\n```\n```text\nno\n```\n1. x\n\n   ```sh\n   one\n     two\n   ```\n";
    let block = |text: &str| Block { name: "b.sh".into(), text: text.into() };
    assert_eq!(blocks(document), [block("#!/bin/sh"), block("one\n  two")]);
}

/// A script that fails is noticed: at any line, and for a variable that is not set.
#[test]
fn a_script_that_fails_is_noticed() {
    let folder = Folder::new();
    for wrong in ["false\ntrue", "echo $UNSET\ntrue", "tenure run -n x -- false\ntrue"] {
        assert!(!folder.bash(wrong).output().unwrap().status.success(), "{wrong}");
    }
}
