//! A history as a picture: a row for each client, with the times in which it waits, believes that it holds the lock, or is
//! stopped.

use crate::checker::{Violation, overlaps};
use crate::history::{Event, History, Micros, What};

/// What a client does for some time. Of several at once the last one here is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    Waits,
    Stopped,
    /// It believes that it holds the lock.
    Holds,
    /// The same, and it is stopped.
    HoldsStopped,
    /// It believes so while another client does.
    Overlaps,
}

/// A time of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Micros,
    pub(crate) until: Micros,
    pub(crate) state: State,
}

/// The row of one client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) client: String,
    /// In the order of their states: later ones are drawn above earlier ones.
    pub(crate) spans: Vec<Span>,
    /// When it was killed.
    pub(crate) killed: Option<Micros>,
    /// When it learned that it had lost the lock, and when a sale of it was refused.
    pub(crate) notified: Vec<Micros>,
}

/// The rows of a history, from its first question to its end.
#[derive(Debug)]
pub(crate) struct Timeline {
    pub(crate) begin: Micros,
    pub(crate) end: Micros,
    pub(crate) rows: Vec<Row>,
}

impl Timeline {
    pub(crate) fn of(history: &History) -> Self {
        let asked = history.events().iter().find(|event| event.what == What::Asks);
        let begin = asked.map_or(0, |event| event.at);
        let rows = history.clients().into_iter().map(|client| row(history, client)).collect();
        Self { begin, end: history.end().max(begin + 1), rows }
    }

    /// The timelines of several histories, to one scale.
    pub(crate) fn of_all<const N: usize>(histories: [&History; N]) -> [Self; N] {
        let timelines = histories.map(Self::of);
        let length = timelines.iter().map(Self::length).max().unwrap_or(1);
        timelines.map(|it| Self { end: it.begin + length, ..it })
    }

    /// How long it lasts.
    pub(crate) fn length(&self) -> Micros {
        self.end - self.begin
    }
}

fn row(history: &History, client: &str) -> Row {
    let mut spans = Vec::new();
    let mut add = |from, until, state| spans.push(Span { from, until, state });
    for wait in history.waits().iter().filter(|it| it.client == client) {
        add(wait.from, wait.until, State::Waits);
    }
    let stops = stops(history, client);
    stops.iter().for_each(|(from, until)| add(*from, *until, State::Stopped));
    for hold in history.holds().iter().filter(|it| it.client == client) {
        add(hold.from, hold.until, State::Holds);
        for (from, until) in &stops {
            let (from, until) = (hold.from.max(*from), hold.until.min(*until));
            if from < until {
                add(from, until, State::HoldsStopped);
            }
        }
    }
    for violation in overlaps(history) {
        if let Violation::Overlap { clients, from, until } = violation
            && clients.iter().any(|it| it == client)
        {
            add(from, until, State::Overlaps);
        }
    }
    spans.sort_by_key(|span| span.state);
    let at = |is_it: fn(&What) -> bool| {
        history.of(client).filter(move |it| is_it(&it.what)).map(|it| it.at)
    };
    let notified = at(|what| matches!(what, What::Loses | What::Sells(false) | What::Refused(_)));
    let killed = at(|what| *what == What::Killed).next();
    Row { client: client.to_owned(), spans, killed, notified: notified.collect() }
}

/// The times in which a client is stopped.
fn stops(history: &History, client: &str) -> Vec<(Micros, Micros)> {
    let (mut stops, mut since) = (Vec::new(), None);
    for Event { at, what, .. } in history.of(client) {
        match what {
            What::Stopped => since = Some(*at),
            What::Continued | What::Killed => stops.extend(since.take().map(|from| (from, *at))),
            _ => {}
        }
    }
    stops.extend(since.map(|from| (from, history.end())));
    stops
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::written;

    #[test]
    fn a_row_shows_what_a_client_does_and_believes() {
        let history = written(
            "2 A asks\n5 A holds\n6 B asks\n8 A stopped\n10 B holds\n14 A continued\n16 A releases\n20 B killed",
        );
        let timeline = Timeline::of(&history);
        assert_eq!((timeline.begin, timeline.end, timeline.length()), (2, 20, 18));
        let span = |from, until, state| Span { from, until, state };
        let a = [
            span(2, 5, State::Waits),
            span(8, 14, State::Stopped),
            span(5, 16, State::Holds),
            span(8, 14, State::HoldsStopped),
            span(10, 16, State::Overlaps),
        ];
        assert_eq!(timeline.rows[0].spans, a);
        assert_eq!(timeline.rows[1].killed, Some(20));
    }
}
