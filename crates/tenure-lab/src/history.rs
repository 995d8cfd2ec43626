//! What happened in an experiment, in order: what the clients did and believed, and which faults were injected.

use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};

/// Microseconds since the experiment began.
pub type Micros = u64;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it happened.
    pub at: Micros,
    /// The client that it happened to; empty for the servers.
    pub client: String,
    /// What happened.
    pub what: What,
}

/// What a client does, believes or suffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It is ready for orders.
    Ready,
    /// It asks for the lock, and waits.
    Asks,
    /// It believes from now on that it holds the lock.
    Holds,
    /// It believes that until then only, unless it learns that it has more time.
    Until(Micros),
    /// It gives the lock back, and believes no more that it holds it.
    Releases,
    /// It has learned that it does not hold the lock any more.
    Loses,
    /// The lock was refused, and why.
    Refused(String),
    /// It has done one step of an operation that takes several.
    Step(String),
    /// It has read how many items are left.
    Reads(i64),
    /// It has sold an item, which the data has accepted or refused.
    Sells(bool),
    /// It was stopped (SIGSTOP).
    Stopped,
    /// It goes on (SIGCONT).
    Continued,
    /// It was killed (SIGKILL).
    Killed,
    /// Something was done to the servers.
    Fault(String),
}

impl fmt::Display for What {
    /// One line, which [`What::from_str`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Asks => f.write_str("asks"),
            Self::Holds => f.write_str("holds"),
            Self::Until(at) => write!(f, "until {at}"),
            Self::Releases => f.write_str("releases"),
            Self::Loses => f.write_str("loses"),
            Self::Refused(why) => write!(f, "refused {}", line(why)),
            Self::Step(what) => write!(f, "step {}", line(what)),
            Self::Reads(count) => write!(f, "reads {count}"),
            Self::Sells(is_accepted) => write!(f, "sells {is_accepted}"),
            Self::Stopped => f.write_str("stopped"),
            Self::Continued => f.write_str("continued"),
            Self::Killed => f.write_str("killed"),
            Self::Fault(what) => write!(f, "fault {}", line(what)),
        }
    }
}

fn line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

impl FromStr for What {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let wrong = || format!("`{text}` is no event");
        Ok(match word {
            "ready" => Self::Ready,
            "asks" => Self::Asks,
            "holds" => Self::Holds,
            "until" => Self::Until(rest.parse().map_err(|_| wrong())?),
            "releases" => Self::Releases,
            "loses" => Self::Loses,
            "refused" => Self::Refused(rest.to_owned()),
            "step" => Self::Step(rest.to_owned()),
            "reads" => Self::Reads(rest.parse().map_err(|_| wrong())?),
            "sells" => Self::Sells(rest.parse().map_err(|_| wrong())?),
            "stopped" => Self::Stopped,
            "continued" => Self::Continued,
            "killed" => Self::Killed,
            "fault" => Self::Fault(rest.to_owned()),
            _ => return Err(wrong()),
        })
    }
}

impl Event {
    /// For programs.
    pub(crate) fn json(&self) -> Value {
        json!({ "at_us": self.at, "client": self.client, "what": self.what.to_string() })
    }
}

/// A time in which a client believes that it holds the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The client.
    pub client: String,
    /// When it began.
    pub from: Micros,
    /// When it ended.
    pub until: Micros,
}

/// A time in which a client waits for the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The client.
    pub client: String,
    /// When it asked.
    pub from: Micros,
    /// When it was granted or refused the lock, or was killed; the end of the history otherwise.
    pub until: Micros,
    /// Whether it got the lock.
    pub is_granted: bool,
}

/// All events of one experiment, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History(Vec<Event>);

impl FromIterator<Event> for History {
    /// In the order of their times: the clients' lines arrive in another one.
    fn from_iter<T: IntoIterator<Item = Event>>(events: T) -> Self {
        let mut events: Vec<_> = events.into_iter().collect();
        events.sort_by_key(|event| event.at);
        Self(events)
    }
}

impl History {
    /// The events, in order.
    pub fn events(&self) -> &[Event] {
        &self.0
    }

    /// When the last event happened.
    pub fn end(&self) -> Micros {
        self.0.last().map_or(0, |event| event.at)
    }

    /// The clients, in the order in which they appear.
    pub fn clients(&self) -> Vec<&str> {
        let mut clients = Vec::new();
        for event in self.0.iter().filter(|event| !event.client.is_empty()) {
            if !clients.contains(&event.client.as_str()) {
                clients.push(event.client.as_str());
            }
        }
        clients
    }

    /// The events of one client.
    pub fn of<'a>(&'a self, client: &'a str) -> impl Iterator<Item = &'a Event> {
        self.0.iter().filter(move |event| event.client == client)
    }

    /// When each client believes that it holds the lock.
    pub fn holds(&self) -> Vec<Hold> {
        self.clients().into_iter().flat_map(|client| self.holds_of(client)).collect()
    }

    /// When a client believes that it holds the lock: from its grant until it gives the lock back, learns of its loss, is
    /// killed, or the time is over until which it knows that it holds it. A client that knows no such time, as the
    /// historic locks do not, goes on believing.
    fn holds_of(&self, client: &str) -> Vec<Hold> {
        let (mut holds, mut open) = (Vec::new(), None::<Open>);
        for Event { at, what, .. } in self.of(client) {
            // A belief that has ended by itself before this event.
            if let Some(ended) = open.take_if(|open| open.until.is_some_and(|until| until < *at)) {
                holds.push(ended.close(client, *at));
            }
            match what {
                What::Holds => match &mut open {
                    Some(open) => open.entries += 1,
                    None => open = Some(Open { from: *at, until: None, entries: 1 }),
                },
                What::Until(until) => open.iter_mut().for_each(|open| open.until = Some(*until)),
                What::Releases => {
                    if let Some(open) = &mut open {
                        open.entries -= 1;
                    }
                    holds.extend(
                        open.take_if(|open| open.entries == 0).map(|it| it.close(client, *at)),
                    );
                }
                What::Loses | What::Killed => {
                    holds.extend(open.take().map(|open| open.close(client, *at)));
                }
                _ => {}
            }
        }
        holds.extend(open.map(|open| open.close(client, self.end())));
        holds
    }

    /// When each client waits for the lock.
    pub fn waits(&self) -> Vec<Waiting> {
        self.clients().into_iter().flat_map(|client| self.waits_of(client)).collect()
    }

    fn waits_of(&self, client: &str) -> Vec<Waiting> {
        let (mut waits, mut since) = (Vec::new(), None);
        for Event { at, what, .. } in self.of(client) {
            match what {
                What::Asks => since = Some(*at),
                What::Holds | What::Refused(_) | What::Killed => {
                    let is_granted = *what == What::Holds;
                    waits.extend(since.take().map(|from| waiting(client, from, *at, is_granted)));
                }
                _ => {}
            }
        }
        waits.extend(since.map(|from| waiting(client, from, self.end(), false)));
        waits
    }
}

/// A belief that has not ended yet.
struct Open {
    from: Micros,
    until: Option<Micros>,
    entries: u32,
}

impl Open {
    fn close(self, client: &str, at: Micros) -> Hold {
        let until = self.until.map_or(at, |until| until.min(at)).max(self.from);
        Hold { client: client.to_owned(), from: self.from, until }
    }
}

fn waiting(client: &str, from: Micros, until: Micros, is_granted: bool) -> Waiting {
    Waiting { client: client.to_owned(), from, until, is_granted }
}

/// A history written by hand, for tests: lines of a time, a client and an event.
#[cfg(test)]
pub(crate) fn written(text: &str) -> History {
    let event = |line: &str| {
        let mut words = line.trim().splitn(3, ' ');
        let mut word = || words.next().unwrap_or_default().to_owned();
        let (at, client, what) = (word().parse().unwrap(), word(), word().parse().unwrap());
        let client = if client == "-" { String::new() } else { client };
        Event { at, client, what }
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(event).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(client: &str, from: Micros, until: Micros) -> Hold {
        Hold { client: client.into(), from, until }
    }

    #[test]
    fn every_event_is_read_as_it_was_written() {
        let all = [
            What::Ready,
            What::Asks,
            What::Holds,
            What::Until(7),
            What::Releases,
            What::Loses,
            What::Refused("too few replicas".into()),
            What::Step("GET".into()),
            What::Reads(-1),
            What::Sells(true),
            What::Stopped,
            What::Continued,
            What::Killed,
            What::Fault("the master is killed".into()),
        ];
        for what in all {
            assert_eq!(what.to_string().parse(), Ok(what));
        }
        assert_eq!(What::Step("a\nb".into()).to_string(), "step a b");
        for wrong in ["", "until", "until x", "sells maybe", "dances"] {
            assert!(wrong.parse::<What>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_historic_client_believes_until_it_releases_or_dies() {
        let history = written(
            "1 A holds\n5 A stopped\n9 A continued\n12 A releases\n13 B holds\n15 B killed\n20 C asks",
        );
        assert_eq!(history.holds(), [hold("A", 1, 12), hold("B", 13, 15)]);
        let open = written("1 A holds\n30 B asks");
        assert_eq!(open.holds(), [hold("A", 1, 30)]);
    }

    #[test]
    fn a_client_that_knows_its_time_believes_no_longer() {
        let stopped = written(
            "1 A holds\n1 A until 10\n4 A until 14\n5 A stopped\n40 A continued\n41 A loses",
        );
        assert_eq!(stopped.holds(), [hold("A", 1, 14)]);
        let notified = written("1 A holds\n1 A until 10\n6 A loses");
        assert_eq!(notified.holds(), [hold("A", 1, 6)]);
    }

    #[test]
    fn the_last_of_several_entries_ends_the_hold() {
        let history = written("1 A holds\n2 A holds\n3 A releases\n7 A releases\n9 A asks");
        assert_eq!(history.holds(), [hold("A", 1, 7)]);
    }

    #[test]
    fn waiting_ends_with_the_lock_or_without_it() {
        let history =
            written("1 A asks\n3 A holds\n4 B asks\n6 B refused no\n7 C asks\n9 - fault x");
        let waits: Vec<_> = history
            .waits()
            .into_iter()
            .map(|it| (it.client, it.from, it.until, it.is_granted))
            .collect();
        let expected = [("A", 1, 3, true), ("B", 4, 6, false), ("C", 7, 9, false)];
        assert_eq!(
            waits,
            expected.map(|(client, from, until, is)| (client.to_owned(), from, until, is))
        );
    }
}
