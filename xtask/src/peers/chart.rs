//! Results as a bar chart in SVG: each peer, and Tenure beside it.

use super::metric::Better;
use super::results::Results;
use super::statistics::Spread;
use super::table::number;

const WIDTH: f64 = 760.0;
const LABELS: f64 = 190.0;
const BARS: f64 = 440.0;
const ROW: f64 = 46.0;
const TOP: f64 = 64.0;

const OURS: &str = "#3465a4";
const THEIRS: &str = "#888a85";
/// A peer that is better than Tenure beside it.
const AHEAD: &str = "#ce5c00";

/// The chart of the work's first metric; none if nothing was measured.
pub(crate) fn svg(results: &Results) -> Option<String> {
    let metric = results.work.metrics.first()?;
    let bars: Vec<_> = results
        .rows
        .iter()
        .filter_map(|row| Some((row, row.spread(metric)?, row.tenure_spread(metric)?)))
        .collect();
    let highs = bars.iter().flat_map(|(_, peer, tenure)| [peer.high, tenure.high]);
    let most = highs.max_by(f64::total_cmp)?.max(f64::MIN_POSITIVE);
    let height = TOP + ROW * bars.len() as f64 + 30.0;
    let better = if metric.better == Better::Less { "less is better" } else { "more is better" };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    svg += &text(16.0, 26.0, "#2e3436", &format!("{}: {}", results.work.name, results.work.what));
    let legend = format!("{} ({better}); lines: lowest to highest round", metric.title);
    svg += &text(16.0, 46.0, THEIRS, &legend);
    for (index, (row, peer, tenure)) in bars.iter().enumerate() {
        let y = TOP + ROW * index as f64;
        let colour = if row.is_ahead(metric) { AHEAD } else { THEIRS };
        let label = format!("{} {}", row.peer.title, row.version);
        svg += &text(16.0, y + 16.0, "#2e3436", &label);
        svg += &text(16.0, y + 33.0, OURS, "Tenure beside it");
        svg += &bar(y + 4.0, *peer, most, colour);
        svg += &bar(y + 21.0, *tenure, most, OURS);
    }
    let note = "orange: the peer is better than Tenure beside it";
    svg += &text(16.0, height - 10.0, AHEAD, note);
    Some(svg + "</svg>\n")
}

fn bar(y: f64, spread: Spread, most: f64, colour: &str) -> String {
    let x = |value: f64| LABELS + value / most * BARS;
    let (middle, end) = (y + 7.0, x(spread.median));
    let width = (end - LABELS).max(1.0);
    let mut svg = format!(
        "<rect x=\"{LABELS}\" y=\"{y}\" width=\"{width:.1}\" height=\"14\" fill=\"{colour}\"/>\n"
    );
    if spread.low < spread.high {
        let (low, high) = (x(spread.low), x(spread.high));
        svg += &format!(
            "<line x1=\"{low:.1}\" y1=\"{middle}\" x2=\"{high:.1}\" y2=\"{middle}\" stroke=\"#2e3436\"/>\n"
        );
    }
    svg + &text(x(spread.high) + 8.0, y + 12.0, "#2e3436", &number(spread.median))
}

fn text(x: f64, y: f64, colour: &str, content: &str) -> String {
    let content = content.replace('&', "&amp;").replace('<', "&lt;");
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{colour}\">{content}</text>\n")
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::example;
    use super::*;

    #[test]
    fn a_chart_has_two_bars_for_each_peer() {
        let svg = svg(&example()).unwrap();
        assert_eq!(svg.matches("height=\"14\"").count(), 4);
        assert_eq!(svg.matches(&format!("height=\"14\" fill=\"{AHEAD}\"")).count(), 1);
        assert!(svg.ends_with("</svg>\n"));
    }

    #[test]
    fn nothing_measured_is_no_chart() {
        let mut results = example();
        results.rows.clear();
        assert!(svg(&results).is_none());
    }
}
