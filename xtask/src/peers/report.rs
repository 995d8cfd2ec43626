//! The line that a program prints, and what the lines of several processes say together.

use serde_json::Value;

use super::statistics::{median, percentile};

/// One acquire and release, in nanoseconds of the machine's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Section {
    asked: f64,
    acquired: f64,
    releasing: f64,
    released: f64,
}

/// What one process did.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) version: String,
    count: f64,
    seconds: f64,
    /// Every how many of its sections one is listed.
    every: f64,
    sections: Vec<Section>,
}

impl Report {
    /// None if the line is no report.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let number = |key: &str| value.get(key)?.as_f64();
        let section = |times: &Value| {
            let part = |index: usize| times.get(index)?.as_f64();
            let (asked, wait, held, release) = (part(0)?, part(1)?, part(2)?, part(3)?);
            let (acquired, releasing) = (asked + wait, asked + wait + held);
            Some(Section { asked, acquired, releasing, released: releasing + release })
        };
        let listed = value.get("times")?.as_array()?.iter().map(section);
        Some(Self {
            version: value.get("version")?.as_str()?.to_owned(),
            count: number("sections")?,
            seconds: number("seconds")?,
            every: number("every")?,
            sections: listed.collect::<Option<_>>()?,
        })
    }

    /// Sections that ended by then.
    fn count_by(&self, end: f64) -> f64 {
        let ended = self.sections.iter().filter(|section| section.released <= end).count();
        ended as f64 * self.every
    }
}

/// What the processes of one run did.
pub(crate) struct Crowd(Vec<Report>);

impl Crowd {
    pub(crate) fn new(reports: Vec<Report>) -> Self {
        Self(reports)
    }

    fn sections(&self) -> impl Iterator<Item = &Section> {
        self.0.iter().flat_map(|report| &report.sections)
    }

    /// All sections, also those that ended late.
    pub(crate) fn count(&self) -> f64 {
        self.0.iter().map(|report| report.count).sum()
    }

    /// When the work was to end. A caller that waits then goes on until it is served.
    fn end(&self, seconds: f64) -> f64 {
        self.sections().map(|it| it.asked).fold(f64::INFINITY, f64::min) + seconds * 1e9
    }

    /// Sections per second, of those that ended in time.
    pub(crate) fn rate(&self, seconds: f64) -> f64 {
        let end = self.end(seconds);
        self.0.iter().map(|report| report.count_by(end)).sum::<f64>() / seconds
    }

    /// Sections per second of a work that has no fixed time.
    pub(crate) fn whole_rate(&self) -> f64 {
        self.count() / self.0.iter().map(|report| report.seconds).fold(0.0, f64::max)
    }

    /// The median of acquire and release, in µs.
    pub(crate) fn pair_us(&self) -> Option<f64> {
        median(self.sections().map(|it| (it.released - it.asked - it.held()) / 1e3).collect())
    }

    /// Percentiles of the time from asking to holding, in ms.
    pub(crate) fn waits_ms(&self, parts: [f64; 3]) -> [Option<f64>; 3] {
        let mut waits: Vec<_> = self.sections().map(|it| (it.acquired - it.asked) / 1e6).collect();
        parts.map(|part| percentile(&mut waits, part))
    }

    /// The least served process over the most served.
    pub(crate) fn share(&self, seconds: f64) -> Option<f64> {
        let end = self.end(seconds);
        let served: Vec<_> = self.0.iter().map(|report| report.count_by(end)).collect();
        let most = served.iter().copied().max_by(f64::total_cmp).filter(|most| *most > 0.0)?;
        Some(served.iter().copied().min_by(f64::total_cmp)? / most)
    }

    /// The part of the time in which the lock is held by a section, in percent.
    pub(crate) fn held_percent(&self, seconds: f64) -> f64 {
        let end = self.end(seconds);
        let held = |report: &Report| {
            let in_time = report.sections.iter().filter(|section| section.released <= end);
            in_time.map(Section::held).sum::<f64>() * report.every
        };
        self.0.iter().map(held).sum::<f64>() / (seconds * 1e9) * 100.0
    }

    /// All sections in their order, and whose they are; none if some are not listed.
    fn in_order(&self) -> Option<Vec<(usize, Section)>> {
        if self.0.iter().any(|report| report.every > 1.0) {
            return None;
        }
        let processes = self.0.iter().enumerate();
        let mut all: Vec<_> = processes
            .flat_map(|(who, report)| report.sections.iter().map(move |section| (who, *section)))
            .collect();
        all.sort_by(|(_, a), (_, b)| a.acquired.total_cmp(&b.acquired));
        Some(all)
    }

    /// The median from the begin of a release to another process's holding the lock that it had asked for before, in µs.
    pub(crate) fn hand_over_us(&self) -> Option<f64> {
        let all = self.in_order()?;
        let pairs = all.windows(2).map(|two| (two[0], two[1]));
        let direct =
            pairs.filter(|(last, next)| last.0 != next.0 && next.1.asked < last.1.releasing);
        median(direct.map(|(last, next)| (next.1.acquired - last.1.releasing) / 1e3).collect())
    }

    /// How often a section began while another one was not over, for work on one name.
    pub(crate) fn overlaps(&self) -> Option<f64> {
        let all = self.in_order()?;
        let begins_early = |two: &&[(usize, Section)]| two[1].1.acquired < two[0].1.releasing;
        Some(all.windows(2).filter(begins_early).count() as f64)
    }
}

impl Section {
    fn held(&self) -> f64 {
        self.releasing - self.acquired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(times: &str) -> Report {
        let count = times.matches('[').count();
        let line = format!(
            r#"{{"version":"1.0","sections":{count},"seconds":1,"every":1,"times":[{times}]}}"#
        );
        Report::parse(&line).unwrap()
    }

    #[test]
    fn a_line_is_a_report() {
        let report = report("[1000,200,30,4]");
        assert_eq!((report.version.as_str(), report.count), ("1.0", 1.0));
        let section =
            Section { asked: 1000.0, acquired: 1200.0, releasing: 1230.0, released: 1234.0 };
        assert_eq!(report.sections, [section]);
        assert!(Report::parse("ready").is_none());
        assert!(Report::parse(r#"{"version":"1.0"}"#).is_none());
        let bad = r#"{"version":"1","sections":1,"seconds":1,"every":1,"times":[[1,2,3]]}"#;
        assert!(Report::parse(bad).is_none());
    }

    #[test]
    fn a_pair_is_without_its_section() {
        let crowd = Crowd::new(vec![report("[0,60000,2000000,40000]")]);
        assert_eq!(crowd.pair_us(), Some(100.0));
    }

    #[test]
    fn processes_are_merged() {
        // In the second of a second, the first process is served twice and the other once; the last section ends too late.
        let crowd = Crowd::new(vec![
            report("[0,100,1000000,100],[2000000,100,1000000,100]"),
            report("[0,1000300,900000,100],[1900400,1998099600,1,1]"),
        ]);
        assert_eq!(crowd.count(), 4.0);
        assert_eq!(crowd.rate(1.0), 3.0);
        assert_eq!(crowd.share(1.0), Some(0.5));
        assert_eq!(crowd.waits_ms([0.0, 0.5, 1.0])[2], Some(1998.0996));
        assert!((crowd.held_percent(1.0) - 0.29).abs() < 1e-9);
    }

    #[test]
    fn a_hand_over_is_from_one_process_to_one_that_waits() {
        // The second process waits while the first one holds; the third section was asked for after the release.
        let crowd = Crowd::new(vec![
            report("[0,10,1000,10],[9000,10,1000,10]"),
            report("[500,1510,1000,10]"),
        ]);
        assert_eq!(crowd.hand_over_us(), Some(1.0));
        assert_eq!(crowd.overlaps(), Some(0.0));
    }

    #[test]
    fn two_holders_at_once_are_found() {
        let crowd = Crowd::new(vec![report("[0,10,1000,10]"), report("[0,500,1000,10]")]);
        assert_eq!(crowd.overlaps(), Some(1.0));
    }
}
