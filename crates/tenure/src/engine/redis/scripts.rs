//! The scripts: one file per operation, each with its contract as header.
//!
//! A line `--@ part.lua` is replaced by the text of that part. The full rules, `lock.lua` and its parts, are included
//! after each operation's plain case and fast path, so that a call which needs none of them does not define them
//! either.

use std::sync::LazyLock;

/// One script, and the hash by which the server knows it.
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

/// The texts to include. A part comes before those that it includes itself.
const PARTS: [(&str, &str); 9] = [
    ("--@ plain_begin.lua", include_str!("lua/plain_begin.lua")),
    ("--@ plain_result.lua", include_str!("lua/plain_result.lua")),
    ("--@ plain_end.lua", include_str!("lua/plain_end.lua")),
    ("--@ fast_path.lua", include_str!("lua/fast_path.lua")),
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

/// All scripts, loaded when a connection is made.
pub(super) fn all() -> [&'static Script; 6] {
    [&ACQUIRE, &RENEW, &RELEASE, &CANCEL, &INSPECT, &FORCE]
}
