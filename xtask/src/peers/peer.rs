//! The peers: which there are, and how their programs in `bench/peers` are built.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sh;

/// What a program is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Rust,
    Go,
    Java,
    Node,
    Python,
}

/// A lock library, with a program that uses it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    kind: Kind,
    /// The folder of its program.
    folder: &'static str,
    /// Options that only this program has.
    options: &'static [&'static str],
    /// Whether it has the Redlock algorithm, for several servers.
    pub(crate) has_redlock: bool,
    /// How long it runs before it is measured. A JVM is slow until it has compiled what runs often.
    pub(crate) warm_seconds: f64,
}

pub(crate) const TENURE: Peer = Peer {
    name: "tenure",
    title: "Tenure",
    kind: Kind::Rust,
    folder: "tenure",
    options: &[],
    has_redlock: true,
    warm_seconds: 0.5,
};

pub(crate) const ALL: &[Peer] = &[
    Peer {
        name: "redisson",
        title: "Redisson RLock",
        kind: Kind::Java,
        folder: "redisson",
        has_redlock: false,
        warm_seconds: 5.0,
        ..TENURE
    },
    Peer {
        name: "redisson-fair",
        title: "Redisson FairLock",
        kind: Kind::Java,
        folder: "redisson",
        options: &["--lock", "fair"],
        has_redlock: false,
        warm_seconds: 5.0,
    },
    Peer { name: "redsync", title: "redsync", kind: Kind::Go, folder: "redsync", ..TENURE },
    Peer {
        name: "redislock",
        title: "bsm/redislock",
        kind: Kind::Go,
        folder: "redislock",
        has_redlock: false,
        ..TENURE
    },
    Peer { name: "rslock", title: "rslock", folder: "rslock", ..TENURE },
    Peer { name: "rlock", title: "rlock", folder: "rlock", has_redlock: false, ..TENURE },
    Peer {
        name: "node-redlock",
        title: "node-redlock",
        kind: Kind::Node,
        folder: "node-redlock",
        warm_seconds: 1.0,
        ..TENURE
    },
    Peer {
        name: "redis-py",
        title: "redis-py",
        kind: Kind::Python,
        folder: "redis-py",
        has_redlock: false,
        ..TENURE
    },
];

/// A program that can be started.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) peer: &'static Peer,
    words: Vec<OsString>,
}

impl Program {
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).args(self.peer.options);
        command
    }
}

impl Peer {
    /// Builds its program. The error is a sentence: what is missing, or what failed.
    pub(crate) fn build(&'static self) -> Result<Program, String> {
        let words = match self.kind {
            Kind::Rust => self.build_rust(),
            Kind::Go => self.build_go(),
            Kind::Java => self.build_java(),
            Kind::Node => self.build_node(),
            Kind::Python => self.build_python(),
        };
        Ok(Program { peer: self, words: words? })
    }

    fn sources(&self) -> PathBuf {
        sources().join(self.folder)
    }

    /// Where its program is built: nothing is written beside the sources.
    fn built(&self) -> PathBuf {
        sh::target_folder().join("peers").join(self.folder)
    }

    fn build_rust(&self) -> Result<Vec<OsString>, String> {
        let target = sh::target_folder().join("peers/cargo");
        let package = format!("peer-{}", self.folder);
        let mut cargo =
            sh::cargo(&["build", "--quiet", "--release", "--locked", "--package", &package]);
        cargo.current_dir(sources()).arg("--target-dir").arg(&target);
        succeed(&mut cargo)?;
        Ok(vec![target.join("release").join(package).into()])
    }

    fn build_go(&self) -> Result<Vec<OsString>, String> {
        need("go", "version", "Go")?;
        let mut go = Command::new("go");
        go.current_dir(self.sources()).args(["build", "-mod=readonly", "-o"]).arg(self.built());
        succeed(go.arg("."))?;
        Ok(vec![self.built().into()])
    }

    fn build_java(&self) -> Result<Vec<OsString>, String> {
        need("javac", "-version", "JDK")?;
        need("mvn", "-version", "Maven")?;
        let built = self.built();
        let mut maven = Command::new("mvn");
        maven.args(["-q", "-B", "compile", "-f"]).arg(self.sources().join("pom.xml"));
        succeed(maven.arg(format!("-Dinto={}", built.display())))?;
        let classes = format!("{0}/classes:{0}/lib/*", built.display());
        Ok(["java", "-cp", &classes, "tenure.peers.Main"].map(OsString::from).to_vec())
    }

    fn build_node(&self) -> Result<Vec<OsString>, String> {
        need("node", "--version", "Node.js")?;
        need("npm", "--version", "npm")?;
        let built = self.built();
        let lock = "package-lock.json";
        let is_installed = built.join("node_modules").is_dir()
            && fs::read(built.join(lock)).ok() == fs::read(self.sources().join(lock)).ok();
        fs::create_dir_all(&built).map_err(|error| error.to_string())?;
        for file in ["main.js", "package.json", lock] {
            fs::copy(self.sources().join(file), built.join(file))
                .map_err(|error| format!("could not copy {file}: {error}"))?;
        }
        if !is_installed {
            let mut npm = Command::new("npm");
            npm.current_dir(&built).args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]);
            succeed(&mut npm)?;
        }
        Ok(vec!["node".into(), built.join("main.js").into()])
    }

    fn build_python(&self) -> Result<Vec<OsString>, String> {
        need("python3", "--version", "Python")?;
        let python = self.built().join("bin/python");
        if !python.exists() {
            succeed(Command::new("python3").args(["-m", "venv"]).arg(self.built()))?;
        }
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
        succeed(pip.arg(self.sources().join("requirements.txt")))?;
        Ok(vec![python.into(), "-B".into(), self.sources().join("main.py").into()])
    }
}

fn sources() -> PathBuf {
    sh::root().join("bench/peers")
}

/// Whether the tool is installed; otherwise a sentence.
fn need(program: &str, asks: &str, name: &str) -> Result<(), String> {
    let mut command = Command::new(program);
    command.arg(asks);
    if sh::succeeds(command) {
        return Ok(());
    }
    Err(format!("there is no {name} (no program {program} on the PATH)"))
}

/// Runs a step of a build; a failure is a sentence with the end of what it printed.
fn succeed(command: &mut Command) -> Result<(), String> {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let program = program.to_string_lossy().into_owned();
    let output = command.stdin(std::process::Stdio::null()).output();
    let output = output.map_err(|error| format!("could not run {program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    let lines: Vec<_> = printed.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(5)..].join(" / ");
    Err(format!("its build failed: {program}: {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_has_a_program_with_pinned_versions() {
        for peer in ALL.iter().chain([&TENURE]) {
            let lock = match peer.kind {
                Kind::Rust => "../Cargo.lock",
                Kind::Go => "go.sum",
                Kind::Java => "pom.xml",
                Kind::Node => "package-lock.json",
                Kind::Python => "requirements.txt",
            };
            assert!(peer.sources().join(lock).is_file(), "{} has no {lock}", peer.name);
        }
    }

    #[test]
    fn a_missing_tool_is_a_sentence() {
        let missing = need("no-such-tool", "--version", "Such").unwrap_err();
        assert_eq!(missing, "there is no Such (no program no-such-tool on the PATH)");
    }

    #[test]
    fn a_failed_step_is_a_sentence() {
        let mut shell = Command::new("/bin/sh");
        let failed = succeed(shell.args(["-c", "echo so; echo bad >&2; exit 1"])).unwrap_err();
        assert_eq!(failed, "its build failed: sh: so / bad");
    }
}
