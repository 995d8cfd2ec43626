//! What is reported of a run.

use std::collections::BTreeMap;

/// Which value is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    Less,
    More,
}

/// One number of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Metric {
    pub(crate) key: &'static str,
    pub(crate) title: &'static str,
    pub(crate) better: Better,
}

/// The numbers of a run, by the keys of their metrics.
pub(crate) type Values = BTreeMap<&'static str, f64>;

const fn less(key: &'static str, title: &'static str) -> Metric {
    Metric { key, title, better: Better::Less }
}

const fn more(key: &'static str, title: &'static str) -> Metric {
    Metric { key, title, better: Better::More }
}

pub(crate) const RATE: Metric = more("rate", "per second");
pub(crate) const PAIR: Metric = less("pair_us", "pair, µs");
pub(crate) const OVER_PINGS: Metric = less("pair_over_pings", "over 2 PINGs");
pub(crate) const WAIT_P50: Metric = less("wait_p50_ms", "wait p50, ms");
pub(crate) const WAIT_P99: Metric = less("wait_p99_ms", "p99, ms");
pub(crate) const WAIT_WORST: Metric = less("wait_worst_ms", "worst, ms");
pub(crate) const SHARE: Metric = more("share", "least/most served");
pub(crate) const HELD: Metric = more("held_percent", "held, % of time");
pub(crate) const HAND_OVER: Metric = less("hand_over_us", "hand-over, µs");
pub(crate) const HAND_OVER_PINGS: Metric = less("hand_over_over_ping", "over a PING");
pub(crate) const COMMANDS: Metric = less("commands", "commands");
pub(crate) const SCRIPTS: Metric = less("scripts", "of these scripts");
pub(crate) const BYTES_IN: Metric = less("bytes_in", "bytes to server");
pub(crate) const BYTES_OUT: Metric = less("bytes_out", "bytes from server");
pub(crate) const SERVER_CPU: Metric = less("server_us", "server CPU, µs");
pub(crate) const KEYS: Metric = less("keys", "keys left at once");
pub(crate) const KEYS_LATER: Metric = less("keys_later", "keys after 65 s");
pub(crate) const BYTES_LEFT: Metric = less("bytes_left", "bytes left at once");
pub(crate) const BYTES_LATER: Metric = less("bytes_later", "bytes after 65 s");

impl Metric {
    /// Whether a ratio of two values means that the first is the better one.
    pub(crate) fn is_ahead(&self, ratio: f64) -> bool {
        match self.better {
            Better::Less => ratio < 1.0,
            Better::More => ratio > 1.0,
        }
    }
}
