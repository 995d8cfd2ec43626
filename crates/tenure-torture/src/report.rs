//! What a run prints.

use serde_json::{Value, json};

use crate::checker::Verdict;
use crate::register::Tally;
use crate::residue::Residue;

/// How many violations are printed.
const SHOWN: usize = 10;

/// Everything that is known at the end of a run.
pub(crate) struct Report<'a> {
    pub(crate) verdict: &'a Verdict,
    /// Missing when a history is judged again.
    pub(crate) tally: Option<Tally>,
    pub(crate) residue: Option<&'a Residue>,
}

impl Report<'_> {
    /// Why the run counts as failed, in sentences; none if it does not.
    pub(crate) fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        let violations = self.verdict.violations.len();
        if violations > 0 {
            failures.push(format!("{violations} violations of what is promised"));
        }
        if let Some(tally) = self.tally.filter(|tally| tally.lost_fenced > 0) {
            failures.push(format!("{} updates were overwritten despite fences", tally.lost_fenced));
        }
        failures.extend(self.residue.iter().flat_map(|residue| residue.failures()));
        failures
    }

    pub(crate) fn print(&self) {
        let verdict = self.verdict;
        let operations = verdict.sections + verdict.granted + verdict.accepted + verdict.refused;
        println!("operations            {operations}");
        println!("sections              {} of {} waits", verdict.granted, verdict.sections);
        println!("faults                {}", verdict.faults.values().sum::<usize>());
        for (fault, count) in &verdict.faults {
            println!("  {fault:<20}{count}");
        }
        println!("refused by the fence  {} late writes", verdict.refused);
        if let Some(tally) = self.tally {
            println!("lost without a fence  {} updates", tally.lost_unfenced);
            println!("lost with a fence     {} updates", tally.lost_fenced);
        }
        println!("two holders, excused  {}", verdict.excused_overlaps);
        println!("fences, excused       {}", verdict.excused_fences);
        println!("waits in order        {} judged", verdict.ordered_waits);
        if let Some(residue) = self.residue {
            residue.print();
        }
        println!("violations            {}", verdict.violations.len());
        verdict.violations.iter().take(SHOWN).for_each(|violation| println!("  {violation}"));
        if verdict.refused == 0 {
            println!("No write came too late: this run proves nothing about fences.");
        }
    }

    pub(crate) fn json(&self) -> Value {
        let verdict = self.verdict;
        json!({
            "sections": verdict.sections,
            "granted": verdict.granted,
            "accepted": verdict.accepted,
            "refused_by_fence": verdict.refused,
            "faults": verdict.faults,
            "lost_unfenced": self.tally.map(|tally| tally.lost_unfenced),
            "lost_fenced": self.tally.map(|tally| tally.lost_fenced),
            "excused_overlaps": verdict.excused_overlaps,
            "excused_fences": verdict.excused_fences,
            "ordered_waits": verdict.ordered_waits,
            "violations": verdict.violations.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "failures": self.failures(),
        })
    }
}
