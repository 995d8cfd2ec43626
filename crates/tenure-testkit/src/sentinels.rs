//! A master, its replicas, and three Sentinels that watch them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::flavor::Flavor;
use crate::guardian::Guardian;
use crate::resp::{Connection, Reply};
use crate::server::Server;
use crate::{folder, port, program, wait};

/// How long they may take to know one another: usually two seconds.
const START_BOUND: Duration = Duration::from_secs(30);

/// A Sentinel that was not scheduled for two seconds does nothing for half a minute (TILT).
const FAILOVER_BOUND: Duration = Duration::from_secs(60);

/// A master, its replicas, and three Sentinels.
#[derive(Debug)]
#[must_use = "all of them stop when this is dropped"]
pub struct Sentinels {
    /// The servers. The first one is the master at the start.
    pub servers: Vec<Server>,
    sentinels: Vec<Sentinel>,
}

impl Sentinels {
    /// The name under which the master is watched.
    pub const MASTER: &str = "main";

    /// Starts them, and waits until every Sentinel knows the others and the replicas.
    ///
    /// # Panics
    ///
    /// If one does not start; the message says why.
    pub fn start(flavor: Flavor, replicas: usize) -> Self {
        Self::launch(&program_of(flavor), replicas, 3)
    }

    /// The same, of this program.
    ///
    /// # Panics
    ///
    /// If one does not start; the message says why.
    pub fn of_program(program: &Path, replicas: usize) -> Self {
        Self::launch(program, replicas, 3)
    }

    /// Starts one master and one Sentinel, which is much faster: two of three need seconds to find one another.
    pub fn alone(flavor: Flavor) -> Self {
        Self::launch(&program_of(flavor), 0, 1)
    }

    fn launch(program: &Path, replicas: usize, count: usize) -> Self {
        let servers: Vec<_> = (0..=replicas).map(|_| server(program)).collect();
        let master = servers[0].port().expect("it is on a port");
        for replica in &servers[1..] {
            let mut connection = replica.connect().expect("a connection");
            connection.command(&["REPLICAOF", "127.0.0.1", &master.to_string()]).expect("a reply");
        }
        for replica in &servers[1..] {
            until("a replica follows its master", || {
                let info =
                    replica.connect().ok()?.command(&["INFO", "replication"]).ok()?.text()?;
                info.contains("master_link_status:up").then_some(())
            });
        }
        let quorum = count / 2 + 1;
        let sentinels: Vec<_> =
            (0..count).map(|_| Sentinel::start(program, master, quorum)).collect();
        let group = Self { servers, sentinels };
        for sentinel in &group.sentinels {
            until("the Sentinels know one another", || {
                sentinel.knows(replicas, count - 1).then_some(())
            });
        }
        group
    }

    /// The URL of the group.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> =
            self.sentinels.iter().map(|it| format!("127.0.0.1:{}", it.port)).collect();
        format!("redis+sentinel://{}/{}", hosts.join(","), Self::MASTER)
    }

    /// The URL with one Sentinel alone.
    #[must_use]
    pub fn url_of_one(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/{}", self.sentinels[0].port, Self::MASTER)
    }

    /// The port of the master, if a majority of the Sentinels names one.
    #[must_use]
    pub fn master_port(&self) -> Option<u16> {
        let named: Vec<_> = self.sentinels.iter().filter_map(Sentinel::master_port).collect();
        let count = |port| named.iter().filter(|it| **it == port).count();
        named.iter().copied().find(|port| count(*port) > self.sentinels.len() / 2)
    }

    /// The server that a majority of the Sentinels names.
    #[must_use]
    pub fn master(&self) -> Option<&Server> {
        let port = self.master_port()?;
        self.servers.iter().find(|server| server.port() == Some(port))
    }

    /// Asks a Sentinel for a failover, and waits until a majority names another master. One is asked again whenever none has one
    /// under way: a Sentinel gives a failover up if the replica seems to be down for half a second, and does not try again while
    /// the master is up.
    ///
    /// # Panics
    ///
    /// If none is promoted.
    pub fn fail_over(&self) {
        self.await_agreement();
        let before = self.master_port();
        self.until_other_master(before, || {
            let is_idle = !self.sentinels.iter().any(Sentinel::is_failing_over);
            let agrees = |it: &&Sentinel| it.master_port() == before;
            if let Some(asked) = self.sentinels.iter().find(agrees).filter(|_| is_idle) {
                let _ = asked.ask("FAILOVER");
            }
        });
    }

    /// Waits until all Sentinels that run name the same master, none of them believes that it is down, and none replaces it. If two
    /// replaced it in the same epoch, by request and by vote, they would never agree: the next failover has a later one.
    ///
    /// # Panics
    ///
    /// If they do not agree.
    pub fn await_agreement(&self) {
        let waiting = Duration::from_secs(10);
        for _ in 0..4 {
            if wait::until(waiting, || self.is_agreed().then_some(())).is_some() {
                return;
            }
            let _ = self.sentinels.iter().find_map(|sentinel| sentinel.ask("FAILOVER"));
        }
        self.give_up("the Sentinels do not agree");
    }

    fn is_agreed(&self) -> bool {
        let named: Vec<_> = self.sentinels.iter().filter_map(Sentinel::undisputed_master).collect();
        let running = self.sentinels.iter().filter(|it| it.child.is_some()).count();
        running > 0 && named.len() == running && named.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// Waits until a majority names a master on another port.
    ///
    /// # Panics
    ///
    /// If none is promoted.
    pub fn await_master_other_than(&self, before: Option<u16>) {
        self.until_other_master(before, || {});
    }

    fn until_other_master(&self, before: Option<u16>, mut meanwhile: impl FnMut()) {
        let replaced = wait::until(FAILOVER_BOUND, || {
            meanwhile();
            self.master_port().filter(|port| Some(*port) != before)
        });
        if replaced.is_none() {
            self.give_up("no other server is the master");
        }
    }

    fn give_up(&self, what: &str) -> ! {
        let logs: Vec<_> = self.sentinels.iter().map(Sentinel::log).collect();
        panic!("{what}; a Sentinel: {}", logs.join("; another Sentinel: "));
    }

    /// Sets after how long without an answer a server counts as down.
    ///
    /// # Panics
    ///
    /// If a Sentinel refuses.
    pub fn set_down_after(&self, time: Duration) {
        for sentinel in &self.sentinels {
            let millis = time.as_millis().to_string();
            let words = ["SENTINEL", "SET", Self::MASTER, "down-after-milliseconds", &millis];
            let reply = sentinel.connect().expect("it listens").command(&words).expect("a reply");
            assert_eq!(reply, Reply::Simple("OK".into()));
        }
    }

    /// Kills a Sentinel, as a crash would.
    pub fn kill_sentinel(&mut self, number: usize) {
        self.sentinels[number].kill();
    }

    /// Starts a Sentinel again that was killed.
    pub fn restart_sentinel(&mut self, number: usize) {
        self.sentinels[number].spawn();
    }

    /// Stops a server's process where it stands (SIGSTOP), or lets it go on (SIGCONT).
    ///
    /// # Panics
    ///
    /// If it does not run.
    pub fn pause(&self, number: usize, is_paused: bool) {
        self.servers[number].pause(is_paused);
    }
}

fn program_of(flavor: Flavor) -> PathBuf {
    program::find(Some(flavor)).unwrap_or_else(|missing| panic!("{missing}"))
}

fn server(program: &Path) -> Server {
    // A replica is served at once; usually a master waits for others to come.
    Server::builder().program(program).arg("--repl-diskless-sync-delay", "0").on_port().start()
}

fn until<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    wait::until(START_BOUND, ask).unwrap_or_else(|| panic!("{what}: not within {START_BOUND:?}"))
}

/// One Sentinel.
#[derive(Debug)]
struct Sentinel {
    program: PathBuf,
    port: u16,
    child: Option<Child>,
    guardian: Guardian,
    folder: TempDir,
}

impl Sentinel {
    fn start(program: &Path, master: u16, quorum: usize) -> Self {
        let folder = folder::of_server();
        let (port, name) = (port::free(), Sentinels::MASTER);
        let settings = format!(
            "port {port}\nbind 127.0.0.1\nprotected-mode no\ndir {}\n\
             sentinel monitor {name} 127.0.0.1 {master} {quorum}\n\
             sentinel down-after-milliseconds {name} 500\n\
             sentinel failover-timeout {name} 3000\n",
            folder.path().display(),
        );
        fs::write(folder.path().join("sentinel.conf"), settings).expect("a file");
        let guardian = Guardian::of(folder.path());
        let program = program.to_owned();
        let mut sentinel = Self { program, port, child: None, guardian, folder };
        sentinel.spawn();
        sentinel
    }

    fn spawn(&mut self) {
        let log = self.folder.path().join("sentinel.log");
        let log = File::options().create(true).append(true).open(log).expect("a log");
        let mut command = Command::new(&self.program);
        command.arg(self.folder.path().join("sentinel.conf")).arg("--sentinel");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a file")).stderr(log);
        let child = command.spawn().expect("a Sentinel");
        self.guardian.watch(child.id());
        self.child = Some(child);
        until("a Sentinel answers", || self.connect()?.command(&["PING"]).ok());
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            self.guardian.forget();
            let _ = child.wait();
        }
    }

    fn connect(&self) -> Option<Connection> {
        Connection::tcp(([127, 0, 0, 1], self.port).into()).ok()
    }

    fn ask(&self, what: &str) -> Option<Reply> {
        self.connect()?.command(&["SENTINEL", what, Sentinels::MASTER]).ok()
    }

    fn master_port(&self) -> Option<u16> {
        match self.ask("GET-MASTER-ADDR-BY-NAME")? {
            Reply::Array(Some(words)) => words.get(1)?.text()?.parse().ok(),
            _ => None,
        }
    }

    /// Whether it knows so many replicas, and so many other Sentinels.
    fn knows(&self, replicas: usize, others: usize) -> bool {
        let number = |field: &str| self.field(field)?.parse::<usize>().ok();
        number("num-other-sentinels") == Some(others) && number("num-slaves") == Some(replicas)
    }

    /// The port of the master, if it is up, and is not being replaced.
    fn undisputed_master(&self) -> Option<u16> {
        self.field("flags").filter(|flags| flags == "master")?;
        self.master_port()
    }

    fn is_failing_over(&self) -> bool {
        self.field("flags").is_some_and(|flags| flags.contains("failover_in_progress"))
    }

    /// What it knows of the master.
    fn field(&self, field: &str) -> Option<String> {
        let Reply::Array(Some(words)) = self.ask("MASTER")? else { return None };
        let words: Vec<_> = words.iter().filter_map(Reply::text).collect();
        let at = words.iter().position(|word| *word == field)?;
        words.get(at + 1).map(ToString::to_string)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("sentinel.log")).unwrap_or_default()
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        self.kill();
    }
}
