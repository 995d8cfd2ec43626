//! A real server that belongs to one test: its own folder, its own data, its own process.
//!
//! It ends with the test. Normally by `Drop`, also when the test panics; if the whole test process is
//! killed, by the guardian. Only the process started here is ever signalled, by its id, and before it
//! is waited for, so that the id cannot have passed to another.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::builder::Builder;
use crate::endpoint::Endpoint;
use crate::folder;
use crate::guardian::Guardian;
use crate::resp::{Connection, Reply};
use crate::tls::Tls;
use crate::version::{self, Version};
use crate::wait;

/// How long a server may take to start: usually 20 ms, but a test machine may be overloaded.
const START_BOUND: Duration = Duration::from_secs(30);

/// How long one question to a starting server may take. A server that is silent for longer may be another
/// process on our port; ours is asked again.
const GREETING_BOUND: Duration = Duration::from_millis(200);

/// How long a server may take to end when asked, before it is killed.
const STOP_BOUND: Duration = Duration::from_secs(3);

/// A running Redis or Valkey server, which stops when this is dropped.
#[derive(Debug)]
#[must_use = "the server stops when this is dropped"]
pub struct Server {
    program: PathBuf,
    endpoint: Endpoint,
    args: Vec<OsString>,
    child: Option<Child>,
    is_paused: AtomicBool,
    // Dropped in this order: the guardian, when it ends, removes the folder too.
    guardian: Guardian,
    folder: TempDir,
}

/// Why a server did not start.
#[derive(Debug)]
pub(crate) enum StartError {
    /// Another process listens on its port.
    PortTaken,
    /// Anything else, as a sentence.
    Other(String),
}

impl Server {
    /// Starts a server on a Unix socket, keeping nothing on disk.
    ///
    /// # Panics
    ///
    /// If there is no server, or it does not start; the message says why and what to do.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Sets up a server in another way.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The server's own folder: its socket, its log, and what it writes to disk.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The Unix socket it listens on; none if it listens on a port.
    #[must_use]
    pub fn socket_path(&self) -> Option<&Path> {
        match &self.endpoint {
            Endpoint::Socket(path) => Some(path),
            Endpoint::Port(_) | Endpoint::Tls { .. } => None,
        }
    }

    /// The port of 127.0.0.1 it listens on; none if it listens on a socket.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        match &self.endpoint {
            Endpoint::Port(port) | Endpoint::Tls { port, .. } => Some(*port),
            Endpoint::Socket(_) => None,
        }
    }

    /// Its address as a URL: `unix:///…/socket`, `redis://127.0.0.1:port`, or
    /// `rediss://127.0.0.1:port?ca=…/ca.pem`.
    #[must_use]
    pub fn url(&self) -> String {
        self.endpoint.url()
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Its process id.
    ///
    /// # Panics
    ///
    /// If it was killed or stopped.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the server was stopped; call `restart` first").id()
    }

    /// Opens a plain connection to it, also if it speaks TLS to all other clients.
    ///
    /// # Errors
    ///
    /// If it does not listen.
    pub fn connect(&self) -> io::Result<Connection> {
        self.endpoint.connect()
    }

    /// Its kind and version, as it reports them.
    ///
    /// # Panics
    ///
    /// If it does not answer, or with something else.
    #[must_use]
    pub fn version(&self) -> Version {
        let info =
            self.connect().and_then(|mut connection| connection.command(&["INFO", "server"]));
        let text = info.as_ref().ok().and_then(Reply::text);
        text.and_then(|text| Version::parse(&text))
            .unwrap_or_else(|| panic!("the server did not report its version, but: {info:?}"))
    }

    /// What it has written to its log.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = fs::read(self.folder().join("server.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Stops its process where it stands (SIGSTOP), or lets it go on (SIGCONT).
    ///
    /// # Panics
    ///
    /// If it does not run.
    pub fn pause(&self, is_paused: bool) {
        let child = self.child.as_ref().expect("the server was stopped; call `restart` first");
        let signal = if is_paused { Signal::STOP } else { Signal::CONT };
        kill_process(Pid::from_child(child), signal).expect("our own process");
        self.is_paused.store(is_paused, Ordering::Relaxed);
    }

    /// Whether it can answer: the test neither killed, stopped nor paused it.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.child.is_some() && !self.is_paused.load(Ordering::Relaxed)
    }

    /// Kills it on the spot, as a crash would (SIGKILL). Its folder stays.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            self.guardian.forget();
            let _ = child.wait();
        }
    }

    /// Asks it to end (SIGTERM) and waits until it has; kills it if it does not. Its folder stays.
    pub fn stop(&mut self) {
        if let Some(pid) = self.child.as_ref().map(Pid::from_child) {
            let _ = kill_process(pid, Signal::TERM);
            wait::until(STOP_BOUND, || wait::has_ended(pid).then_some(()));
        }
        self.kill();
    }

    /// Starts it again in the same folder, at the same address; stops it first if it runs.
    ///
    /// # Panics
    ///
    /// If it does not start; the message says why.
    pub fn restart(&mut self) {
        self.stop();
        match self.spawn() {
            Ok(()) => {}
            Err(StartError::PortTaken) => {
                panic!("another process took the port of the stopped server; use a socket")
            }
            Err(StartError::Other(sentence)) => panic!("{sentence}"),
        }
    }

    /// Starts a server in a new folder: on the port if there is one, otherwise on a socket.
    pub(crate) fn launch(
        program: PathBuf,
        port: Option<u16>,
        tls: Option<Tls>,
        args: Vec<OsString>,
    ) -> Result<Self, StartError> {
        let folder = folder::of_server();
        tls.iter().for_each(|tls| tls.write(folder.path()));
        let endpoint = Endpoint::new(folder.path(), port, tls);
        let guardian = Guardian::of(folder.path());
        let is_paused = AtomicBool::new(false);
        let mut server = Self { program, endpoint, args, child: None, is_paused, guardian, folder };
        server.spawn()?;
        Ok(server)
    }

    fn spawn(&mut self) -> Result<(), StartError> {
        let spawned = self.command().and_then(|mut command| command.spawn());
        let program = self.program.display();
        let child = spawned
            .map_err(|error| StartError::Other(format!("could not start {program}: {error}")))?;
        self.guardian.watch(child.id());
        self.child = Some(child);
        self.is_paused.store(false, Ordering::Relaxed);
        let outcome = wait::until(START_BOUND, || self.progress()).unwrap_or_else(|| {
            let what = format!("the server did not answer within {START_BOUND:?}");
            Err(StartError::Other(format!("{what}:\n{}", self.log())))
        });
        if outcome.is_err() {
            self.kill();
        }
        outcome
    }

    fn command(&self) -> io::Result<Command> {
        let log = self.folder().join("server.log");
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = Command::new(&self.program);
        command.arg("--dir").arg(self.folder());
        command.args(["--save", "", "--appendonly", "no"]);
        command.args(self.endpoint.settings()).args(&self.args);
        command.stdin(Stdio::null()).stderr(log.try_clone()?).stdout(log);
        Ok(command)
    }

    /// How far the start has come: none while it is under way.
    fn progress(&self) -> Option<Result<(), StartError>> {
        let pid = Pid::from_child(self.child.as_ref()?);
        if !wait::has_ended(pid) {
            return self.is_ready().then_some(Ok(()));
        }
        let log = self.log();
        if log.contains("Address already in use") {
            return Some(Err(StartError::PortTaken));
        }
        let hint = match self.endpoint {
            Endpoint::Tls { .. } => "; one that speaks TLS is needed, such as your system's Redis",
            _ => "",
        };
        Some(Err(StartError::Other(format!("the server ended at its start{hint}:\n{log}"))))
    }

    /// Whether our own process answers, and with its data loaded.
    fn is_ready(&self) -> bool {
        self.greet().unwrap_or(false)
    }

    fn greet(&self) -> io::Result<bool> {
        let mut connection = self.connect()?;
        connection.set_patience(GREETING_BOUND)?;
        // On a port it could be another server that was faster.
        if let Some(info) = connection.command(&["INFO", "server"])?.text() {
            let pid = self.pid().to_string();
            if version::field(&info, "process_id") != Some(&pid) {
                return Ok(false);
            }
        }
        // INFO also answers while the data are being loaded, PING does not. A server that refuses for
        // another reason, because it wants a password, is up.
        match connection.command(&["PING"])? {
            Reply::Error(refusal) => Ok(!refusal.starts_with("LOADING")),
            _ => Ok(true),
        }
    }
}

impl Drop for Server {
    /// Kills rather than asks: nothing of it will be used again, and a test should end fast.
    fn drop(&mut self) {
        self.kill();
    }
}
