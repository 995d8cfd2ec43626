//! docs/requirements.md names, for each requirement, the tests that show it; those tests must exist. So must those of
//! docs/guarantees.md, which names one for each fault.
//!
//! A row is `| R1 | what | test_one, test_two |`. A last column that starts with a dash (—) says that
//! the requirement is not due yet.

use std::collections::BTreeSet;

use crate::sh::{self, Failure, Outcome};
use crate::sources::{self, Source};

const TABLE: &str = "docs/requirements.md";
const GUARANTEES: &str = "docs/guarantees.md";

pub(crate) fn check() -> Outcome {
    let table = sources::read(TABLE)?;
    let functions: BTreeSet<String> =
        Source::all()?.iter().flat_map(|file| functions(&file.text)).collect();
    let rows: Vec<Row<'_>> = table.lines().filter_map(Row::parse).collect();
    let mismatches = mismatches(&rows, &functions);
    if !mismatches.is_empty() {
        return Err(Failure::new(format!(
            "{TABLE} does not agree with the tests:\n  {}\n\
             Name the tests that exist, or start the last column with — while a row is not due.",
            mismatches.join("\n  ")
        )));
    }
    let guarantees = sources::read(GUARANTEES)?;
    let missing: Vec<_> = shown_by(&guarantees).filter(|name| !functions.contains(*name)).collect();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return Err(Failure::new(format!(
            "{GUARANTEES} names tests that do not exist: {missing}."
        )));
    }
    let due = rows.iter().filter(|row| !row.tests.starts_with('—')).count();
    sh::say(format!("{due} of {} requirements are due, each with its tests", rows.len()));
    Ok(())
}

/// One requirement of the table.
struct Row<'a> {
    name: &'a str,
    tests: &'a str,
}

impl<'a> Row<'a> {
    /// The requirement on this line of the document, if it is one.
    fn parse(line: &'a str) -> Option<Self> {
        let mut cells = line.trim().strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim);
        let name = cells.next()?;
        let number = name.strip_prefix('R')?;
        let tests = cells.next_back()?;
        let is_number = !number.is_empty() && number.chars().all(|c| c.is_ascii_digit());
        is_number.then_some(Self { name, tests })
    }

    /// The named test functions; a path such as `redis::second_owner_is_refused` is cut to its end.
    fn test_names(&self) -> impl Iterator<Item = &'a str> {
        let names = self.tests.split([',', ' ']).map(|name| name.trim_matches('`'));
        names.map(|name| name.rsplit("::").next().unwrap_or(name)).filter(|name| !name.is_empty())
    }
}

fn mismatches(rows: &[Row<'_>], functions: &BTreeSet<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut mismatches = Vec::new();
    if rows.is_empty() {
        mismatches.push("the table has no row `| R1 | what | test |`".to_string());
    }
    for row in rows {
        if !seen.insert(row.name) {
            mismatches.push(format!("{} appears twice", row.name));
        }
        if row.tests.starts_with('—') {
            continue;
        }
        if row.tests.is_empty() {
            mismatches.push(format!("{} names no test", row.name));
        }
        let missing = row.test_names().filter(|name| !functions.contains(*name));
        mismatches.extend(
            missing
                .map(|name| format!("{} names the test `{name}`, which does not exist", row.name)),
        );
    }
    mismatches
}

/// The tests that the last column of a table named `test` has in backquotes.
fn shown_by(text: &str) -> impl Iterator<Item = &str> {
    let mut is_in_table = false;
    let cells = text.lines().filter_map(move |line| {
        let cells = line.trim().strip_prefix('|').and_then(|line| line.strip_suffix('|'));
        let last = cells.and_then(|cells| cells.rsplit('|').next()).map(str::trim);
        is_in_table = last.is_some_and(|last| is_in_table || last == "test");
        last.filter(|_| is_in_table)
    });
    // Every second piece is between backquotes.
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    names.map(|name| name.rsplit("::").next().unwrap_or(name))
}

/// The names of the functions that a Rust text defines.
fn functions(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines().filter_map(|line| {
        let line = line.trim_start();
        let at = if line.starts_with("fn ") { 0 } else { line.find(" fn ")? + 1 };
        let is_comment = line.starts_with("//");
        let rest = &line[at + "fn ".len()..];
        let end = rest.find(['(', '<'])?;
        (!is_comment).then(|| rest[..end].to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(table: &str, code: &str) -> Vec<String> {
        let rows: Vec<Row<'_>> = table.lines().filter_map(Row::parse).collect();
        mismatches(&rows, &functions(code).collect())
    }

    const CODE: &str =
        "fn one() {}\n    pub(crate) async fn two<E: Engine>(engine: E) {\n// fn three()\n";

    #[test]
    fn named_tests_must_exist() {
        let table = "| # | what | tests |\n|---|---|---|\n| R1 | a | `one`, redis::two |\n| R2 | b | three |\n";
        assert_eq!(check(table, CODE), ["R2 names the test `three`, which does not exist"]);
    }

    #[test]
    fn the_tests_of_a_guarantee_are_in_backquotes_in_its_last_column() {
        let table = "| fault | URL |\n|---|---|\n| a | `redis:` |\n\n\
                     | fault | test |\n|---|---|\n| `kill` | `one`, and `x::two` |\n| none | |\n";
        assert_eq!(shown_by(table).collect::<Vec<_>>(), ["one", "two"]);
    }

    #[test]
    fn a_row_marked_with_a_dash_is_not_due() {
        assert!(check("| R1 | a | — with the cluster |\n| R2 | b | one |\n", CODE).is_empty());
    }

    #[test]
    fn empty_tables_empty_cells_and_twins_are_refused() {
        assert_eq!(check("nothing", CODE), ["the table has no row `| R1 | what | test |`"]);
        assert_eq!(check("| R1 | a | |\n", CODE), ["R1 names no test"]);
        assert_eq!(check("| R1 | a | one |\n| R1 | b | one |\n", CODE), ["R1 appears twice"]);
    }
}
