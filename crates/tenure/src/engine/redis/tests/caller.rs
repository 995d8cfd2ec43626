//! A client that calls scripts one by one, at a time that the test sets, and reads every key.
//!
//! Only the server's clock is replaced, by keys that the test sets; otherwise the scripts are unchanged.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_testkit::Server;
use tenure_testkit::resp::Connection;
use tenure_testkit::resp::Reply as Plain;

use super::super::batch::{self, Batched, Common};
use super::super::keys;
use super::super::protocol::Protocol;
use super::super::resp::{Command, Parser, Reply};
use super::super::scripts::Script;
use crate::core::moment::Moment;
use crate::core::name::LockName;

/// For how long fences outlive their locks in these tests, in ms.
pub(super) const RETENTION: &str = "60000";

/// The common arguments of a client's operations in these tests.
pub(super) fn common(client: &str) -> Common<'_> {
    Common { client, retention: RETENTION.parse().unwrap() }
}

/// The keys of the clock.
const CLOCK: [&str; 2] = ["test:s", "test:us"];

/// Behind the loop of the plain case.
const AFTER_PLAIN: &str = "-- After the loop of the plain case";

/// Where the fast path stores a result.
const FAST_PATH: &str = "results[i + 1] = is_done and result or failure(result)";

pub(super) struct Caller {
    connection: Connection,
    /// Receives wake-ups: a client without a subscription is parked.
    pub(super) receiver: Connection,
    pub(super) client: String,
    pub(super) now: Moment,
    /// For how long fences outlive their locks, in ms.
    pub(super) retention: u64,
    /// The marker of the quorum that the server is a node of.
    pub(super) marker: Option<String>,
    /// Only the plain case of a script is run; an answer to anything else is an error.
    pub(super) is_plain_only: bool,
    /// Operations that took the fast path are counted.
    pub(super) counts_fast_path: bool,
}

/// Every key but the clock's, as the server dumps it.
pub(super) type State = BTreeMap<String, Vec<u8>>;

impl Caller {
    /// A client of a server that holds nothing.
    pub(super) fn new(server: &Server) -> Self {
        let open = || server.connect().unwrap();
        let (mut connection, mut receiver) = (open(), open());
        connection.command(&["FLUSHALL"]).unwrap();
        let client = format!("{:016x}", crate::owner::unique_number());
        receiver.command(&["SUBSCRIBE", &format!("{}{client}", keys::CHANNEL)]).unwrap();
        // A wake-up that never arrives is a difference to report soon: shrinking waits for it many times.
        receiver.set_patience(Duration::from_millis(500)).unwrap();
        let now = Moment::from_micros(1_794_768_132_030_839);
        let retention = common(&client).retention;
        Self {
            connection,
            receiver,
            client,
            now,
            retention,
            marker: None,
            is_plain_only: false,
            counts_fast_path: false,
        }
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    /// Sends one command to the server.
    pub(super) fn command(&mut self, words: &[&str]) -> Plain {
        self.connection.command(words).unwrap()
    }

    /// The lines of the answer to these operations, sent as one call.
    pub(super) fn call<O: Batched>(&mut self, operations: &[&O]) -> Vec<String> {
        self.try_call(operations).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same, or the error that came instead of the lines.
    pub(super) fn try_call<O: Batched>(
        &mut self,
        operations: &[&O],
    ) -> Result<Vec<String>, String> {
        let names: Vec<_> = operations.iter().map(|it| it.name()).collect();
        let (client, retention) = (self.client.clone(), self.retention);
        let reply = self.run(O::script(), &names, |command| {
            let common = || Common { client: &client, retention };
            operations.iter().for_each(|operation| operation.arguments(common(), command));
        });
        let failed = format!("the whole call failed: {reply:?}");
        batch::lines(&reply).map(|lines| lines.map(str::to_owned).collect()).map_err(|_| failed)
    }

    /// Runs a script on some locks.
    pub(super) fn run(
        &mut self,
        script: &'static Script,
        names: &[&LockName],
        arguments: impl FnOnce(&mut Command),
    ) -> Reply {
        let micros = self.now.as_micros();
        let (seconds, rest) = ((micros / 1_000_000).to_string(), (micros % 1_000_000).to_string());
        self.command(&["MSET", CLOCK[0], &seconds, CLOCK[1], &rest]);
        let clock = format!("redis.call('MGET', '{}', '{}')", CLOCK[0], CLOCK[1]);
        let script = script.on_server(self.marker.is_some(), Protocol::Tenure);
        let mut text = script.text.replace("redis.call('TIME')", &clock);
        if self.is_plain_only {
            let (plain, _) = text.split_once(AFTER_PLAIN).expect("it has a plain case");
            text = format!("{plain} if rest then return {{ err = 'not plain' }} end {AFTER_PLAIN}");
        }
        if self.counts_fast_path {
            let count = format!("{FAST_PATH} redis.call('INCR', 'test:{}')", script.hash);
            text = text.replace(FAST_PATH, &count);
        }
        let mut command = Command::new("EVAL").arg(text).arg(names.len().to_string());
        names.iter().for_each(|name| command.push(keys::lock_key(name)));
        command.push(format!("nonce {} {}", self.client, self.retention));
        arguments(&mut command);
        self.marker.iter().for_each(|marker| command.push(marker));
        let words = words(&command);
        convert(self.connection.command(&words).unwrap())
    }

    /// How often a script took the fast path while that was counted.
    pub(super) fn fast_path_count(&mut self, script: &Script) -> u32 {
        let count = self.command(&["GET", &format!("test:{}", script.hash)]);
        count.text().map_or(0, |count| count.parse().unwrap())
    }

    /// Every key as it is.
    pub(super) fn state(&mut self) -> State {
        let mut keys = self.keys();
        keys.retain(|key| !CLOCK.contains(&key.as_str()));
        keys.into_iter().map(|key| (key.clone(), self.dump(&key))).collect()
    }

    /// A key as the server dumps it; a hash with its fields sorted, because they have no order.
    pub(super) fn dump(&mut self, key: &str) -> Vec<u8> {
        if self.command(&["TYPE", key]).text().as_deref() == Some("hash") {
            let fields = convert(self.command(&["HGETALL", key]));
            let words: Vec<_> = fields.array().unwrap().iter().map(|it| it.text()).collect();
            let mut pairs: Vec<_> = words.chunks(2).collect();
            pairs.sort_unstable();
            return format!("{pairs:?}").into_bytes();
        }
        match self.command(&["DUMP", key]) {
            Plain::Bulk(Some(bytes)) => bytes,
            other => panic!("{key} does not exist: {other:?}"),
        }
    }

    fn keys(&mut self) -> Vec<String> {
        let Plain::Array(Some(keys)) = self.command(&["KEYS", "*"]) else {
            panic!("no list of keys")
        };
        keys.iter().filter_map(Plain::text).collect()
    }
}

/// The words of a command, which is encoded like a reply of texts.
pub(super) fn words(command: &Command) -> Vec<String> {
    let mut bytes = Vec::new();
    command.write(&mut bytes);
    let mut parser = Parser::new(usize::MAX);
    parser.buffer().extend_from_slice(&bytes);
    let Ok(Some(Reply::Array(words))) = parser.next() else { panic!("no command") };
    words.iter().filter_map(Reply::text).map(str::to_owned).collect()
}

/// Converts the testkit's reply to the engine's.
pub(super) fn convert(reply: Plain) -> Reply {
    match reply {
        Plain::Simple(text) => Reply::Status(text),
        Plain::Error(text) => Reply::Error(text),
        Plain::Integer(number) => Reply::Integer(number),
        Plain::Bulk(Some(bytes)) => Reply::Text(bytes),
        Plain::Array(Some(replies)) => Reply::Array(replies.into_iter().map(convert).collect()),
        Plain::Bulk(None) | Plain::Array(None) => Reply::Nil,
        other => panic!("not of version 2: {other:?}"),
    }
}
