//! A simulated Redis server: real sockets, the real protocol and the real scripts, over a network that delays, loses and
//! ends what it likes.
//!
//! Each client has a socket of its own to connect to, by which the server knows whom a fault concerns. A command takes some
//! time to arrive and its reply some time to return, in order.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::ambient;
use super::database::Database;
use super::reply::{Reply, take_command};
use super::scripting;
use crate::sync::lock;

type Words = Vec<Vec<u8>>;

/// A server and its network.
pub(super) struct Server {
    folder: TempDir,
    database: Arc<Mutex<Database>>,
    network: Mutex<Network>,
    /// How fast its clock is.
    speed: f64,
}

struct Network {
    random: fastrand::Rng,
    /// The mean time of one direction.
    delay: Duration,
    is_up: bool,
    connections: BTreeMap<u64, Connection>,
    last: u64,
    /// Until when nothing passes between the server and a client, in either direction.
    silent: BTreeMap<usize, Instant>,
}

struct Connection {
    client: usize,
    replies: mpsc::UnboundedSender<(Instant, Vec<u8>)>,
    end: watch::Sender<End>,
    channels: BTreeSet<Vec<u8>>,
    /// When the last command arrives, and when the last reply does: later ones do not overtake them.
    arrival: Instant,
    return_: Instant,
}

/// How a connection ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Open,
    /// Commands that were sent are still performed.
    Late,
    /// Commands that were sent are lost.
    Lost,
}

impl Server {
    pub(super) fn start(delay: Duration, speed: f64, random: fastrand::Rng) -> Arc<Self> {
        let network = Network {
            random,
            delay,
            is_up: true,
            connections: BTreeMap::new(),
            last: 0,
            silent: BTreeMap::new(),
        };
        Arc::new(Self {
            folder: tempfile::tempdir().expect("a folder for sockets"),
            database: Arc::default(),
            network: Mutex::new(network),
            speed,
        })
    }

    /// The address for one client.
    pub(super) fn url_for(self: &Arc<Self>, client: usize) -> String {
        let path = self.folder.path().join(client.to_string());
        let listener = UnixListener::bind(&path).expect("a socket to listen on");
        tokio::spawn(self.clone().accept(listener, client));
        format!("unix://{}", path.display())
    }

    /// Ends the connections of a client. Commands that were sent may be performed after that.
    pub(super) fn cut(&self, client: usize, is_lost: bool) {
        self.end_those(|connection| connection.client == client, is_lost);
    }

    /// Nothing passes between the server and a client for this long. What was sent meanwhile arrives after that.
    pub(super) fn silence(&self, client: usize, time: Duration) {
        lock(&self.network).silent.insert(client, Instant::now() + time);
    }

    /// The server ends, and forgets its scripts; also its data, if it does not keep them.
    pub(super) fn stop(&self, keeps: bool) {
        lock(&self.network).is_up = false;
        self.end_those(|_| true, true);
        let mut database = lock(&self.database);
        database.scripts.clear();
        if !keeps {
            database.lose();
        }
    }

    /// The server that has ended starts again.
    pub(super) fn start_again(&self) {
        lock(&self.network).is_up = true;
    }

    /// The server forgets its scripts.
    pub(super) fn forget_scripts(&self) {
        lock(&self.database).scripts.clear();
    }

    /// The keys of locks.
    pub(super) fn locks(&self) -> Vec<String> {
        let mut database = lock(&self.database);
        database.time = self.calendar();
        let mut names = database.names();
        names.retain(|name| name.starts_with("tenure:{"));
        names
    }

    /// Its calendar, in µs.
    fn calendar(&self) -> u64 {
        let start = ambient::CALENDAR.as_micros() as u64;
        let passed = ambient::wall().expect("a simulation").as_micros() - start;
        start + (passed as f64 * self.speed) as u64
    }

    fn end_those(&self, is_one: impl Fn(&Connection) -> bool, is_lost: bool) {
        let end = if is_lost { End::Lost } else { End::Late };
        let mut network = lock(&self.network);
        network.connections.retain(|_, connection| {
            let ends = is_one(connection);
            if ends {
                connection.end.send_replace(end);
            }
            !ends
        });
        self.count_subscribers(&network);
    }

    fn count_subscribers(&self, network: &Network) {
        let mut database = lock(&self.database);
        database.subscribers.clear();
        for channel in network.connections.values().flat_map(|connection| &connection.channels) {
            *database.subscribers.entry(channel.clone()).or_default() += 1;
        }
    }

    async fn accept(self: Arc<Self>, listener: UnixListener, client: usize) {
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            if lock(&self.network).is_up {
                self.open(stream, client);
            }
        }
    }

    fn open(self: &Arc<Self>, stream: UnixStream, client: usize) {
        let (input, output) = stream.into_split();
        let (replies, to_write) = mpsc::unbounded_channel();
        let (commands, to_perform) = mpsc::unbounded_channel();
        let (end, ended) = watch::channel(End::Open);
        let mut network = lock(&self.network);
        network.last += 1;
        let (id, now) = (network.last, Instant::now());
        let channels = BTreeSet::new();
        let connection = Connection { client, replies, end, channels, arrival: now, return_: now };
        network.connections.insert(id, connection);
        drop(network);
        tokio::spawn(self.clone().read(id, input, commands, ended.clone()));
        tokio::spawn(self.clone().perform_all(id, to_perform, ended.clone()));
        tokio::spawn(write(output, to_write, ended));
    }

    /// Reads commands until the connection has ended. None is the end.
    async fn read(
        self: Arc<Self>,
        id: u64,
        mut input: OwnedReadHalf,
        commands: mpsc::UnboundedSender<(Instant, Option<Words>)>,
        mut ended: watch::Receiver<End>,
    ) {
        let mut bytes = Vec::new();
        loop {
            let read = tokio::select! {
                read = input.read_buf(&mut bytes) => read.unwrap_or(0),
                _ = ended.wait_for(|end| *end != End::Open) => return,
            };
            while let Some(words) = take_command(&mut bytes) {
                let at = self.arrival(id);
                at.into_iter().for_each(|at| drop(commands.send((at, Some(words.clone())))));
            }
            if read == 0 {
                self.arrival(id).into_iter().for_each(|at| drop(commands.send((at, None))));
                return;
            }
        }
    }

    /// When something that a client sends now arrives.
    fn arrival(&self, id: u64) -> Option<Instant> {
        let mut network = lock(&self.network);
        let client = network.connections.get(&id)?.client;
        let at = network.transit(client);
        let connection = network.connections.get_mut(&id)?;
        connection.arrival = connection.arrival.max(at);
        Some(connection.arrival)
    }

    async fn perform_all(
        self: Arc<Self>,
        id: u64,
        mut commands: mpsc::UnboundedReceiver<(Instant, Option<Words>)>,
        ended: watch::Receiver<End>,
    ) {
        while let Some((at, words)) = commands.recv().await {
            until(at).await;
            if *ended.borrow() == End::Lost {
                return;
            }
            match words {
                Some(words) => self.perform(id, &words),
                None => {
                    let mut network = lock(&self.network);
                    network.connections.remove(&id);
                    self.count_subscribers(&network);
                }
            }
        }
    }

    /// Performs a command, and sends its reply and the messages that it publishes.
    fn perform(&self, id: u64, words: &Words) {
        let mut network = lock(&self.network);
        let reply = self.reply(&mut network, id, words);
        let messages = std::mem::take(&mut lock(&self.database).messages);
        for message in messages {
            let receives = |(id, it): (&u64, &Connection)| {
                it.channels.contains(&message.channel).then_some(*id)
            };
            let receivers: Vec<_> = network.connections.iter().filter_map(receives).collect();
            let push = Reply::texts(&[b"message", &message.channel, &message.text]);
            receivers.into_iter().for_each(|id| network.send(id, &push));
        }
        network.send(id, &reply);
    }

    fn reply(&self, network: &mut Network, id: u64, words: &Words) -> Reply {
        let name = text(&words[0]).to_ascii_uppercase();
        let is_subscribed =
            network.connections.get(&id).is_some_and(|connection| !connection.channels.is_empty());
        match (name.as_str(), &words[1..]) {
            ("HELLO", []) => Reply::texts(&[b"mode", b"standalone", b"role", b"master"]),
            ("ROLE", []) => Reply::texts(&[b"master"]),
            ("PING", []) if is_subscribed => Reply::texts(&[b"pong", b""]),
            ("PING", []) => Reply::Status("PONG"),
            ("SUBSCRIBE", [channel]) => {
                if let Some(connection) = network.connections.get_mut(&id) {
                    connection.channels.insert(channel.clone());
                }
                self.count_subscribers(network);
                let texts = [b"subscribe".to_vec(), channel.clone()].map(Reply::Text);
                Reply::Array(texts.into_iter().chain([Reply::Integer(1)]).collect())
            }
            ("SCRIPT", [load, script]) if load == b"LOAD" => {
                let script = text(script);
                let hash = hash(script);
                scripting::load(&hash, script);
                lock(&self.database).scripts.insert(hash.clone());
                Reply::Text(hash.into())
            }
            ("EVALSHA" | "EVAL", [script, count, rest @ ..]) => {
                self.run(name == "EVAL", text(script), count, rest)
            }
            _ => {
                let mut database = lock(&self.database);
                database.time = self.calendar();
                database.perform(words)
            }
        }
    }

    /// Runs a script, which is named by its hash or its text.
    fn run(&self, is_text: bool, script: &str, count: &[u8], rest: &[Vec<u8>]) -> Reply {
        let hash = if is_text { hash(script) } else { script.to_owned() };
        let mut database = lock(&self.database);
        database.time = self.calendar();
        if is_text {
            database.scripts.insert(hash.clone());
        } else if !database.scripts.contains(&hash) {
            return Reply::Error("NOSCRIPT No matching script. Please use EVAL.".into());
        }
        drop(database);
        let count = text(count).parse().expect("the number of keys");
        let (keys, arguments) = rest.split_at(count);
        scripting::run(&self.database, &hash, is_text.then_some(script), keys, arguments)
    }
}

impl Network {
    /// When something that is sent now arrives. Most of it is fast, and some is not.
    fn transit(&mut self, client: usize) -> Instant {
        let factor = match self.random.u32(..100) {
            0 => self.random.u32(10..200),
            1..10 => self.random.u32(2..10),
            _ => self.random.u32(..3),
        };
        let silent = self.silent.get(&client).copied();
        let at = Instant::now() + self.delay * factor;
        silent.map_or(at, |silent| silent.max(at))
    }

    fn send(&mut self, id: u64, reply: &Reply) {
        let Some(connection) = self.connections.get(&id) else { return };
        let at = self.transit(connection.client);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.return_ = connection.return_.max(at);
        let mut bytes = Vec::new();
        reply.write(&mut bytes);
        let _ = connection.replies.send((connection.return_, bytes));
    }
}

/// Writes replies until the connection has ended.
async fn write(
    mut output: OwnedWriteHalf,
    mut replies: mpsc::UnboundedReceiver<(Instant, Vec<u8>)>,
    mut ended: watch::Receiver<End>,
) {
    let writing = async {
        while let Some((at, bytes)) = replies.recv().await {
            until(at).await;
            if output.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = writing => {}
        _ = ended.wait_for(|end| *end != End::Open) => {}
    }
}

/// The hash by which a server knows a script. Every connection loads all of them, so the hashes are kept.
fn hash(text: &str) -> String {
    thread_local! {
        static KNOWN: RefCell<Vec<(String, String)>> = RefCell::default();
    }
    KNOWN.with_borrow_mut(|known| {
        if let Some((_, hash)) = known.iter().find(|(known, _)| known == text) {
            return hash.clone();
        }
        let hash = sha1_smol::Sha1::from(text).digest().to_string();
        known.push((text.to_owned(), hash.clone()));
        hash
    })
}

fn text(word: &[u8]) -> &str {
    std::str::from_utf8(word).expect("Tenure sends text")
}

#[expect(clippy::disallowed_methods, reason = "the simulated network takes time")]
async fn until(at: Instant) {
    tokio::time::sleep_until(at).await;
}
