//! `tenure doctor`: is this store fit for locks?

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tenure::engine::{Finding, Severity};
use tenure::{Error, Tenure};

use crate::exit::Exit;
use crate::store::Store;

/// Examine the store: is it fit for locks?
///
/// Every operation is tried on a lock of its own. Each finding comes with what to do about it. The
/// exit status is 1 if there is a problem.
#[derive(Args)]
pub(crate) struct Arguments {
    /// For programs: one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: Store,
}

pub(crate) async fn doctor(arguments: Arguments) -> ExitCode {
    let findings = match examine(&arguments.store).await {
        Ok(findings) => findings,
        Err(error) => return Exit::of(&error).because(&error),
    };
    if arguments.json {
        println!("{}", json!({ "findings": findings.iter().map(object).collect::<Vec<_>>() }));
    } else {
        findings.iter().for_each(print);
    }
    let is_ill = findings.iter().any(|finding| finding.severity == Severity::Problem);
    ExitCode::from(u8::from(is_ill))
}

/// Tries every operation, and then asks the store about itself.
async fn examine(store: &Store) -> Result<Vec<Finding>, Error> {
    let tenure = store.connect().await?;
    exercise(&tenure).await?;
    tenure.checkup().await
}

async fn exercise(tenure: &Tenure) -> Result<(), Error> {
    let lock = tenure.lock(format!("tenure-doctor/{}", tenure::Owner::new()));
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
    guard.release().await?;
    lock.force_release("tried by the doctor").await.map(drop)
}

fn print(finding: &Finding) {
    let sign = sign(finding.severity);
    println!("{sign:<8} {}: {}", finding.topic, finding.found);
    if !finding.advice.is_empty() {
        println!("{:<8} {}", "", finding.advice);
    }
}

fn object(finding: &Finding) -> serde_json::Value {
    json!({
        "topic": finding.topic,
        "severity": sign(finding.severity),
        "found": finding.found,
        "advice": finding.advice,
    })
}

fn sign(severity: Severity) -> &'static str {
    match severity {
        Severity::Fine => "fine",
        Severity::Warning => "warning",
        _ => "problem",
    }
}
