//! A master and its replicas.

use std::time::Duration;

use tenure::{LockInfo, Tenure};
use tenure_testkit::resp::Reply;
use tenure_testkit::{Flavor, Server};

pub(crate) use crate::flavors::on_all;
pub(crate) use crate::waiting::{LONG, pass};

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A master and its replicas, and a client of the master.
pub(crate) struct Group {
    pub(crate) master: Server,
    pub(crate) replicas: Vec<Server>,
    pub(crate) client: Tenure,
}

impl Group {
    pub(crate) async fn start(flavor: Flavor, replicas: usize) -> Self {
        let start = move || {
            let master = server(flavor);
            let replicas: Vec<_> = (0..replicas).map(|_| follower(flavor, &master)).collect();
            // A replica that has just got its copy is silent for up to a second. The first write may be in that copy.
            let mut connection = master.connect().unwrap();
            let count = i64::try_from(replicas.len()).unwrap();
            for value in ["1", "2"] {
                connection.command(&["SET", "probe", value]).unwrap();
                let confirmed = connection.command(&["WAIT", &count.to_string(), "9000"]).unwrap();
                assert_eq!(confirmed, Reply::Integer(count));
            }
            (master, replicas)
        };
        let (master, replicas) = tokio::task::spawn_blocking(start).await.unwrap();
        let client = Tenure::connect(&master.url()).await.unwrap();
        Self { master, replicas, client }
    }

    /// Another client of the master.
    pub(crate) async fn other(&self) -> Tenure {
        Tenure::connect(&self.master.url()).await.unwrap()
    }

    /// Stops the first replica, or lets it go on.
    pub(crate) fn pause(&self, is_paused: bool) {
        self.replicas[0].pause(is_paused);
    }

    /// How often the master has run a command.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        let stats = run(&self.master, &["INFO", "commandstats"]).text().unwrap();
        let line = stats.lines().find_map(|it| it.strip_prefix(&format!("cmdstat_{command}:")));
        let calls = line.and_then(|line| line.split(',').next()?.strip_prefix("calls="));
        calls.map_or(0, |calls| calls.parse().unwrap())
    }
}

fn server(flavor: Flavor) -> Server {
    Server::builder().flavor(flavor).arg("--repl-diskless-sync-delay", "0").on_port().start()
}

fn follower(flavor: Flavor, master: &Server) -> Server {
    let replica = server(flavor);
    run(&replica, &["REPLICAOF", "127.0.0.1", &master.port().unwrap().to_string()]);
    replica
}

/// Sends one command to a server.
pub(crate) fn run(server: &Server, words: &[&str]) -> Reply {
    server.connect().unwrap().command(words).unwrap()
}

/// What a server has stored of a lock.
pub(crate) fn stored(server: &Server, name: &str) -> Option<Vec<u8>> {
    match run(server, &["DUMP", &format!("tenure:{{{name}}}")]) {
        Reply::Bulk(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn until(tenure: &Tenure, name: &str, is_so: impl Fn(&LockInfo) -> bool) {
    let lock = tenure.lock(name);
    let seen = tokio::time::timeout(LONG, async {
        while !is_so(&lock.inspect().await.unwrap()) {
            pass(ms(2)).await;
        }
    });
    if seen.await.is_err() {
        panic!("timed out: {:?}", lock.inspect().await);
    }
}
