//! The table of `tenure ls`, which fits the terminal.

use comfy_table::{ColumnConstraint, ContentArrangement, Row, Table, Width, presets};
use tenure::LockInfo;

use crate::view::format::{ago, fence, for_people, known, plain, who_all};

const NAME: usize = 0;
const HOLDER: usize = 2;
const HEADER: [&str; 7] = ["NAME", "KIND", "HOLDER", "HELD FOR", "LEASE LEFT", "WAITERS", "FENCE"];

/// Columns that a narrow terminal omits, the least important first; `tenure show` has them. The other columns may be
/// cut.
const DISPENSABLE: [usize; 5] = [6, 1, 4, 5, 3];

/// A name that is cut to less is of no use.
const LEAST: usize = 14;

/// The padding of a column.
const PADDING: usize = 2;

/// The locks, a line each, within the terminal's columns, if there is one.
pub(crate) fn table(locks: &[LockInfo], columns: Option<u16>) -> Table {
    let rows: Vec<_> = locks.iter().map(row).collect();
    let all: Vec<_> = (0..HEADER.len()).collect();
    let whole = of_columns(&rows, &all);
    let Some(columns) = columns else { return whole };
    let natural = whole.column_max_content_widths();
    let natural: Vec<_> = natural.into_iter().map(|width| usize::from(width) + PADDING).collect();
    let fit = Fit::new(&natural, columns.into());
    let mut table = of_columns(&rows, &fit.shown);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(columns);
    let constraints = fit.shown.iter().map(|column| {
        let width = match *column {
            NAME => fit.name,
            HOLDER => fit.holder,
            other => natural[other],
        };
        ColumnConstraint::Absolute(Width::Fixed(u16::try_from(width).unwrap_or(u16::MAX)))
    });
    table.set_constraints(constraints);
    table
}

/// The columns that are shown, and the widths of those that may be cut.
#[derive(Debug, PartialEq, Eq)]
struct Fit {
    shown: Vec<usize>,
    name: usize,
    holder: usize,
}

impl Fit {
    /// Omits columns until each of those that may be cut has a quarter of the width, or all that it needs. They share the
    /// rest.
    fn new(natural: &[usize], width: usize) -> Self {
        let (name, holder) = (natural[NAME], natural[HOLDER]);
        let fair = LEAST.max(width / 4);
        let least = name.min(fair) + holder.min(fair);
        let mut shown: Vec<_> = (0..natural.len()).collect();
        let rest = |shown: &[usize]| -> usize {
            shown.iter().filter(|it| ![NAME, HOLDER].contains(it)).map(|it| natural[*it]).sum()
        };
        for column in DISPENSABLE {
            if rest(&shown) + least <= width {
                break;
            }
            shown.retain(|it| *it != column);
        }
        let left = width.saturating_sub(rest(&shown));
        // Neither is cut while the other has room to spare.
        let for_name = name.min((left / 2).max(left.saturating_sub(holder)));
        Self { shown, name: for_name, holder: holder.min(left - for_name) }
    }
}

fn of_columns(rows: &[[String; HEADER.len()]], shown: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let mut header = Row::from(shown.iter().map(|column| HEADER[*column]));
    header.max_height(1);
    table.set_header(header);
    for row in rows {
        let mut row = Row::from(shown.iter().map(|column| &row[*column]));
        row.max_height(1);
        table.add_row(row);
    }
    table
}

fn row(lock: &LockInfo) -> [String; HEADER.len()] {
    let first = lock.holders.first();
    [
        plain(lock.name.as_str()),
        kind(lock),
        who_all(lock),
        first.and_then(|it| known(it.since)).map(ago).unwrap_or_default(),
        first.map(|it| for_people(it.lease_left)).unwrap_or_default(),
        lock.waiting.to_string(),
        first.and_then(|it| fence(it.fence)).map(|it| it.to_string()).unwrap_or_default(),
    ]
}

fn kind(lock: &LockInfo) -> String {
    match lock.kind {
        Some(kind) => kind.to_string(),
        None if lock.error.is_some() => "unreadable".to_owned(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Widths of a name, a kind, a holder, two times, waiters and a fence.
    const NATURAL: [usize; 7] = [10, 7, 22, 10, 12, 9, 18];

    #[test]
    fn what_is_least_important_goes_first() {
        let shown = |width| Fit::new(&NATURAL, width).shown;
        assert_eq!(shown(88), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(shown(80), [0, 1, 2, 3, 4, 5]);
        assert_eq!(shown(40), [0, 2, 3]);
        assert_eq!(shown(20), [0, 2]);
    }

    #[test]
    fn the_rest_is_shared_by_what_may_be_cut() {
        let fit = |name, holder| {
            let mut natural = NATURAL;
            (natural[NAME], natural[HOLDER]) = (name, holder);
            let fit = Fit::new(&natural, 40);
            (fit.name, fit.holder)
        };
        assert_eq!(fit(10, 22), (10, 20));
        assert_eq!(fit(60, 12), (18, 12));
        assert_eq!(fit(60, 60), (15, 15));
    }
}
