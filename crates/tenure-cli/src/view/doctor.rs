//! `tenure doctor`: is this store fit for locks?

use std::fmt::Display;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tenure::engine::{Finding, Severity};
use tenure::{Error, Tenure};
use tenure_serve::shape;

use crate::args::store::{Store, Unusable};
use crate::exit::advice;
use crate::view::format::plain;
use crate::view::help;
use crate::view::output::Form;

/// Examine the store: is it fit for locks?
///
/// Every operation is tried on a lock of its own. Each finding comes with advice. The exit status is 1 if there is a
/// problem, and 69 if the store cannot be reached.
#[derive(Args)]
#[command(after_long_help = help::VIEW)]
pub(crate) struct Arguments {
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    store: Store,
}

pub(crate) async fn doctor(arguments: Arguments) -> Result<(), ExitCode> {
    let examined = examine(&arguments.store).await;
    let findings = examined.map_err(|unusable| unusable.report())?;
    let lines = || findings.iter().map(lines).collect();
    let objects = || json!({ "findings": findings.iter().map(shape::finding).collect::<Vec<_>>() });
    arguments.form.print(lines, objects)?;
    match findings.iter().any(|finding| finding.severity == Severity::Problem) {
        true => Err(ExitCode::FAILURE),
        false => Ok(()),
    }
}

/// A refusal is to be reported, and not retried for long; the reply of a store that is far away may still arrive.
const PATIENCE: Duration = Duration::from_secs(2);

/// Tries every operation, and asks the store for its own findings.
async fn examine(store: &Store) -> Result<Vec<Finding>, Unusable> {
    let builder = || Tenure::builder().patience(PATIENCE);
    let tenure = match store.connect_with(builder).await {
        Err(Unusable::Store(Error::Connect { error: trouble })) if trouble.is_answer() => {
            return Ok(vec![ill(&trouble)]);
        }
        connected => connected?,
    };
    let tried = exercise(&tenure).await;
    // If this is answered, the store was reached, and has refused an operation: that is a finding, too.
    let mut findings = tenure.checkup().await.map_err(Unusable::Store)?;
    findings.insert(0, tried.map_or_else(|error| ill(&error), |()| well()));
    Ok(findings)
}

async fn exercise(tenure: &Tenure) -> Result<(), Error> {
    let name = format!("tenure-doctor/{}", tenure::Owner::new());
    let lock = tenure.lock(name.as_str());
    let guard = lock.acquire().await?;
    guard.renew().await?;
    // Joins the queue, and leaves it.
    let waited = lock.acquire_within(Duration::from_millis(20)).await;
    if let Err(error) = waited
        && !matches!(error, Error::TimedOut { .. })
    {
        return Err(error);
    }
    lock.inspect().await?;
    tenure.list(&name, 1).await?;
    guard.release().await?;
    lock.force_release("tried by the doctor").await.map(drop)
}

fn well() -> Finding {
    Finding::fine("operations", "a lock was acquired, renewed, waited for, shown and released")
}

fn ill(why: &impl Display) -> Finding {
    let found = why.to_string();
    let advice = advice(&found).unwrap_or("see what the server says, and what else is found");
    Finding::bad("operations", Severity::Problem, found, advice)
}

fn lines(finding: &Finding) -> String {
    let found = plain(&finding.found);
    let mut lines = format!("{:<8} {}: {found}\n", shape::severity(finding), finding.topic);
    if !finding.advice.is_empty() {
        lines += &format!("{:<8} {}\n", "", finding.advice);
    }
    lines
}
