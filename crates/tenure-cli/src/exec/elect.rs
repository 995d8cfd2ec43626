//! `tenure elect`: a command that runs on one machine at a time, for as long as it leads.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tenure::{About, Leadership, Tenure, WaiterInfo};

use crate::args::patience::Patience;
use crate::args::time::{period, time};
use crate::exec::job::{Job, OnLost, Outcome};
use crate::exec::session::{End, Session};
use crate::exec::signals::Signals;
use crate::view::waiting;

/// Run a command while leading an election
///
/// It waits until this candidate leads. When it does not any more, the command is ended, before its
/// lease is over, and the exit status is 76: start it again to stand again. Otherwise the exit status
/// is the command's own, as for `tenure run`.
#[derive(Args)]
#[command(override_usage = "tenure elect [OPTIONS] <NAME> -- <COMMAND>...
       tenure elect [OPTIONS] -c <LINE> <NAME>")]
pub(crate) struct Arguments {
    /// The name under which to stand, for others to see
    #[arg(long, value_name = "TEXT")]
    candidate: Option<String>,
    /// For how long a leader that crashed is still the leader
    #[arg(long, value_name = "TIME", value_parser = period, default_value = "15s")]
    lease: Duration,
    /// How long to lead without a confirmed renewal; two thirds of the lease if not given
    #[arg(long, value_name = "TIME", value_parser = time)]
    renew_deadline: Option<Duration>,
    #[command(flatten)]
    session: Session,
}

pub(crate) async fn elect(arguments: Arguments) -> ExitCode {
    let patience = Patience::new(None, arguments.session.verbose);
    let campaign = async |tenure: &Tenure| campaign(tenure, &arguments, &patience).await;
    let lead = async |tenure: &Tenure, leadership, signals: &mut Signals| {
        lead(tenure, leadership, &arguments, signals).await
    };
    arguments.session.conduct(&patience, campaign, lead).await
}

async fn campaign(
    tenure: &Tenure,
    arguments: &Arguments,
    patience: &Patience,
) -> Result<Leadership, ExitCode> {
    let mut election = tenure.election(arguments.session.name.as_str()).lease(arguments.lease);
    if let Some(time) = arguments.renew_deadline {
        election = election.renew_deadline(time);
    }
    if let Some(candidate) = &arguments.candidate {
        election = election.candidate(candidate);
    }
    // Whoever leads has the lock of that name.
    let lock = tenure.lock(arguments.session.name.as_str());
    let me = About::this_process();
    let is_me = |it: &WaiterInfo| (&it.about.host, it.about.pid) == (&me.host, me.pid);
    let leadership = tokio::select! {
        leadership = election.campaign() => leadership,
        never = waiting::tell(&lock, is_me, arguments.session.verbose) => never,
    };
    let leadership = leadership.map_err(|error| patience.told(&error))?;
    let (name, fence) = (leadership.guard().name(), leadership.fence());
    arguments.session.say(format_args!("leading `{name}` with fence {fence}"));
    Ok(leadership)
}

async fn lead(
    tenure: &Tenure,
    leadership: Leadership,
    arguments: &Arguments,
    signals: &mut Signals,
) -> End {
    // What is left of the lease from the renew deadline on is for the command to end in.
    // It is ended a quarter earlier than it must be, and leads until then.
    let grace = leadership.reserve() * 4 / 5;
    let url = arguments.session.store.for_child();
    let command = &arguments.session.command();
    let job = Job { tenure, command, url, on_lost: OnLost::Kill, grace };
    let outcome = job.run(leadership.guard(), signals).await;
    let held = (leadership.guard().name().clone(), leadership.owner());
    if matches!(outcome, Outcome::Ended(_)) {
        arguments.session.say(format_args!("resigning from `{}`", held.0));
    }
    job.conclude(outcome, &held, leadership.resign()).await
}
