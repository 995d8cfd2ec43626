//! One server of a cluster.

use std::io;

use crate::builder::Builder;
use crate::resp::{Connection, Reply};
use crate::server::Server;

/// One server of a [`Cluster`](crate::Cluster).
#[derive(Debug)]
pub struct Node {
    server: Server,
    port: u16,
    id: String,
}

impl Node {
    pub(super) fn start(builder: Builder) -> Self {
        let server = builder.on_port().start();
        let port = server.port().expect("it is on a port");
        let mut node = Self { server, port, id: String::new() };
        node.id = node.ask_text(&["CLUSTER", "MYID"]).expect("a node that runs knows its id");
        node
    }

    /// Its port of 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its id in the cluster, which it keeps through restarts.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its process id.
    ///
    /// # Panics
    ///
    /// If it was killed.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Its server: the folder, the log, the version.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Opens a plain connection to it.
    ///
    /// # Errors
    ///
    /// If it does not listen.
    pub fn connect(&self) -> io::Result<Connection> {
        self.server.connect()
    }

    /// Whether it can answer: the test neither killed nor paused it.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.server.is_live()
    }

    /// Kills it on the spot, as a crash would (SIGKILL). Its folder stays.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Starts it again on the same port, in the same folder, with the same settings; stops it first if it
    /// runs. It keeps its `nodes.conf`, so it is the same node, with the role and the slots that it knew
    /// last. Its keys are gone; but if it was ever a replica, it loads the `dump.rdb` that its last full
    /// synchronization left there, as a real server without persistence does. A primary refuses writes
    /// for its first two seconds: [`Cluster::await_ok`](crate::Cluster::await_ok).
    ///
    /// # Panics
    ///
    /// If it does not start; the message says why.
    pub fn restart(&mut self) {
        self.server.restart();
    }

    /// Stops its process where it stands (SIGSTOP), or lets it go on (SIGCONT).
    ///
    /// # Panics
    ///
    /// If it does not run.
    pub fn pause(&self, is_paused: bool) {
        self.server.pause(is_paused);
    }

    /// Sends one command on a new connection; none if there is no reply.
    pub(super) fn ask<W: AsRef<[u8]>>(&self, words: &[W]) -> Option<Reply> {
        self.connect().ok()?.command(words).ok()
    }

    pub(super) fn ask_text(&self, words: &[&str]) -> Option<String> {
        self.ask(words)?.text()
    }
}
