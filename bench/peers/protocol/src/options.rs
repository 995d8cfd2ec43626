//! The options of a program.

use std::cell::Cell;
use std::time::Duration;

/// Which names the callers lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Each one of its own.
    Pairs,
    /// All the same.
    Shared,
    /// Many, each once.
    Names,
    /// None: what a store needs before the first client.
    Prepare,
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// The servers: one, or those of a quorum.
    pub urls: Vec<String>,
    pub work: Work,
    pub callers: usize,
    pub seconds: f64,
    pub warm_seconds: f64,
    /// How long a lock is held.
    pub section: Duration,
    /// How long a caller pauses after a release.
    pub pause: Duration,
    /// The prefix of all names.
    pub prefix: String,
    /// How many names `names` uses.
    pub count: u64,
    /// The pause of a client that polls.
    pub poll: Duration,
}

impl Options {
    /// Reads the arguments of this process.
    ///
    /// # Panics
    /// If they are wrong.
    pub fn parse() -> Self {
        Self::of(std::env::args().skip(1))
    }

    fn of(mut arguments: impl Iterator<Item = String>) -> Self {
        let mut options = Self {
            urls: Vec::new(),
            work: Work::Pairs,
            callers: 1,
            seconds: 1.0,
            warm_seconds: 0.2,
            section: Duration::ZERO,
            pause: Duration::ZERO,
            prefix: "peers".into(),
            count: 1_000,
            poll: Duration::from_micros(500),
        };
        while let Some(option) = arguments.next() {
            let value = arguments.next().unwrap_or_else(|| panic!("{option} needs a value"));
            let number = || value.parse::<f64>().unwrap_or_else(|_| panic!("{option} {value}"));
            match option.as_str() {
                "--url" => options.urls = value.split(',').map(str::to_owned).collect(),
                "--work" => options.work = work(&value),
                "--callers" => options.callers = number() as usize,
                "--seconds" => options.seconds = number(),
                "--warm-seconds" => options.warm_seconds = number(),
                "--section-ms" => options.section = Duration::from_secs_f64(number() / 1e3),
                "--pause-ms" => options.pause = Duration::from_secs_f64(number() / 1e3),
                "--name" => options.prefix = value,
                "--count" => options.count = number() as u64,
                "--poll-us" => options.poll = Duration::from_secs_f64(number() / 1e6),
                _ => panic!("unknown option {option}"),
            }
        }
        assert!(!options.urls.is_empty(), "--url is missing");
        options
    }

    /// The same callers on names of their own, for a short time.
    pub(crate) fn warming(&self) -> Self {
        Self {
            work: Work::Pairs,
            seconds: self.warm_seconds,
            section: Duration::ZERO,
            pause: Duration::ZERO,
            prefix: format!("{}/warm/{}", self.prefix, std::process::id()),
            ..self.clone()
        }
    }

    pub(crate) fn nanos(&self) -> u64 {
        (self.seconds * 1e9) as u64
    }

    /// The name that the caller locks next; none if it is done.
    pub fn name(&self, caller: usize, next: &Cell<u64>, is_late: bool) -> Option<String> {
        let prefix = &self.prefix;
        match self.work {
            Work::Pairs => (!is_late).then(|| format!("{prefix}/{caller}")),
            Work::Shared => (!is_late).then(|| prefix.clone()),
            Work::Names => {
                let number = next.replace(next.get() + 1);
                (number < self.count).then(|| format!("{prefix}/{number}"))
            }
            Work::Prepare => None,
        }
    }
}

fn work(name: &str) -> Work {
    match name {
        "pairs" => Work::Pairs,
        "shared" => Work::Shared,
        "names" => Work::Names,
        "prepare" => Work::Prepare,
        _ => panic!("unknown work {name}"),
    }
}
