//! The result of a stage, for people and for programs.

use serde_json::{Value, json};

use crate::checker::Verdict;
use crate::drawing::draw;
use crate::experiment::Side;
use crate::history::History;
use crate::stages::{self, Stage};
use crate::timeline::Timeline;

/// What one lock did under the fault of a stage.
#[derive(Debug)]
pub struct SideReport {
    /// Which lock it was.
    pub side: Side,
    /// What happened.
    pub history: History,
    /// What that means.
    pub verdict: Verdict,
}

/// What came of a stage.
pub struct StageReport {
    /// The stage.
    pub stage: &'static Stage,
    /// The lock of that time and Tenure; or why the stage was not run.
    pub sides: Result<[SideReport; 2], String>,
}

impl SideReport {
    pub(crate) fn label(&self) -> String {
        match self.side {
            Side::Historic(number) => Stage::of(number).map_or("", |stage| stage.title).to_owned(),
            Side::Tenure => "Tenure, under the same fault".to_owned(),
        }
    }

    /// What is to be said of it: what went wrong, and what else is known.
    pub(crate) fn sentences(&self) -> Vec<String> {
        let violations = self.verdict.violations.iter().map(ToString::to_string);
        violations.chain([self.verdict.facts.join("; ")]).collect()
    }

    fn text(&self, timeline: &Timeline, columns: usize, has_colours: bool) -> String {
        let (word, colour) =
            if self.verdict.is_clean() { ("HELD", "1;32") } else { ("BROKEN", "1;31") };
        let word = format!("{word:<6}");
        let word = if has_colours { format!("\x1b[{colour}m{word}\x1b[0m") } else { word };
        let mut text = format!("\n  {}\n", self.label());
        text += &draw(timeline, columns, has_colours);
        for (number, sentence) in self.sentences().iter().enumerate() {
            let sign = if number == 0 { word.as_str() } else { "      " };
            text += &wrapped(&format!("  {sign} "), 9, sentence, columns);
        }
        text
    }

    fn json(&self) -> Value {
        json!({
            "lock": match self.side { Side::Historic(_) => "historic", Side::Tenure => "tenure" },
            "verdict": if self.verdict.is_clean() { "held" } else { "broken" },
            "violations": self.verdict.violations.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "facts": self.verdict.facts,
            "history": self.history.events().iter().map(crate::history::Event::json).collect::<Vec<_>>(),
        })
    }
}

impl StageReport {
    /// Whether Tenure kept what it promises; none if the stage was not run.
    pub fn has_tenure_held(&self) -> Option<bool> {
        self.sides.as_ref().ok().map(|[_, tenure]| tenure.verdict.is_clean())
    }

    /// Whether the lock of that time was broken; none if the stage was not run.
    pub fn is_historic_broken(&self) -> Option<bool> {
        self.sides.as_ref().ok().map(|[historic, _]| !historic.verdict.is_clean())
    }

    /// For people: the idea, the fault, and both timelines with their verdicts.
    pub fn text(&self, columns: usize, has_colours: bool) -> String {
        let Stage { number, title, idea, fault, remedy, .. } = self.stage;
        let head = format!("Stage {number} of {}: {title}", stages::ALL.len());
        let head = if has_colours { format!("\x1b[1m{head}\x1b[0m") } else { head };
        let mut text = format!("{head}\n");
        text += &wrapped("  ", 2, idea, columns);
        text += &wrapped("  Fault: ", 9, &format!("{fault}."), columns);
        match &self.sides {
            Err(why) => text += &wrapped("\n  Not run: ", 11, why, columns),
            Ok(sides) => {
                let timelines = timelines(sides);
                for (side, timeline) in sides.iter().zip(&timelines) {
                    text += &side.text(timeline, columns, has_colours);
                }
                text += &wrapped("         ", 9, remedy, columns);
            }
        }
        text
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let Stage { number, title, idea, fault, remedy, .. } = self.stage;
        json!({
            "stage": number, "title": title, "idea": idea, "fault": fault, "remedy": remedy,
            "not_run": self.sides.as_ref().err(),
            "locks": self.sides.iter().flatten().map(SideReport::json).collect::<Vec<_>>(),
        })
    }
}

/// The timelines of both locks, to one scale.
pub(crate) fn timelines([historic, tenure]: &[SideReport; 2]) -> [Timeline; 2] {
    Timeline::of_all([&historic.history, &tenure.history])
}

/// A text in lines of at most so many columns; `first` begins the first line, and the others are indented.
fn wrapped(first: &str, indent: usize, text: &str, columns: usize) -> String {
    let (mut lines, mut used) = (first.to_owned(), indent);
    for (number, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if number > 0 && used + 1 + length > columns {
            lines += &format!("\n{}", " ".repeat(indent));
            used = indent;
        } else if number > 0 {
            lines.push(' ');
            used += 1;
        }
        lines += word;
        used += length;
    }
    lines + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sentences_are_wrapped_and_indented() {
        assert_eq!(wrapped("  > ", 4, "one two three", 12), "  > one two\n    three\n");
        assert_eq!(wrapped("", 0, "word", 2), "word\n");
    }
}
