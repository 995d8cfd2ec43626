//! The promises of docs/design.md (I1, I2, …) are cited by the code that upholds them and by a test.
//!
//! So a reader of the design finds the code, a reader of the code finds the reason, and an untested promise is
//! reported. A citation of an undefined promise is an error as well: the promise was renumbered or never made.

use std::collections::BTreeSet;

use crate::sh::{self, Failure, Outcome};
use crate::sources::{self, Role, Source};

const DESIGN: &str = "docs/design.md";

pub(crate) fn check() -> Outcome {
    let defined = defined(&sources::read(DESIGN)?)?;
    let mismatches = mismatches(&defined, &Source::all()?);
    if !mismatches.is_empty() {
        return Err(Failure::new(format!(
            "the promises of {DESIGN} and their citations differ:\n  {}\n\
             Cite the promise where it is upheld and in a test that would break, or correct the number.",
            mismatches.join("\n  ")
        )));
    }
    sh::say(format!("{} promises, each upheld and tested", defined.len()));
    Ok(())
}

/// The numbers that the design defines, as `- **I1** …` or as a heading `### I1 …`.
fn defined(design: &str) -> Outcome<BTreeSet<u32>> {
    let mut numbers = BTreeSet::new();
    for number in design.lines().filter_map(definition) {
        if !numbers.insert(number) {
            return Err(Failure::new(format!(
                "{DESIGN} defines I{number} twice; renumber one of them."
            )));
        }
    }
    if numbers.is_empty() {
        return Err(Failure::new(format!(
            "{DESIGN} defines no promise; write each as a list item `- **I1** …` or a heading `### I1 …`."
        )));
    }
    Ok(numbers)
}

fn definition(line: &str) -> Option<u32> {
    let line = line.trim_start();
    let item = line.strip_prefix("- **").or_else(|| line.strip_prefix("* **"));
    let heading = || line.starts_with('#').then(|| line.trim_start_matches('#').trim_start());
    let rest = item.or_else(heading)?;
    let first_word = rest.split(|c: char| !c.is_alphanumeric()).next()?;
    citations(first_word).next()
}

fn mismatches(defined: &BTreeSet<u32>, sources: &[Source]) -> Vec<String> {
    let (mut upheld, mut tested, mut mismatches) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for source in sources {
        for line in source.lines() {
            match line.role {
                Role::Code => upheld.extend(citations(line.text)),
                Role::Test => tested.extend(citations(line.text)),
                Role::Help => {}
            }
            let cited = source.comment(&line).into_iter().flat_map(citations);
            mismatches.extend(cited.filter(|number| !defined.contains(number)).map(|number| {
                format!(
                    "{}:{} cites I{number}, which is not defined",
                    source.path.display(),
                    line.number
                )
            }));
        }
    }
    let lacking = |cited: &BTreeSet<u32>, by: &str| -> Vec<String> {
        defined.difference(cited).map(|number| format!("I{number} is cited by no {by}")).collect()
    };
    mismatches.extend(lacking(&upheld, "code"));
    mismatches.extend(lacking(&tested, "test"));
    mismatches
}

/// The numbers cited in a text: `I` and one or two digits, standing alone.
fn citations(text: &str) -> impl Iterator<Item = u32> + '_ {
    text.match_indices('I').filter_map(|(at, _)| {
        if text[..at].chars().next_back().is_some_and(char::is_alphanumeric) {
            return None;
        }
        let after = &text[at + 1..];
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let stands_alone = !after[end..].starts_with(char::is_alphanumeric);
        let (digits, plausible) =
            (&after[..end], (1..=2).contains(&end) && !after.starts_with('0'));
        if stands_alone && plausible { digits.parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    fn numbers(text: &str) -> Vec<u32> {
        citations(text).collect()
    }

    #[test]
    fn a_citation_stands_alone() {
        assert_eq!(numbers("// (I1), I2; I3_holds, I10."), [1, 2, 3, 10]);
        assert_eq!(numbers("XI1 I2b I I0 I100 Io9 éI4"), Vec::<u32>::new());
    }

    #[test]
    fn promises_are_defined_by_items_and_headings_only() {
        let design =
            "# Promises\n- **I1** one\n### I2 two\nI3 is mentioned\n- see **I4**\n- **Idea** I5\n";
        assert_eq!(defined(design).unwrap(), BTreeSet::from([1, 2]));
    }

    #[test]
    fn a_design_without_promises_or_with_one_twice_is_refused() {
        assert!(defined("# Nothing\n").is_err());
        let twice = defined("- **I1** a\n- **I1** b\n").unwrap_err().to_string();
        assert_eq!(twice, "docs/design.md defines I1 twice; renumber one of them.");
    }

    #[test]
    fn a_promise_needs_code_and_a_test() {
        let defined = BTreeSet::from([1, 2, 3]);
        let sources = [
            source("crates/a/src/lib.rs", "// I1\n#[cfg(test)]\nmod tests {\n // I1, I2\n}"),
            source("crates/a/src/x.lua", "-- Upholds I3."),
        ];
        assert_eq!(
            mismatches(&defined, &sources),
            ["I2 is cited by no code", "I3 is cited by no test"]
        );
    }

    #[test]
    fn an_undefined_promise_is_reported_but_only_in_comments() {
        let sources = [source(
            "crates/a/src/lib.rs",
            "struct I7;\n// I1, and I8\n#[cfg(test)]\nmod t {\n// I1\n}",
        )];
        let mismatches = mismatches(&BTreeSet::from([1]), &sources);
        assert_eq!(mismatches, ["crates/a/src/lib.rs:2 cites I8, which is not defined"]);
    }
}
