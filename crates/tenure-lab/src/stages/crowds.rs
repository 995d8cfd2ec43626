//! Many clients that wait.

use crate::experiment::{Client, Experiment, Outcome, let_pass};
use crate::history::What;
use crate::time::millis;

/// For how long each of them uses the lock, in milliseconds.
const SECTION: u64 = 20;

/// How long all of them may take.
const PATIENCE: std::time::Duration = millis(15_000);

/// Stage 8.
pub(super) fn eight_wait(it: &mut Experiment) -> Outcome {
    wait_in_line(it, 8)
}

/// Stage 9.
pub(super) fn sixteen_wait(it: &mut Experiment) -> Outcome {
    wait_in_line(it, 16)
}

/// The first client holds the lock until all others wait, in order; then each of them uses it once.
fn wait_in_line(it: &mut Experiment, count: u8) -> Outcome {
    let mut first = it.client("A")?;
    let name = |number: u8| char::from(b'B' + number).to_string();
    let others: Outcome<Vec<_>> = (0..count).map(|number| it.client(&name(number))).collect();
    let mut others = others?;
    first.acquires()?;
    it.count_requests(|_| {
        for other in &mut others {
            other.order(&format!("section {SECTION}"));
            other.until(PATIENCE, |what| *what == What::Asks);
            let_pass(15);
        }
        first.releases_if_it_holds();
        others.iter().try_for_each(has_used_it)
    })
}

fn has_used_it(client: &Client) -> Outcome {
    let used = client.until(PATIENCE, |what| *what == What::Releases);
    used.map(drop).ok_or_else(|| "a client did not get its turn in time".to_owned())
}
