//! Java processes that take locks with Redisson's own client: the program in `interop/redisson`, built by Maven.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

/// How long an answer may take: longer than any lease in a test.
const PATIENCE: Duration = Duration::from_secs(90);

const FAILED: &str = "Maven cannot build interop/redisson";

/// What Maven says when it cannot fetch something.
const UNREACHABLE: [&str; 3] =
    ["Could not transfer artifact", "Could not resolve dependencies", "could not be resolved"];

/// The program, built.
#[derive(Clone, Debug)]
pub struct Redisson {
    folder: PathBuf,
}

/// Which codec the client uses for values. Locks are the same with every one.
#[derive(Clone, Copy, Debug)]
pub enum Codec {
    /// Redisson's default.
    Default,
    /// Plain texts.
    Text,
}

impl Redisson {
    /// Builds the program, unless that is done.
    ///
    /// # Errors
    /// If there is no JDK or no Maven, or the build fails, as a sentence.
    pub fn build() -> Result<Self, String> {
        for (program, name) in [("javac", "JDK"), ("mvn", "Maven")] {
            let found = Command::new(program).arg("-version").output();
            if !found.is_ok_and(|output| output.status.success()) {
                return Err(format!("there is no {name} (no program {program} on the PATH)"));
            }
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let (sources, folder) =
            (root.join("interop/redisson"), root.join("target/interop/redisson"));
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let lock = File::create(folder.join("lock")).map_err(|error| error.to_string())?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| error.to_string())?;
        let (stamp, current) = (folder.join("built-from"), texts(&sources)?);
        if fs::read_to_string(&stamp).is_ok_and(|built| built == current) {
            return Ok(Self { folder });
        }
        let maven = Command::new("mvn")
            .args(["-q", "-B", "compile", "-f"])
            .arg(sources.join("pom.xml"))
            .arg(format!("-Dinto={}", folder.display()))
            .output()
            .map_err(|error| error.to_string())?;
        if !maven.status.success() {
            let said = String::from_utf8_lossy(&maven.stdout).into_owned();
            // Without a network the client itself is missing, as a JDK may be; anything else is a mistake of ours.
            let is_missing = UNREACHABLE.iter().any(|sentence| said.contains(sentence));
            let what =
                if is_missing { "there is no Redisson: Maven cannot fetch it" } else { FAILED };
            return Err(format!("{what}: {said}"));
        }
        fs::write(stamp, current).map_err(|error| error.to_string())?;
        Ok(Self { folder })
    }

    /// Builds the program for a test. Without a JDK or Maven, a long run fails; a short one reports it, and leaves the test
    /// out.
    ///
    /// # Panics
    /// If the build fails.
    #[must_use]
    pub fn for_test() -> Option<Self> {
        match Self::build() {
            Ok(built) => Some(built),
            Err(why)
                if why.starts_with("there is no") && std::env::var_os("TENURE_LONG").is_none() =>
            {
                // Not by a macro, whose output the test program keeps to itself.
                let report = format!("LEFT OUT: a test with Redisson, because {why}\n");
                let _ = std::io::stderr().write_all(report.as_bytes());
                None
            }
            Err(why) => panic!("{why}"),
        }
    }

    /// Starts a process that uses the server at this port of this machine.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(&self, port: u16, is_cluster: bool, codec: Codec) -> Agent {
        // Short-lived processes on a shared machine.
        let options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m"];
        self.start_with(&options, port, is_cluster, codec)
    }

    /// Starts a process as a service runs: with all optimisations, which take time.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start_service(&self, port: u16) -> Agent {
        self.start_with(&[], port, false, Codec::Default)
    }

    fn start_with(&self, options: &[&str], port: u16, is_cluster: bool, codec: Codec) -> Agent {
        let classes = format!("{0}/classes:{0}/lib/*", self.folder.display());
        let mut child = Command::new("java")
            .args(options)
            .args(["-cp", &classes])
            .arg("tenure.interop.Agent")
            .arg(format!("redis://127.0.0.1:{port}"))
            .arg(if is_cluster { "cluster" } else { "single" })
            .arg(match codec {
                Codec::Default => "default",
                Codec::Text => "string",
            })
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("java starts");
        let input = child.stdin.take().expect("it is piped");
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("it can be read");
        assert_eq!(line.trim(), "ready", "Redisson could not connect");
        let waiting = Arc::<Mutex<HashMap<u64, Sender<Answer>>>>::default();
        let answers = waiting.clone();
        std::thread::spawn(move || deliver(output, &answers));
        Agent { child, asked: Mutex::new((input, 0)), waiting }
    }
}

/// A Java process. It ends when it is dropped.
pub struct Agent {
    child: Child,
    asked: Mutex<(ChildStdin, u64)>,
    waiting: Arc<Mutex<HashMap<u64, Sender<Answer>>>>,
}

struct Answer {
    text: String,
    at: Instant,
}

/// A command that was sent.
pub struct Asked(Receiver<Answer>);

impl Agent {
    /// Sends a command to one of its threads: a verb, the name of a lock, and perhaps numbers.
    ///
    /// # Panics
    /// If the process has ended.
    pub fn ask(&self, thread: &str, verb: &str, name: &str, rest: &str) -> Asked {
        let (sender, receiver) = mpsc::channel();
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.1 += 1;
        let id = asked.1;
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        let line = format!("{id} {thread} {verb} {} {rest}\n", encode(name));
        asked.0.write_all(line.as_bytes()).and_then(|()| asked.0.flush()).expect("Java runs");
        Asked(receiver)
    }

    /// Sends a command, and waits for its result.
    ///
    /// # Panics
    /// If the command fails.
    pub fn run(&self, thread: &str, verb: &str, name: &str, rest: &str) -> String {
        self.ask(thread, verb, name, rest).answer().0
    }

    /// Kills the process, as `kill -9` does.
    ///
    /// # Panics
    /// If it cannot be killed.
    pub fn kill(mut self) {
        self.child.kill().expect("it is killed");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Asked {
    /// Waits for the result of the command, and returns it and when it came.
    ///
    /// # Panics
    /// If the command fails, or does not end.
    pub fn answer(self) -> (String, Instant) {
        let Answer { text, at } = self.0.recv_timeout(PATIENCE).expect("Java answers");
        assert!(!text.starts_with("error"), "{text}");
        (text, at)
    }

    /// Whether there is a result.
    pub fn is_answered(&self) -> Option<String> {
        self.0.try_recv().ok().map(|answer| answer.text)
    }
}

fn deliver(output: BufReader<ChildStdout>, waiting: &Mutex<HashMap<u64, Sender<Answer>>>) {
    for line in output.lines().map_while(Result::ok) {
        let Some((id, text)) = line.split_once(' ') else { continue };
        let Ok(id) = id.parse() else { continue };
        let sender = waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        if let Some(sender) = sender {
            let _ = sender.send(Answer { text: text.to_owned(), at: now() });
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "tests may read the clock")]
fn now() -> Instant {
    Instant::now()
}

/// A name without spaces, as Java decodes it.
fn encode(name: &str) -> String {
    let mut encoded = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => encoded.push(byte as char),
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    encoded
}

/// The texts of the program, which say whether it was built from them.
fn texts(sources: &Path) -> Result<String, String> {
    let mut all = String::new();
    let mut folders = vec![sources.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|error| error.to_string())?;
        let mut paths: Vec<_> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() {
                folders.push(path);
            } else {
                all += &fs::read_to_string(&path).map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(all)
}
