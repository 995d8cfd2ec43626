//! The results of all rounds of one work.

use super::metric::{Metric, Values};
use super::peer::Peer;
use super::statistics::{Spread, median};
use super::work::Work;

/// A peer's run, and Tenure's right after it.
pub(crate) struct Round {
    pub(crate) peer: Values,
    pub(crate) tenure: Values,
}

/// The rounds of one peer.
pub(crate) struct Row {
    pub(crate) peer: &'static Peer,
    pub(crate) version: String,
    pub(crate) rounds: Vec<Round>,
    /// Why rounds are missing, as sentences.
    pub(crate) failures: Vec<String>,
}

/// The results of a work.
pub(crate) struct Results {
    pub(crate) work: &'static Work,
    pub(crate) rows: Vec<Row>,
    pub(crate) tenure_version: String,
    /// Medians of a PING beside each run, in µs.
    pub(crate) pings: Vec<f64>,
}

impl Row {
    pub(crate) fn new(peer: &'static Peer) -> Self {
        Self { peer, version: String::new(), rounds: Vec::new(), failures: Vec::new() }
    }

    fn values(&self, of: impl Fn(&Round) -> &Values, metric: &Metric) -> Vec<f64> {
        self.rounds.iter().filter_map(|round| of(round).get(metric.key).copied()).collect()
    }

    pub(crate) fn spread(&self, metric: &Metric) -> Option<Spread> {
        Spread::of(&self.values(|round| &round.peer, metric))
    }

    /// Tenure's, in the runs beside this peer's.
    pub(crate) fn tenure_spread(&self, metric: &Metric) -> Option<Spread> {
        Spread::of(&self.values(|round| &round.tenure, metric))
    }

    /// The median of the rounds' ratios of the peer's value to Tenure's. None where Tenure's is zero.
    pub(crate) fn over_tenure(&self, metric: &Metric) -> Option<f64> {
        let ratios = self.rounds.iter().filter_map(|round| {
            let (peer, tenure) = (round.peer.get(metric.key)?, round.tenure.get(metric.key)?);
            if peer == tenure {
                return Some(1.0);
            }
            (*tenure != 0.0).then(|| peer / tenure)
        });
        median(ratios.collect())
    }

    /// Whether the peer is better than Tenure was beside it.
    pub(crate) fn is_ahead(&self, metric: &Metric) -> bool {
        self.over_tenure(metric).is_some_and(|ratio| metric.is_ahead(ratio))
    }

    /// How often two held the lock at once.
    pub(crate) fn overlaps(&self) -> (f64, f64) {
        let sum = |of: fn(&Round) -> &Values| {
            self.rounds.iter().filter_map(|round| of(round).get("overlaps")).sum()
        };
        (sum(|round| &round.peer), sum(|round| &round.tenure))
    }
}

impl Results {
    /// Tenure's of all rounds, beside all peers.
    pub(crate) fn tenure(&self, metric: &Metric) -> Option<Spread> {
        let all: Vec<_> =
            self.rows.iter().flat_map(|row| row.values(|round| &round.tenure, metric)).collect();
        Spread::of(&all)
    }

    /// What a reader must know: what failed, and locks that two held at once.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        let mut tenure_overlaps = 0.0;
        for row in &self.rows {
            let title = row.peer.title;
            remarks.extend(row.failures.iter().map(|why| format!("{title}: {why}.")));
            let (peer, tenure) = row.overlaps();
            tenure_overlaps += tenure;
            if peer > 0.0 {
                remarks.push(format!("{title}: two held the lock at once, {peer} times."));
            }
        }
        if tenure_overlaps > 0.0 {
            remarks.push(format!("Tenure: two held the lock at once, {tenure_overlaps} times."));
        }
        remarks
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::{metric, peer, work};
    use super::*;

    /// Two peers in three rounds: one is slower than Tenure, one is faster.
    pub(crate) fn example() -> Results {
        let row = |peer, times: [f64; 3]| {
            let round = |time| Round {
                peer: Values::from([("pair_us", time)]),
                tenure: Values::from([("pair_us", 100.0)]),
            };
            let rounds = times.into_iter().map(round).collect();
            Row { version: "1.2.3".into(), rounds, ..Row::new(peer) }
        };
        let mut rows = vec![
            row(&peer::ALL[0], [120.0, 130.0, 200.0]),
            row(&peer::ALL[5], [80.0, 90.0, 110.0]),
        ];
        rows[1].failures.push("it ended early".into());
        let (work, tenure_version) = (&work::ALL[0], "0.1.0".into());
        Results { work, rows, tenure_version, pings: vec![50.0] }
    }

    #[test]
    fn a_peer_is_compared_with_the_runs_beside_it() {
        let results = example();
        let [slower, faster] = &results.rows[..] else { panic!() };
        assert_eq!(slower.over_tenure(&metric::PAIR), Some(1.3));
        assert!(!slower.is_ahead(&metric::PAIR));
        assert!(faster.is_ahead(&metric::PAIR));
        assert_eq!(faster.spread(&metric::PAIR).unwrap().high, 110.0);
        assert_eq!(results.tenure(&metric::PAIR).unwrap().rounds, 6);
        assert_eq!(slower.over_tenure(&metric::RATE), None);
    }

    #[test]
    fn more_is_better_for_rates() {
        let mut row = Row::new(&peer::ALL[0]);
        let values = |rate| Values::from([("rate", rate)]);
        row.rounds.push(Round { peer: values(200.0), tenure: values(100.0) });
        assert!(row.is_ahead(&metric::RATE));
    }

    #[test]
    fn failures_and_overlaps_are_remarks() {
        let mut results = example();
        results.rows[0].rounds[0].peer.insert("overlaps", 2.0);
        let remarks = results.remarks();
        let expected =
            ["Redisson RLock: two held the lock at once, 2 times.", "rlock: it ended early."];
        assert_eq!(remarks, expected);
    }
}
