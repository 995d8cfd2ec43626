//! Results as JSON.

use serde_json::{Map, Value, json};

use super::machine::Facts;
use super::metric::Values;
use super::results::{Results, Row};

pub(crate) fn json(all: &[Results], facts: &Facts, skipped: &[String]) -> Value {
    let machine: Map<_, _> =
        facts.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    let works: Vec<_> = all.iter().map(work).collect();
    json!({ "machine": machine, "left_out": skipped, "works": works })
}

fn work(results: &Results) -> Value {
    let work = results.work;
    json!({
        "work": work.name,
        "what": work.what,
        "processes": work.processes,
        "callers": work.callers,
        "section_ms": work.section_ms,
        "tenure": results.tenure_version,
        "ping_us": results.pings,
        "peers": results.rows.iter().map(|row| peer(row, results)).collect::<Vec<_>>(),
    })
}

fn peer(row: &Row, results: &Results) -> Value {
    let metric = |metric: &super::metric::Metric| {
        let [theirs, ours] = [row.spread(metric)?, row.tenure_spread(metric)?].map(
            |spread| json!({ "median": spread.median, "low": spread.low, "high": spread.high }),
        );
        let value = json!({
            "peer": theirs,
            "tenure": ours,
            "peer_over_tenure": row.over_tenure(metric),
            "peer_is_ahead": row.is_ahead(metric),
        });
        Some((metric.key.to_owned(), value))
    };
    let round = |values: &Values| -> Map<String, Value> {
        values.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect()
    };
    let rounds = row.rounds.iter();
    let rounds = rounds.map(|it| json!({ "peer": round(&it.peer), "tenure": round(&it.tenure) }));
    json!({
        "peer": row.peer.name,
        "version": row.version,
        "failures": row.failures,
        "metrics": results.work.metrics.iter().filter_map(metric).collect::<Map<_, _>>(),
        "rounds": rounds.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::example;
    use super::*;

    #[test]
    fn rounds_and_medians_are_both_in_the_document() {
        let json = json(&[example()], &vec![("server", "Redis 7".to_owned())], &[]);
        assert_eq!(json["machine"]["server"], "Redis 7");
        let peer = &json["works"][0]["peers"][1];
        assert_eq!(peer["peer"], "rlock");
        assert_eq!(peer["metrics"]["pair_us"]["peer"]["median"], 90.0);
        assert_eq!(peer["metrics"]["pair_us"]["peer_is_ahead"], true);
        assert_eq!(peer["rounds"][0]["tenure"]["pair_us"], 100.0);
    }
}
