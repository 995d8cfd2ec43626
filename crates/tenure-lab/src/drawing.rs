//! A timeline in a terminal.

use crate::checker::Seconds;
use crate::timeline::{Row, State, Timeline};

/// What the signs mean.
pub const LEGEND: &str = "· waits   █ believes that it holds the lock   ▓ the same, stopped   ░ stopped   ! learns that it has no lock   ✗ killed";

/// Draws the rows, `columns` wide. Where two clients hold the lock at once it is red, or `#` without colours.
pub(crate) fn draw(timeline: &Timeline, columns: usize, has_colours: bool) -> String {
    let names = timeline.rows.iter().map(|row| row.client.chars().count()).max().unwrap_or(0);
    let width = columns.saturating_sub(names + 4).max(20);
    let mut text = String::new();
    for row in &timeline.rows {
        let cells = cells(timeline, row, width);
        text += &format!("  {:<names$} {}\n", row.client, paint(&cells, has_colours));
    }
    let length = Seconds(timeline.length()).to_string();
    text + &format!("  {:<names$} 0{length:>rest$}\n", "", rest = width - 1)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cell {
    Nothing,
    Does(State),
    Notified,
    Killed,
}

fn cells(timeline: &Timeline, row: &Row, width: usize) -> Vec<Cell> {
    let column = |at: u64| {
        let at = at.saturating_sub(timeline.begin).min(timeline.length());
        usize::try_from(at * width as u64 / timeline.length()).unwrap_or(0).min(width - 1)
    };
    let mut cells = vec![Cell::Nothing; width];
    for span in &row.spans {
        // A short time is one column wide, so that it is seen.
        let (from, until) = (column(span.from), column(span.until.saturating_sub(1)));
        cells[from..=until.max(from)].fill(Cell::Does(span.state));
    }
    row.notified.iter().for_each(|at| cells[column(*at)] = Cell::Notified);
    row.killed.iter().for_each(|at| cells[column(*at)] = Cell::Killed);
    cells
}

fn paint(cells: &[Cell], has_colours: bool) -> String {
    let mut text = String::new();
    for run in cells.chunk_by(PartialEq::eq) {
        let (sign, colour) = match run[0] {
            Cell::Nothing => (' ', None),
            Cell::Does(State::Waits) => ('·', Some("2")),
            Cell::Does(State::Stopped) => ('░', Some("2")),
            Cell::Does(State::Holds) => ('█', Some("32")),
            Cell::Does(State::HoldsStopped) => ('▓', Some("33")),
            Cell::Does(State::Overlaps) if has_colours => ('█', Some("1;31")),
            Cell::Does(State::Overlaps) => ('#', None),
            Cell::Notified => ('!', Some("1;33")),
            Cell::Killed => ('✗', Some("1")),
        };
        let signs: String = run.iter().map(|_| sign).collect();
        match colour.filter(|_| has_colours) {
            Some(colour) => text += &format!("\x1b[{colour}m{signs}\x1b[0m"),
            None => text += &signs,
        }
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::written;

    const HISTORY: &str = "0 A asks\n10 A holds\n20 B asks\n40 A stopped\n60 B holds\n80 A continued\n90 A releases\n100 B killed\n110 - fault end";

    #[test]
    fn rows_are_drawn_to_scale() {
        let timeline = Timeline::of(&written(HISTORY));
        let drawn = draw(&timeline, 27, false);
        let lines: Vec<_> = drawn.lines().collect();
        assert_eq!(lines[0], "  A ··██████▓▓▓▓######");
        assert_eq!(lines[1], "  B     ········######██✗");
        assert_eq!(lines[2], "    0               110 µs");
    }

    #[test]
    fn an_overlap_is_red() {
        let drawn = draw(&Timeline::of(&written(HISTORY)), 40, true);
        assert!(drawn.contains("\x1b[1;31m█"), "{drawn}");
        assert!(!drawn.contains('#'), "{drawn}");
    }
}
