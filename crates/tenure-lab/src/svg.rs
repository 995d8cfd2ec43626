//! The timelines as a picture for documents.

use crate::checker::Seconds;
use crate::report::{SideReport, StageReport, timelines};
use crate::timeline::{Row, State, Timeline};

const WIDTH: u64 = 860;
const LEFT: u64 = 44;
const ROW: u64 = 18;
const LINE: u64 = 20;

/// The height of a legend, above the stages.
const HEAD: u64 = 34;

/// A picture of the stages that were run.
pub fn svg(reports: &[StageReport]) -> String {
    let mut canvas = Canvas { body: String::new(), y: HEAD };
    canvas.legend();
    reports.iter().for_each(|report| canvas.stage(report));
    let height = canvas.y + 10;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{}</svg>\n",
        canvas.body
    )
}

struct Canvas {
    body: String,
    y: u64,
}

impl Canvas {
    fn legend(&mut self) {
        let signs = [
            (State::Waits, "waits"),
            (State::Holds, "believes that it holds the lock"),
            (State::HoldsStopped, "the same, stopped"),
            (State::Stopped, "stopped"),
            (State::Overlaps, "two at once"),
        ];
        let mut x = LEFT;
        for (state, meaning) in signs {
            self.bar(x, 12, 22, state);
            self.text(x + 28, 23, "#57606a", "", meaning);
            x += 52 + 7 * meaning.len() as u64;
        }
    }

    fn stage(&mut self, report: &StageReport) {
        self.y += 26;
        let title = format!("{}. {}", report.stage.number, report.stage.title);
        self.text(12, self.y, "#1f2328", "font-weight=\"600\" font-size=\"15\"", &title);
        self.y += LINE;
        self.text(12, self.y, "#57606a", "", &format!("Fault: {}.", report.stage.fault));
        match &report.sides {
            Ok(sides) => {
                let timelines = timelines(sides);
                sides.iter().zip(&timelines).for_each(|(side, timeline)| self.side(side, timeline));
            }
            Err(why) => {
                self.y += LINE;
                self.text(12, self.y, "#57606a", "", &format!("Not run: {why}"));
            }
        }
        self.y += 8;
    }

    fn side(&mut self, side: &SideReport, timeline: &Timeline) {
        self.y += LINE + 4;
        let (sign, colour) =
            if side.verdict.is_clean() { ("✓", "#1a7f37") } else { ("✗", "#d1242f") };
        self.text(12, self.y, colour, "font-weight=\"600\"", &format!("{sign} {}", side.label()));
        self.y += 6;
        for row in &timeline.rows {
            self.row(timeline, row);
            self.y += ROW;
        }
        self.text(LEFT, self.y + 12, "#8c959f", "font-size=\"11\"", "0");
        let (length, at_end) =
            (Seconds(timeline.length()).to_string(), "font-size=\"11\" text-anchor=\"end\"");
        self.text(WIDTH - 12, self.y + 12, "#8c959f", at_end, &length);
        self.y += 14;
        for sentence in side.sentences() {
            self.y += LINE - 3;
            self.text(LEFT, self.y, "#1f2328", "font-size=\"12\"", &sentence);
        }
    }

    fn row(&mut self, timeline: &Timeline, row: &Row) {
        let y = self.y;
        self.text(24, y + 13, "#57606a", "", &row.client);
        let space = WIDTH - LEFT - 12;
        let x = |at: u64| {
            let at = at.saturating_sub(timeline.begin).min(timeline.length());
            LEFT + at * space / timeline.length()
        };
        for span in &row.spans {
            let (from, until) = (x(span.from), x(span.until));
            self.bar(from, y + 2, (until - from).max(2), span.state);
        }
        for at in &row.notified {
            self.text(x(*at), y + 14, "#9a6700", "font-weight=\"700\" text-anchor=\"middle\"", "!");
        }
        if let Some(at) = row.killed {
            self.text(x(at), y + 14, "#1f2328", "font-weight=\"700\" text-anchor=\"middle\"", "✗");
        }
    }

    fn bar(&mut self, x: u64, y: u64, width: u64, state: State) {
        let (colour, height, down) = match state {
            State::Waits => ("#afb8c1", 3, 6),
            State::Stopped => ("#d8dee4", 13, 1),
            State::Holds => ("#2da44e", 13, 1),
            State::HoldsStopped => ("#bf8700", 13, 1),
            State::Overlaps => ("#d1242f", 13, 1),
        };
        self.body += &format!(
            "<rect x=\"{x}\" y=\"{}\" width=\"{width}\" height=\"{height}\" fill=\"{colour}\"/>\n",
            y + down
        );
    }

    fn text(&mut self, x: u64, y: u64, colour: &str, more: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        self.body += &format!("<text x=\"{x}\" y=\"{y}\" fill=\"{colour}\" {more}>{text}</text>\n");
    }
}
