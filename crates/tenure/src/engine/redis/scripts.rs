//! The scripts: one file per operation, each with its contract as header. `lock.lua`, what a lock
//! is, is put in the place of the line `--@ lock.lua`, behind each operation's plain case, and its parts
//! in the places of their lines: what the plain case does not need is not even defined then.

use std::sync::LazyLock;

/// One script, and the name by which the server knows it.
pub(super) struct Script {
    pub(super) text: String,
    pub(super) hash: String,
}

macro_rules! script {
    ($name:ident, $file:literal) => {
        pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(include_str!(concat!("lua/", $file))));
    };
}

script!(ACQUIRE, "acquire.lua");
script!(RENEW, "renew.lua");
script!(RELEASE, "release.lua");
script!(CANCEL, "cancel.lua");
script!(INSPECT, "inspect.lua");
script!(FORCE, "force.lua");

/// What a lock is, and its parts.
const PARTS: [(&str, &str); 6] = [
    ("--@ straight.lua", include_str!("lua/straight.lua")),
    ("--@ lock.lua", include_str!("lua/lock.lua")),
    ("--@ state.lua", include_str!("lua/state.lua")),
    ("--@ holders.lua", include_str!("lua/holders.lua")),
    ("--@ queue.lua", include_str!("lua/queue.lua")),
    ("--@ common.lua", include_str!("lua/common.lua")),
];

impl Script {
    fn new(operation: &str) -> Self {
        let text =
            PARTS.iter().fold(operation.to_owned(), |text, (line, part)| text.replace(line, part));
        let hash = sha1_smol::Sha1::from(&text).digest().to_string();
        Self { text, hash }
    }
}

/// All of them, to be loaded when a connection is made.
pub(super) fn all() -> [&'static Script; 6] {
    [&ACQUIRE, &RENEW, &RELEASE, &CANCEL, &INSPECT, &FORCE]
}
