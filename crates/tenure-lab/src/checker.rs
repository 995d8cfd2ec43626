//! Judges a history: was there one holder at a time, did the waiters get on, was too much sold?
//!
//! A verdict follows from the history alone. The checker knows neither which lock was used nor what is expected of it.

use std::fmt;

use crate::history::{History, Micros, Waiting, What};

/// What a stage asks of a history besides one holder at a time.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// A client that waits for longer than this while no living client believes that it holds the lock is stuck.
    pub stuck_after: Micros,
    /// How many items there are to sell.
    pub stock: Option<usize>,
    /// What is asked of a queue of waiters.
    pub queue: Option<QueueBounds>,
}

/// What is asked of a queue of waiters.
#[derive(Clone, Copy, Debug)]
pub struct QueueBounds {
    /// The mean time between a release and the next grant, at most.
    pub gap: Micros,
    /// The requests that the server reads for each grant, at most.
    pub requests: f64,
}

/// Something that a lock must not do.
#[derive(Clone, Debug, PartialEq)]
pub enum Violation {
    /// Two clients believe at the same time that they hold the lock.
    Overlap {
        /// The clients.
        clients: [String; 2],
        /// Since when.
        from: Micros,
        /// Until when.
        until: Micros,
    },
    /// A client waits although no living client holds the lock.
    Stuck {
        /// The client.
        client: String,
        /// For how long.
        time: Micros,
    },
    /// A client waits for a lock that it holds itself.
    WaitsForItself {
        /// The client.
        client: String,
        /// For how long.
        time: Micros,
    },
    /// More was sold than there was.
    Oversold {
        /// The items that there were.
        stock: usize,
        /// The items that were sold.
        sold: usize,
    },
    /// Clients that asked later got the lock earlier.
    Overtaken {
        /// How often.
        times: usize,
    },
    /// The lock was free for long while clients waited.
    Late {
        /// The mean time between a release and the next grant.
        gap: Micros,
    },
    /// The server read many requests for each grant.
    Costly {
        /// How many.
        requests: f64,
        /// How many clients waited.
        waiters: usize,
    },
}

/// The judgement of one history.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// What went wrong.
    pub violations: Vec<Violation>,
    /// What can be said of it otherwise.
    pub facts: Vec<String>,
}

impl Verdict {
    /// Whether nothing went wrong.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    /// Judges a history. `requests` is how many the server has read for it, where that was counted.
    pub fn of(history: &History, bounds: &Bounds, requests: Option<u64>) -> Self {
        let mut violations = overlaps(history);
        violations.extend(stuck(history, bounds.stuck_after));
        violations.extend(oversold(history, bounds));
        if let Some(queue) = &bounds.queue {
            violations.extend(queued(history, queue, requests));
        }
        Self { violations, facts: facts(history, requests) }
    }
}

/// The times in which two clients believe that they hold the lock.
pub fn overlaps(history: &History) -> Vec<Violation> {
    let holds = history.holds();
    let mut found = Vec::new();
    for (number, one) in holds.iter().enumerate() {
        for other in holds[number + 1..].iter().filter(|other| other.client != one.client) {
            let (from, until) = (one.from.max(other.from), one.until.min(other.until));
            if from < until {
                let clients = [one.client.clone(), other.client.clone()];
                found.push(Violation::Overlap { clients, from, until });
            }
        }
    }
    found
}

/// The clients that wait for too long for a lock that no living client holds, or that they hold themselves.
fn stuck(history: &History, after: Micros) -> Vec<Violation> {
    let holds = history.holds();
    let check = |wait: Waiting| {
        let own = holds.iter().find(|hold| {
            hold.client == wait.client && hold.from <= wait.from && hold.until > wait.from
        });
        if let Some(hold) = own {
            let time = wait.until.min(hold.until) - wait.from;
            let is_stuck = !wait.is_granted && time > after;
            return is_stuck.then_some(Violation::WaitsForItself { client: wait.client, time });
        }
        let held = holds.iter().map(|hold| (hold.from, hold.until)).collect();
        let time = longest_gap(wait.from, wait.until, held);
        (time > after).then_some(Violation::Stuck { client: wait.client, time })
    };
    history.waits().into_iter().filter_map(check).collect()
}

/// The longest time between two moments that no interval covers.
fn longest_gap(from: Micros, until: Micros, mut covered: Vec<(Micros, Micros)>) -> Micros {
    covered.sort_unstable();
    let (mut longest, mut since) = (0, from);
    for (begin, end) in covered {
        if end <= since {
            continue;
        }
        longest = longest.max(begin.min(until).saturating_sub(since));
        since = since.max(end);
    }
    longest.max(until.saturating_sub(since))
}

fn oversold(history: &History, bounds: &Bounds) -> Option<Violation> {
    let sold = sales(history, true);
    let stock = bounds.stock.filter(|stock| sold > *stock)?;
    Some(Violation::Oversold { stock, sold })
}

/// How many sales the data has accepted, or refused.
fn sales(history: &History, is_accepted: bool) -> usize {
    history.events().iter().filter(|event| event.what == What::Sells(is_accepted)).count()
}

fn queued(history: &History, bounds: &QueueBounds, requests: Option<u64>) -> Vec<Violation> {
    let waits: Vec<_> = history.waits().into_iter().filter(|wait| wait.is_granted).collect();
    let mut found = Vec::new();
    let times = overtakings(&waits);
    if times > 0 {
        found.push(Violation::Overtaken { times });
    }
    let gap = mean_gap(history);
    if gap > bounds.gap {
        found.push(Violation::Late { gap });
    }
    let requests = requests.map(|count| count as f64 / waits.len().max(1) as f64);
    if let Some(requests) = requests.filter(|requests| *requests > bounds.requests) {
        found.push(Violation::Costly { requests, waiters: waits.len() });
    }
    found
}

/// How many pairs of waiters got the lock in another order than they asked for it.
fn overtakings(waits: &[Waiting]) -> usize {
    let pairs = waits.iter().flat_map(|one| waits.iter().map(move |other| (one, other)));
    pairs.filter(|(one, other)| one.from < other.from && one.until > other.until).count()
}

/// The mean time between the end of a hold and the next one.
fn mean_gap(history: &History) -> Micros {
    let mut holds = history.holds();
    holds.sort_by_key(|hold| hold.from);
    let gaps: Vec<_> =
        holds.windows(2).map(|pair| pair[1].from.saturating_sub(pair[0].until)).collect();
    gaps.iter().sum::<Micros>() / gaps.len().max(1) as Micros
}

/// What can be said of any history.
fn facts(history: &History, requests: Option<u64>) -> Vec<String> {
    let waits = history.waits();
    let granted: Vec<_> = waits.iter().filter(|wait| wait.is_granted).collect();
    let mut facts = vec![count(granted.len(), "grant")];
    if overlaps(history).is_empty() && granted.len() > 1 {
        facts.push("one holder at a time".to_owned());
    }
    let refused = history.events().iter().filter_map(|event| match &event.what {
        What::Refused(why) => Some(format!("{} was refused the lock: {why}", event.client)),
        _ => None,
    });
    facts.extend(refused);
    let lost = history.events().iter().filter(|event| event.what == What::Loses);
    facts.extend(lost.map(|event| format!("{} learned that it had lost the lock", event.client)));
    let (sold, late) = (sales(history, true), sales(history, false));
    if sold + late > 0 {
        facts.push(format!("{} accepted, {late} refused by the data", count(sold, "sale")));
    }
    if let Some(requests) = requests {
        let each = requests as f64 / granted.len().max(1) as f64;
        facts.push(format!("{each:.1} requests to the server for each grant"));
        facts.push(format!("{} between a release and the next grant", Seconds(mean_gap(history))));
    }
    facts
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// A time, as people read it.
pub(crate) struct Seconds(pub(crate) Micros);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            micros @ ..1_000 => write!(f, "{micros} µs"),
            micros @ ..100_000 => write!(f, "{:.1} ms", micros as f64 / 1e3),
            micros => write!(f, "{:.2} s", micros as f64 / 1e6),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap { clients: [one, other], from, until } => {
                let time = Seconds(until - from);
                write!(f, "{one} and {other} both believed for {time} that they held the lock")
            }
            Self::Stuck { client, time } => {
                let time = Seconds(*time);
                write!(f, "{client} waited for {time} although no living client held the lock")
            }
            Self::WaitsForItself { client, time } => {
                write!(f, "{client} waited for {} for a lock that it held itself", Seconds(*time))
            }
            Self::Oversold { stock, sold } => write!(f, "{sold} sold of {stock}"),
            Self::Overtaken { times } => {
                let times = count(*times, "time");
                write!(f, "{times}, a client that asked later got the lock earlier")
            }
            Self::Late { gap } => {
                let gap = Seconds(*gap);
                write!(
                    f,
                    "the lock was free for {gap} after a release, on average, while others waited"
                )
            }
            Self::Costly { requests, waiters } => {
                write!(
                    f,
                    "the server read {requests:.1} requests for each grant to {waiters} waiters"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::written;

    const BOUNDS: Bounds = Bounds { stuck_after: 100, stock: None, queue: None };

    fn violations(history: &str) -> Vec<Violation> {
        Verdict::of(&written(history), &BOUNDS, None).violations
    }

    #[test]
    fn two_holders_at_once_are_found_with_their_time() {
        let found =
            violations("0 A asks\n1 A holds\n2 B asks\n50 B holds\n80 A releases\n90 B releases");
        let clients = ["A".to_owned(), "B".to_owned()];
        assert_eq!(found, [Violation::Overlap { clients, from: 50, until: 80 }]);
        assert_eq!(violations("1 A holds\n50 A releases\n50 B holds\n90 B releases"), []);
    }

    #[test]
    fn a_stopped_client_that_knows_its_time_does_not_overlap() {
        let history = "1 A holds\n1 A until 40\n5 A stopped\n50 B holds\n80 A continued\n81 A loses\n90 B releases";
        assert_eq!(violations(history), []);
        let believing = history.replace("1 A until 40\n", "").replace("81 A loses\n", "");
        assert_eq!(violations(&believing).len(), 1);
    }

    #[test]
    fn a_waiter_is_stuck_when_no_living_client_holds() {
        let dead = "1 A holds\n2 B asks\n50 A killed\n300 - fault end";
        let stuck = Violation::Stuck { client: "B".into(), time: 250 };
        assert_eq!(violations(dead), [stuck]);
        assert_eq!(violations("1 A holds\n2 B asks\n50 A killed\n140 B holds\n300 B releases"), []);
        assert_eq!(violations("1 A holds\n2 B asks\n300 A releases\n301 B holds"), []);
    }

    #[test]
    fn a_client_that_waits_for_itself_is_found() {
        let found = violations("1 A holds\n2 A asks\n300 - fault end");
        assert_eq!(found, [Violation::WaitsForItself { client: "A".into(), time: 298 }]);
        assert_eq!(
            violations("1 A holds\n2 A asks\n3 A holds\n300 A releases\n301 A releases"),
            []
        );
    }

    #[test]
    fn more_sales_than_items_are_found() {
        let bounds = Bounds { stock: Some(1), ..BOUNDS };
        let judge = |history: &str| Verdict::of(&written(history), &bounds, None).violations;
        assert_eq!(judge("1 A sells true\n2 B sells false"), []);
        let oversold = Violation::Oversold { stock: 1, sold: 2 };
        assert_eq!(judge("1 A sells true\n2 B sells true"), [oversold]);
    }

    #[test]
    fn a_queue_is_judged_by_its_order_its_gaps_and_its_cost() {
        let queue = QueueBounds { gap: 10, requests: 3.0 };
        let bounds = Bounds { queue: Some(queue), ..BOUNDS };
        let judge = |history: &str, requests| {
            Verdict::of(&written(history), &bounds, Some(requests)).violations
        };
        let good = "0 A asks\n0 A holds\n1 B asks\n2 C asks\n9 A releases\n10 B holds\n15 B releases\n17 C holds\n20 C releases";
        assert_eq!(judge(good, 9), []);
        let costly = Violation::Costly { requests: 10.0, waiters: 3 };
        assert_eq!(judge(good, 30), [costly]);
        let swapped = good.replace(
            "10 B holds\n15 B releases\n17 C holds\n20 C",
            "10 C holds\n15 C releases\n17 B holds\n20 B",
        );
        assert_eq!(judge(&swapped, 9), [Violation::Overtaken { times: 1 }]);
        let late = good.replace("17 C holds\n20 C", "60 C holds\n70 C");
        assert_eq!(judge(&late, 9), [Violation::Late { gap: 23 }]);
    }

    #[test]
    fn gaps_are_measured_within_the_wait_alone() {
        assert_eq!(longest_gap(10, 20, vec![]), 10);
        assert_eq!(longest_gap(10, 20, vec![(0, 12), (15, 30)]), 3);
        assert_eq!(longest_gap(10, 20, vec![(14, 16), (0, 11)]), 4);
        assert_eq!(longest_gap(10, 20, vec![(25, 30)]), 10);
        assert_eq!(longest_gap(10, 20, vec![(0, 40), (2, 5)]), 0);
    }

    #[test]
    fn the_facts_say_who_was_refused_and_what_was_sold() {
        let history = written(
            "1 A asks\n2 A refused too few replicas\n3 B asks\n4 B holds\n5 B sells true\n6 A sells false",
        );
        let facts = Verdict::of(&history, &BOUNDS, None).facts.join("; ");
        assert_eq!(
            facts,
            "1 grant; A was refused the lock: too few replicas; 1 sale accepted, 1 refused by the data"
        );
    }
}
