//! The scripts: one file per operation, each with its contract as header.
//!
//! A line `--@ part.lua` is replaced by the text of that part. The full rules, `lock.lua` and its parts, are included
//! after each operation's plain case and fast path, so that a call which needs none of them does not define them
//! either.

use std::sync::LazyLock;

use super::protocol::Protocol;

/// One script, and the hash by which the server knows it.
pub(super) struct Script {
    pub(super) text: String,
    pub(super) hash: String,
    /// The same for a node of a quorum, which checks its marker first; none for a script that decides nothing.
    marked: Option<Box<Self>>,
    /// Its plain case, for locks of several slots of a cluster; none for a script that has no plain case.
    spread: Option<Box<Self>>,
    /// The same operation on locks in Redisson's format.
    redisson: Option<Box<Self>>,
}

/// What a script for a node of a quorum begins with, if it has no plain case.
const QUORUM: &str = include_str!("lua/quorum.lua");

/// What reads the locks in the plain case of a script (plain_begin.lua), and what does so on a node of a quorum.
const READ: &str = "local texts = redis.call('MGET', unpack(KEYS))\n";
const QUORUM_READ: &str = include_str!("lua/quorum_read.lua");
const QUORUM_ACQUIRE_READ: &str = include_str!("lua/quorum_acquire_read.lua");

/// Where the plain case of a script begins and ends.
const PLAIN_BEGIN: &str = "--@ plain_begin.lua";
const PLAIN_BEGINNING: &str = include_str!("lua/plain_begin.lua");
const PLAIN_END: &str = "--@ plain_end.lua";

/// What stands there instead in a call for several slots.
const SPREAD_BEGIN: &str = include_str!("lua/spread_begin.lua");
const SPREAD_END: &str = include_str!("lua/spread_end.lua");

macro_rules! script {
    ($name:ident, $file:literal, $make:ident) => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            let redisson = Script::new(include_str!(concat!("lua/redisson/", $file)));
            let own = Script::$make(include_str!(concat!("lua/", $file)));
            Script { redisson: Some(Box::new(redisson)), ..own }
        });
    };
}

script!(ACQUIRE, "acquire.lua", granting);
script!(RENEW, "renew.lua", voting);
script!(RELEASE, "release.lua", voting);
script!(CANCEL, "cancel.lua", voting);
script!(INSPECT, "inspect.lua", new);
script!(FORCE, "force.lua", new);

/// The texts to include. A part comes before those that it includes itself.
const PARTS: [(&str, &str); 16] = [
    (PLAIN_BEGIN, PLAIN_BEGINNING),
    ("--@ plain_result.lua", include_str!("lua/plain_result.lua")),
    (PLAIN_END, include_str!("lua/plain_end.lua")),
    ("--@ fast_path.lua", include_str!("lua/fast_path.lua")),
    ("--@ lock.lua", include_str!("lua/lock.lua")),
    ("--@ proposals.lua", include_str!("lua/proposals.lua")),
    ("--@ state.lua", include_str!("lua/state.lua")),
    ("--@ holders.lua", include_str!("lua/holders.lua")),
    ("--@ queue.lua", include_str!("lua/queue.lua")),
    ("--@ common.lua", include_str!("lua/common.lua")),
    ("--@ redisson/common.lua", include_str!("lua/redisson/common.lua")),
    ("--@ redisson/mutex.lua", include_str!("lua/redisson/mutex.lua")),
    ("--@ redisson/readers.lua", include_str!("lua/redisson/readers.lua")),
    ("--@ redisson/permits.lua", include_str!("lua/redisson/permits.lua")),
    ("--@ redisson/holders.lua", include_str!("lua/redisson/holders.lua")),
    ("--@ redisson/ending.lua", include_str!("lua/redisson/ending.lua")),
];

impl Script {
    fn new(operation: &str) -> Self {
        let text =
            PARTS.iter().fold(operation.to_owned(), |text, (line, part)| text.replace(line, part));
        let hash = sha1_smol::Sha1::from(&text).digest().to_string();
        Self { text, hash, marked: None, spread: None, redisson: None }
    }

    /// The script with which a node of a quorum grants locks.
    fn granting(operation: &str) -> Self {
        Self::marked(QUORUM_ACQUIRE_READ, operation)
    }

    /// Another script with which a node of a quorum votes.
    fn voting(operation: &str) -> Self {
        Self::marked(QUORUM_READ, operation)
    }

    /// A script and its variants. On a node of a quorum, `read` reads the marker together with the locks; a script without a
    /// plain case reads it before.
    fn marked(read: &str, operation: &str) -> Self {
        let marked = match operation.contains(PLAIN_BEGIN) {
            true => operation.replace(PLAIN_BEGIN, &PLAIN_BEGINNING.replace(READ, read)),
            false => format!("{QUORUM}{operation}"),
        };
        let marked = Self::new(&marked);
        let plain = operation.split_once(PLAIN_END).map(|(plain, _)| plain);
        let spread = plain
            .map(|plain| plain.replace(PLAIN_BEGIN, SPREAD_BEGIN) + SPREAD_END)
            .map(|text| Box::new(Self::new(&text)));
        Self { marked: Some(Box::new(marked)), spread, ..Self::new(operation) }
    }

    /// Its plain case, for locks of several slots of a cluster.
    pub(super) fn spread(&'static self) -> Option<&'static Self> {
        self.spread.as_deref()
    }

    /// The script for a server, which may be a node of a quorum, and for the format of its locks.
    pub(super) fn on_server(&'static self, is_node: bool, protocol: Protocol) -> &'static Self {
        let variant = if protocol.is_redisson() { &self.redisson } else { &self.marked };
        variant.as_deref().filter(|_| is_node || protocol.is_redisson()).unwrap_or(self)
    }
}

/// All scripts, loaded when a connection is made.
pub(super) fn all() -> [&'static Script; 6] {
    [&ACQUIRE, &RENEW, &RELEASE, &CANCEL, &INSPECT, &FORCE]
}

/// Those for several slots, loaded when a connection to a node of a cluster is made.
pub(super) fn all_spread() -> impl Iterator<Item = &'static Script> {
    all().into_iter().filter_map(Script::spread)
}
