//! Results as a table: for a terminal, and in Markdown.

use super::machine::Facts;
use super::metric::{Better, Metric};
use super::results::{Results, Row};
use super::statistics::Spread;

/// Marks a value that is better than Tenure's beside it.
const AHEAD: &str = " ◀";

/// The cells of a table; the first line has the headings.
fn cells(results: &Results) -> Vec<Vec<String>> {
    let metrics = results.work.metrics;
    let shown: Vec<&Metric> = metrics.iter().filter(|it| results.tenure(it).is_some()).collect();
    let mut lines = vec![vec![String::new()]];
    for (index, metric) in shown.iter().enumerate() {
        lines[0].push(heading(metric));
        if index == 0 {
            lines[0].extend(["Tenure beside it".to_owned(), "peer ÷ Tenure".to_owned()]);
        }
    }
    lines.extend(results.rows.iter().map(|row| peer_cells(row, &shown)));
    let mut ours = vec![format!("**Tenure {}**", results.tenure_version)];
    for (index, metric) in shown.iter().enumerate() {
        ours.push(range(results.tenure(metric)));
        if index == 0 {
            ours.extend(["".to_owned(), "1".to_owned()]);
        }
    }
    lines.push(ours);
    lines
}

fn peer_cells(row: &Row, shown: &[&Metric]) -> Vec<String> {
    let mut cells = vec![format!("{} {}", row.peer.title, row.version).trim().to_owned()];
    for (index, metric) in shown.iter().enumerate() {
        let mark = if row.is_ahead(metric) { AHEAD } else { "" };
        cells.push(range(row.spread(metric)) + mark);
        if index == 0 {
            cells.push(range(row.tenure_spread(metric)));
            let ratio = row.over_tenure(metric);
            cells.push(ratio.map_or_else(|| "–".into(), |ratio| number(ratio) + mark));
        }
    }
    cells
}

fn heading(metric: &Metric) -> String {
    let arrow = if metric.better == Better::Less { "↓" } else { "↑" };
    format!("{} {arrow}", metric.title)
}

/// The median, and the range of several rounds.
fn range(spread: Option<Spread>) -> String {
    match spread {
        None => "–".into(),
        Some(one) if one.rounds == 1 || one.low == one.high => number(one.median),
        Some(Spread { median, low, high, .. }) => {
            format!("{} ({}–{})", number(median), number(low), number(high))
        }
    }
}

/// Three digits, more for large numbers, which get their thousands separated.
pub(crate) fn number(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        below if below < 0.1 => 4,
        below if below < 10.0 => 2,
        below if below < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, whole) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut grouped = sign.to_owned();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

/// One work, for a terminal.
pub(crate) fn terminal(results: &Results) -> String {
    let mut lines = cells(results);
    lines.iter_mut().flatten().for_each(|cell| *cell = cell.replace("**", ""));
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|it| it.chars().count()).max()
    };
    let widths: Vec<_> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = format!("\n{}: {}\n", results.work.name, results.work.what);
    for line in &lines {
        let padded = line.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        text += &format!("  {}\n", padded.collect::<Vec<_>>().join("  ").trim_end());
    }
    text += &below(results).iter().map(|line| format!("  {line}\n")).collect::<String>();
    text
}

/// The lines below a table.
fn below(results: &Results) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(ping) = Spread::of(&results.pings) {
        lines.push(format!("A PING beside the runs: {} µs.", range(Some(ping))));
    }
    lines.extend(results.remarks());
    lines
}

/// A document of all works.
pub(crate) fn markdown(all: &[Results], facts: &Facts, skipped: &[String], how: &str) -> String {
    let mut text = String::from("# Peers\n\n");
    text += &format!(
        "Written by `cargo xtask bench-peers` ({how}). In every round, each peer does the work and Tenure right after it, on the same \
         server: a peer is compared with the runs beside it. The values are medians of the rounds, with the lowest and the highest in brackets; \
         commands, bytes and the server's time are for one section. ↓: less is better, ↑: more is better. **◀ marks where a peer is better than Tenure was beside it.** How \
         each peer is set up is in `bench/peers/README.md`.\n\n| | |\n|---|---|\n"
    );
    text +=
        &facts.iter().map(|(name, value)| format!("| {name} | {value} |\n")).collect::<String>();
    if !skipped.is_empty() {
        text += "\nLeft out:\n\n";
        text += &skipped.iter().map(|why| format!("- {why}\n")).collect::<String>();
    }
    for results in all {
        text += &format!("\n## `{}`\n\n{}.\n\n", results.work.name, capital(results.work.what));
        for (index, line) in cells(results).iter().enumerate() {
            text += &format!("| {} |\n", line.join(" | "));
            if index == 0 {
                text += &format!("|---|{}\n", "--:|".repeat(line.len() - 1));
            }
        }
        text += &format!("\n{}\n", below(results).join(" "));
    }
    text
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().collect::<String>() + letters.as_str()
    })
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::example;
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_separated_thousands() {
        let cases = [
            (0.0, "0"),
            (0.01234, "0.0123"),
            (1.234, "1.23"),
            (12.34, "12.3"),
            (123.4, "123"),
            (1234.5, "1,234"),
            (1_234_567.0, "1,234,567"),
            (-1234.0, "-1,234"),
            (-123.0, "-123"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_faster_peer_is_marked() {
        let text = terminal(&example());
        let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap().to_owned();
        assert!(line("rlock 1.2.3").contains("90.0 (80.0–110) ◀"), "{text}");
        assert!(line("rlock 1.2.3").contains("0.90 ◀"), "{text}");
        assert!(line("Redisson RLock").contains("130 (120–200)  "), "{text}");
        assert!(!line("Redisson RLock").contains('◀'), "{text}");
        assert!(line("Tenure 0.1.0").contains("100"), "{text}");
        assert!(text.contains("rlock: it ended early."), "{text}");
    }

    #[test]
    fn the_document_has_machine_versions_and_what_was_left_out() {
        let facts = vec![("server", "Redis 7".to_owned())];
        let text = markdown(&[example()], &facts, &["Go: there is none.".into()], "3 rounds");
        for part in ["| server | Redis 7 |", "- Go: there is none.", "## `pair`", "|---|--:|"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let columns = |line: &str| line.matches('|').count();
        let table: Vec<_> = text
            .lines()
            .skip_while(|line| !line.starts_with("## "))
            .filter(|it| it.starts_with('|'))
            .collect();
        assert!(table.iter().all(|line| columns(line) == columns(table[0])), "{table:#?}");
    }
}
