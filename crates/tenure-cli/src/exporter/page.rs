//! The page that Prometheus reads, in its text format.

use std::collections::BTreeSet;
use std::fmt::Display;

use tenure::engine::Finding;
use tenure_serve::shape;

use super::survey::{Group, Survey};

/// The page. Without a survey the store could not be reached.
pub(super) fn page(survey: Option<&Survey>, findings: &[Finding]) -> String {
    let mut page = Page(String::new());
    page.family("tenure_build_info", "The version of the exporter.");
    page.sample("tenure_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.family("tenure_store_up", "Whether the store could be read.");
    page.sample("tenure_store_up", &[], u8::from(survey.is_some()));
    if let Some(survey) = survey {
        page.locks(survey);
        page.health(survey);
    }
    page.family(
        "tenure_store_finding",
        "A finding of `tenure doctor` about the store, once a minute.",
    );
    // Each node of a cluster has its own, and a series may be there only once.
    let found: BTreeSet<_> = findings.iter().map(|it| (it.topic, shape::severity(it))).collect();
    for (topic, severity) in found {
        page.sample("tenure_store_finding", &[("topic", topic), ("severity", severity)], 1);
    }
    page.0
}

/// A metric of a group of locks: its name, its meaning and its value.
type Metric = (&'static str, &'static str, fn(&Group) -> f64);

const METRICS: [Metric; 5] = [
    ("tenure_store_locks", "Locks with holders or waiters.", |group| group.locks as f64),
    ("tenure_store_holders", "Holders of locks.", |group| group.holders as f64),
    ("tenure_store_waiters", "Clients in the queues of locks.", |group| group.waiters as f64),
    (
        "tenure_store_oldest_hold_seconds",
        "For how long the oldest holder has held its lock.",
        |group| group.oldest_hold.as_secs_f64(),
    ),
    ("tenure_store_oldest_wait_seconds", "For how long the oldest waiter has waited.", |group| {
        group.oldest_wait.as_secs_f64()
    }),
];

struct Page(String);

impl Page {
    fn locks(&mut self, survey: &Survey) {
        for (name, meaning, value) in METRICS {
            self.family(name, meaning);
            for ((prefix, kind), group) in &survey.groups {
                self.sample(name, &[("prefix", prefix), ("kind", kind)], value(group));
            }
        }
        self.single(
            "tenure_store_unreadable_locks",
            "Locks that the store cannot read.",
            survey.unreadable,
        );
        let meaning = "Whether there are more locks than were read: see --limit.";
        self.single("tenure_store_truncated", meaning, u8::from(survey.is_truncated));
    }

    fn health(&mut self, survey: &Survey) {
        let meaning = "How long it took to read the locks.";
        self.single("tenure_store_read_seconds", meaning, survey.time.as_secs_f64());
        self.family(
            "tenure_store_link_up",
            "Whether a connection of the exporter to the store is up.",
        );
        for link in &survey.links {
            let node = link.node.as_deref().unwrap_or_default();
            self.sample(
                "tenure_store_link_up",
                &[("link", link.link), ("node", node)],
                u8::from(link.is_up),
            );
        }
    }

    fn single(&mut self, name: &str, meaning: &str, value: impl Display) {
        self.family(name, meaning);
        self.sample(name, &[], value);
    }

    fn family(&mut self, name: &str, meaning: &str) {
        self.0 += &format!("# HELP {name} {meaning}\n# TYPE {name} gauge\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<_> =
            labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        self.0 += &format!("{name}{labels} {value}\n");
    }
}

/// The value of a label: an operator chooses prefixes, and a server its name.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_cannot_be_reached_is_down() {
        let page = page(None, &[]);
        assert!(page.contains("\ntenure_store_up 0\n"), "{page}");
        assert!(!page.contains("tenure_store_locks"), "{page}");
    }

    #[test]
    fn labels_are_escaped() {
        let mut survey = Survey::default();
        let group = Group { locks: 2, ..Group::default() };
        survey.groups.insert(("a\"\\\n".to_owned(), "mutex"), group);
        let page = page(Some(&survey), &[]);
        assert!(page.contains(r#"tenure_store_locks{prefix="a\"\\\n",kind="mutex"} 2"#), "{page}");
    }

    #[test]
    fn a_finding_of_several_nodes_is_one_series() {
        let finding = || Finding::fine("clock", "it is that of this machine");
        let page = page(None, &[finding(), finding()]);
        assert_eq!(page.matches("tenure_store_finding{").count(), 1, "{page}");
    }
}
