//! A look at a server that is, or is to become, a node of a quorum, on a connection of its own.
//!
//! | key | value |
//! |---|---|
//! | `tenure:quorum` | the marker, which every operation checks |
//! | `tenure:quorum:members` | the addresses of all nodes, as they were marked |
//! | `tenure:quorum:absent` | a token, while the server does not vote: its process, and a number of this absence |
//! | `tenure:quorum:clock` | its clock was set: it grants nothing while this key is there |
//! | `tenure:quorum:absent:TOKEN` | at the *other* nodes: since when that absence is known, by their clocks |

use std::time::Duration;

use super::dialogue::Dialogue;
use super::errors;
use super::keys;
use super::quorum_url::NodeAddress;
use super::resp::{Command, Reply};
use super::role;
use super::stream::CONNECT_TIME;
use crate::clock;
use crate::core::moment::Moment;
use crate::core::quorum::Calendar;
use crate::error::StoreError;

const MEMBERS: &str = "tenure:quorum:members";
const ABSENT: &str = "tenure:quorum:absent";
const CLOCK: &str = "tenure:quorum:clock";

/// The memory that an answer may take.
const LARGEST: usize = 256 * 1024;

/// What a server says.
#[derive(Clone, Debug)]
pub(crate) struct Survey {
    pub(crate) marker: Option<String>,
    /// The addresses of all nodes.
    pub(crate) members: Option<String>,
    /// The token of its absence.
    pub(crate) absent: Option<String>,
    /// The run id of its process.
    pub(crate) run_id: String,
    /// The process, and which data it has: another one after the server was a replica.
    pub(crate) process: String,
    /// Whether it may remove keys when its memory is full.
    pub(crate) evicts: bool,
    /// For how long it grants nothing, because some client has noticed that its clock was set.
    pub(crate) clock_set: Duration,
    /// Its clock, and when it was asked for and received by ours.
    pub(crate) now: Moment,
    pub(crate) asked: (Moment, Moment),
    /// How many keys its database has.
    pub(crate) keys: u64,
}

impl Survey {
    pub(crate) fn calendar(&self) -> Calendar {
        Calendar::new(self.asked.0, self.asked.1, self.now)
    }
}

/// What to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mark<'a> {
    /// It has this marker, or none, and so does not vote, or is to have another one instead: this is the token of its absence.
    Absent { marker: Option<&'a str>, instead: Option<&'a str>, token: &'a str },
    /// It has been absent, with this token, for long enough: it votes.
    Again { token: &'a str, marker: &'a str, members: &'a str },
    /// Whatever it has.
    New { marker: &'a str, members: &'a str },
}

impl NodeAddress {
    /// Asks the server. To be awaited on a runtime with I/O and time.
    pub(crate) async fn survey(&self) -> Result<Survey, StoreError> {
        let asking = async {
            let mut dialogue = self.open().await?;
            let get = Command::new("MGET").arg(keys::QUORUM).arg(MEMBERS).arg(ABSENT);
            let Reply::Array(values) = ask(&mut dialogue, &get).await? else {
                return Err(unclear());
            };
            let text = |at: usize| values.get(at).and_then(Reply::text).map(str::to_owned);
            let info = ask(&mut dialogue, &Command::new("INFO")).await?;
            let info = info.text().ok_or_else(unclear)?;
            let run_id = field(info, "run_id").ok_or_else(unclear)?;
            // Zeros, unless this process was a replica: then the history that it had followed.
            let data = field(info, "master_replid2").and_then(|it| it.get(..6)).unwrap_or("");
            let keys = ask(&mut dialogue, &Command::new("DBSIZE")).await?.number();
            // Negative, and so no number, if there is no such key.
            let clock_set = ask(&mut dialogue, &Command::new("PTTL").arg(CLOCK)).await?.number();
            let sent = clock::now();
            let time = ask(&mut dialogue, &Command::new("TIME")).await?;
            Ok(Survey {
                marker: text(0),
                members: text(1),
                absent: text(2),
                run_id: run_id.to_owned(),
                process: format!("{run_id}-{data}"),
                clock_set: Duration::from_millis(clock_set.unwrap_or(0)),
                evicts: field(info, "maxmemory_policy").is_some_and(|it| it != "noeviction"),
                now: read_time(&time).ok_or_else(unclear)?,
                asked: (sent, clock::now()),
                keys: keys.ok_or_else(unclear)?,
            })
        };
        self.in_time(asking).await
    }

    /// Writes, in one step, unless the server is not any more as the survey found it. Returns whether it has.
    pub(crate) async fn mark(&self, mark: Mark<'_>) -> Result<bool, StoreError> {
        let (script, arguments) = match mark {
            Mark::Absent { marker, instead, token } => (
                "if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
                 redis.call('SET', KEYS[3], ARGV[2])
                 if ARGV[3] ~= '' then redis.call('SET', KEYS[1], ARGV[3]) end
                 return 1",
                vec![marker.unwrap_or(""), token, instead.unwrap_or("")],
            ),
            Mark::Again { token, marker, members } => (
                "if redis.call('GET', KEYS[3]) ~= ARGV[1] then return 0 end
                 redis.call('MSET', KEYS[1], ARGV[2], KEYS[2], ARGV[3])
                 redis.call('DEL', KEYS[3])
                 return 1",
                vec![token, marker, members],
            ),
            Mark::New { marker, members } => (
                "redis.call('MSET', KEYS[1], ARGV[1], KEYS[2], ARGV[2])
                 redis.call('DEL', KEYS[3])
                 return 1",
                vec![marker, members],
            ),
        };
        let eval = Command::new("EVAL").arg(script).arg("3").arg(keys::QUORUM).arg(MEMBERS);
        let eval = arguments.into_iter().fold(eval.arg(ABSENT), Command::arg);
        Ok(self.run(&eval).await?.number() == Some(1))
    }

    /// Notes that the clock of this server was set: it grants nothing for so long.
    pub(crate) async fn note_clock_set(&self, time: Duration) -> Result<(), StoreError> {
        let millis = time.as_millis().max(1).to_string();
        let set = Command::new("SET").arg(CLOCK).arg("set").arg("PX").arg(millis);
        self.run(&set).await.map(drop)
    }

    /// For how long this server has known, by its clock, that another one is absent, and its marker. From now on it does
    /// know. It forgets it after `kept`. None if it is the absent one itself.
    pub(crate) async fn witness(
        &self,
        token: &str,
        kept: Duration,
    ) -> Result<Option<(Duration, String)>, StoreError> {
        let script = "if redis.call('GET', KEYS[3]) == ARGV[2] then return {'', ''} end
            local time = redis.call('TIME')
            local now = time[1] * 1000000 + time[2]
            local since = tonumber(redis.call('GET', KEYS[1]) or '')
            if not since or since > now then
              since = now
              redis.call('SET', KEYS[1], string.format('%.0f', now), 'PX', ARGV[1])
            end
            return {string.format('%.0f', now - since), redis.call('GET', KEYS[2]) or ''}";
        let eval = Command::new("EVAL").arg(script).arg("3").arg(format!("{ABSENT}:{token}"));
        let eval = eval.arg(keys::QUORUM).arg(ABSENT).arg(kept.as_millis().to_string()).arg(token);
        let reply = self.run(&eval).await?;
        let [micros, marker] = reply.array().ok_or_else(unclear)? else { return Err(unclear()) };
        let micros = micros.text().and_then(|text| text.parse().ok());
        let marker = marker.text().unwrap_or_default().to_owned();
        Ok(micros.map(|micros| (Duration::from_micros(micros), marker)))
    }

    async fn run(&self, command: &Command) -> Result<Reply, StoreError> {
        let running = async {
            let mut dialogue = self.open().await?;
            ask(&mut dialogue, command).await
        };
        self.in_time(running).await
    }

    async fn open(&self) -> Result<Dialogue, StoreError> {
        let endpoint = self.0.master.locate(&Default::default()).await?;
        let mut dialogue = Dialogue::open(&endpoint, LARGEST).await?;
        for command in self.0.greeting() {
            if let Reply::Error(error) = dialogue.request(&command).await? {
                let what = format!("could not log in to {endpoint}: {error}");
                return Err(errors::of_greeting(what, &error));
            }
        }
        for question in role::questions() {
            if role::is_master(&dialogue.request(&question).await?, &endpoint)? {
                break;
            }
        }
        Ok(dialogue)
    }

    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let slow =
            |_| Err(StoreError::refused(format!("{self} did not answer within {CONNECT_TIME:?}")));
        tokio::time::timeout(CONNECT_TIME, work).await.unwrap_or_else(slow)
    }
}

async fn ask(dialogue: &mut Dialogue, command: &Command) -> Result<Reply, StoreError> {
    match dialogue.request(command).await? {
        Reply::Error(error) => Err(errors::of_server(&error)),
        reply => Ok(reply),
    }
}

fn unclear() -> StoreError {
    StoreError::refused("the server's answer cannot be parsed")
}

pub(super) fn read_time(reply: &Reply) -> Option<Moment> {
    let [seconds, micros] = reply.array()? else { return None };
    let number = |reply: &Reply| reply.text()?.parse::<u64>().ok();
    Some(Moment::from_micros(number(seconds)? * 1_000_000 + number(micros)?))
}

/// A field of the answer to INFO.
pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}
