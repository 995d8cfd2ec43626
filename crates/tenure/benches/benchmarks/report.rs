//! Results of benchmarks.

use std::fmt;

/// One benchmark.
pub(crate) struct Benchmark {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) goal: Goal,
    /// Several measurements.
    pub(crate) measure: fn() -> Vec<f64>,
    pub(crate) what: &'static str,
}

/// The goal of a benchmark.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "<= {most}"),
            Self::AtLeast(least) => write!(f, ">= {least}"),
        }
    }
}

/// The result of a benchmark.
pub(crate) struct Report<'a> {
    benchmark: &'a Benchmark,
    value: f64,
    /// The lowest to the highest, as a part of the median.
    spread: f64,
}

impl<'a> Report<'a> {
    pub(crate) fn new(benchmark: &'a Benchmark, mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let median = values.get(values.len() / 2).copied().unwrap_or(f64::NAN);
        let spread = match (values.first(), values.last()) {
            (Some(low), Some(high)) => (high - low) / median,
            _ => f64::NAN,
        };
        Self { benchmark, value: median, spread }
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "name": self.benchmark.name,
            "value": self.value,
            "unit": self.benchmark.unit,
            "goal": self.benchmark.goal.to_string(),
            "holds": self.benchmark.goal.holds(self.value),
            "spread": self.spread,
        })
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Benchmark { name, unit, goal, .. } = self.benchmark;
        let verdict = if goal.holds(self.value) { "holds" } else { "short" };
        let value = self.value;
        let digits = if value < 100.0 { 3 } else { 0 };
        let spread = self.spread * 100.0;
        write!(
            f,
            "{name:18} {value:>12.digits$} {unit:12} goal {goal:10} {verdict}  ±{spread:.0} %"
        )
    }
}
