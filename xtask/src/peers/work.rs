//! The works that are measured, in order of importance.

use super::metric::{self, Metric};

/// Where the servers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Near,
    /// A round trip of a millisecond away.
    Far,
    /// Five of them, of which a majority grants a lock.
    Five,
}

/// Something that all peers do.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// The programs' own name for it: which names the callers lock.
    pub(crate) of_program: &'static str,
    pub(crate) place: Place,
    pub(crate) processes: usize,
    pub(crate) callers: usize,
    pub(crate) section_ms: f64,
    pub(crate) pause_ms: f64,
    /// The pause of clients that poll, unless the caller names another. Short ones overload the client that has 64 of them.
    pub(crate) poll_us: f64,
    /// The first one is the one that charts show.
    pub(crate) metrics: &'static [Metric],
}

const PAIRS: &[Metric] = &[
    metric::PAIR,
    metric::OVER_PINGS,
    metric::COMMANDS,
    metric::SCRIPTS,
    metric::BYTES_IN,
    metric::BYTES_OUT,
    metric::SERVER_CPU,
];
const RATES: &[Metric] = &[
    metric::RATE,
    metric::PAIR,
    metric::COMMANDS,
    metric::BYTES_IN,
    metric::BYTES_OUT,
    metric::SERVER_CPU,
];
const CONTENDED: &[Metric] = &[
    metric::RATE,
    metric::WAIT_P50,
    metric::WAIT_P99,
    metric::WAIT_WORST,
    metric::SHARE,
    metric::COMMANDS,
    metric::SCRIPTS,
    metric::BYTES_IN,
    metric::BYTES_OUT,
    metric::SERVER_CPU,
];
const SECTIONS: &[Metric] = &[
    metric::RATE,
    metric::HELD,
    metric::WAIT_P50,
    metric::WAIT_P99,
    metric::WAIT_WORST,
    metric::SHARE,
    metric::COMMANDS,
    metric::SCRIPTS,
    metric::BYTES_IN,
    metric::BYTES_OUT,
    metric::SERVER_CPU,
];
const ONE_PROCESS: &[Metric] = &[
    metric::RATE,
    metric::WAIT_P50,
    metric::WAIT_P99,
    metric::WAIT_WORST,
    metric::COMMANDS,
    metric::BYTES_IN,
    metric::SERVER_CPU,
];
const FAR: &[Metric] = &[metric::PAIR, metric::OVER_PINGS, metric::RATE];
const FAR_RATE: &[Metric] = &[metric::RATE, metric::PAIR, metric::OVER_PINGS];
const HAND_OVER: &[Metric] = &[metric::HAND_OVER, metric::HAND_OVER_PINGS];
const LEFT: &[Metric] =
    &[metric::KEYS, metric::BYTES_LEFT, metric::KEYS_LATER, metric::BYTES_LATER, metric::RATE];

const PLAIN: Work = Work {
    name: "",
    what: "",
    of_program: "pairs",
    place: Place::Near,
    processes: 1,
    callers: 1,
    section_ms: 0.0,
    pause_ms: 0.0,
    poll_us: 500.0,
    metrics: PAIRS,
};

const SHARED: Work = Work { of_program: "shared", metrics: CONTENDED, ..PLAIN };

pub(crate) const ALL: &[Work] = &[
    Work { name: "pair", what: "uncontended acquire and release by one caller", ..PLAIN },
    Work {
        name: "callers_64",
        what: "pairs by 64 callers on names of their own",
        callers: 64,
        metrics: RATES,
        ..PLAIN
    },
    Work {
        name: "callers_512",
        what: "pairs by 512 callers on names of their own",
        callers: 512,
        metrics: RATES,
        ..PLAIN
    },
    Work {
        name: "one_process",
        what: "sections of 64 callers of one process on one name",
        callers: 64,
        poll_us: 20_000.0,
        metrics: ONE_PROCESS,
        ..SHARED
    },
    Work {
        name: "processes_2_empty",
        what: "empty sections of 2 processes on one name",
        processes: 2,
        ..SHARED
    },
    Work {
        name: "processes_8_empty",
        what: "empty sections of 8 processes on one name",
        processes: 8,
        ..SHARED
    },
    Work {
        name: "processes_2",
        what: "sections of 2 ms of 2 processes on one name",
        processes: 2,
        section_ms: 2.0,
        metrics: SECTIONS,
        ..SHARED
    },
    Work {
        name: "processes_8",
        what: "sections of 2 ms of 8 processes on one name",
        processes: 8,
        section_ms: 2.0,
        metrics: SECTIONS,
        ..SHARED
    },
    Work {
        name: "far_pair",
        what: "a pair by one caller, a round trip of 1 ms away",
        place: Place::Far,
        metrics: FAR,
        ..PLAIN
    },
    Work {
        name: "far_callers_64",
        what: "pairs by 64 callers on names of their own, a round trip of 1 ms away",
        place: Place::Far,
        callers: 64,
        metrics: FAR_RATE,
        ..PLAIN
    },
    // The one that releases pauses, so that it does not get the lock again before the one that waits has a chance.
    Work {
        name: "hand_over",
        what: "from one process's release to holding by another that waits",
        processes: 2,
        section_ms: 3.0,
        pause_ms: 2.0,
        metrics: HAND_OVER,
        ..SHARED
    },
    Work {
        name: "names",
        what: "what is left in the server of names that were locked once",
        of_program: "names",
        callers: 64,
        metrics: LEFT,
        ..PLAIN
    },
    Work {
        name: "five_pair",
        what: "a pair by one caller on a majority of five servers",
        place: Place::Five,
        ..PLAIN
    },
    Work {
        name: "five_callers_64",
        what: "pairs by 64 callers on names of their own on a majority of five servers",
        place: Place::Five,
        callers: 64,
        metrics: RATES,
        ..PLAIN
    },
];

impl Work {
    /// Whether all callers lock one name.
    pub(crate) fn is_shared(&self) -> bool {
        self.of_program == "shared"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_all_have_metrics() {
        let names: std::collections::HashSet<_> = ALL.iter().map(|work| work.name).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(ALL.iter().all(|work| !work.metrics.is_empty() && !work.what.is_empty()));
    }
}
