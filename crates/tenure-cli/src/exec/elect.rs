//! `tenure elect`: a command that runs on one machine at a time, for as long as it leads.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tenure::{About, Election, Error, Leadership, Tenure, WaiterInfo};

use crate::args::patience::Patience;
use crate::args::replica_args::ReplicaArgs;
use crate::args::time::{period, time};
use crate::args::wait_args::{Limit, WaitArgs};
use crate::exec::job::{Job, OnLost, Outcome};
use crate::exec::session::{End, Session, before_signals, leave_queue};
use crate::exec::signals::Signals;
use crate::view::help;

/// Run a command while leading an election
///
/// Waits until this candidate leads. When it stops leading, the command is ended, before its
/// lease is over, and the exit status is 76, or it stands again with --stand-again. Otherwise the exit status
/// is the command's own, as for `tenure run`.
#[derive(Args)]
#[command(override_usage = "tenure elect [OPTIONS] <NAME> -- <COMMAND>...
       tenure elect [OPTIONS] -c <LINE> <NAME>",
    after_long_help = help::ELECT)]
pub(crate) struct Arguments {
    /// The candidate's name, which is shown with the leader
    #[arg(long, value_name = "TEXT")]
    candidate: Option<String>,
    #[command(flatten)]
    wait_args: WaitArgs,
    /// Stand again when leadership was lost, also if the store cannot be reached meanwhile, and run the command anew
    #[arg(long)]
    stand_again: bool,
    /// For how long a leader that crashed is still the leader
    #[arg(long, value_name = "TIME", value_parser = period, default_value = "15s")]
    lease: Duration,
    /// How long to lead without a confirmed renewal; two thirds of the lease if not given
    #[arg(long, value_name = "TIME", value_parser = time)]
    renew_deadline: Option<Duration>,
    #[command(flatten)]
    replica_args: ReplicaArgs,
    #[command(flatten)]
    session: Session,
}

pub(crate) async fn elect(arguments: Arguments) -> ExitCode {
    let patience = arguments.wait_args.patience(arguments.session.verbose);
    let campaign = async |tenure: &Tenure| campaign(tenure, &arguments, &patience).await;
    let lead = async |tenure: &Tenure, leadership, signals: &mut Signals| {
        lead_until_end(tenure, leadership, &arguments, signals).await
    };
    arguments.session.run(&patience, campaign, lead).await
}

async fn campaign(
    tenure: &Tenure,
    arguments: &Arguments,
    patience: &Patience,
) -> Result<Leadership, ExitCode> {
    let name = arguments.session.name.as_str();
    let election = tenure.election(name).lease(arguments.lease);
    let mut election = arguments.replica_args.election(election);
    if let Some(time) = arguments.renew_deadline {
        election = election.renew_deadline(time);
    }
    if let Some(candidate) = &arguments.candidate {
        election = election.candidate(candidate);
    }
    // The leader holds the lock of that name.
    let lock = tenure.lock(name);
    let me = About::this_process();
    let is_me = |it: &WaiterInfo| (&it.about.host, it.about.pid) == (&me.host, me.pid);
    let request =
        patience.retry(async || request(&election, arguments.wait_args.limit(patience)).await);
    let progress = (patience, arguments.session.verbose);
    let leadership = arguments.wait_args.acquire((name, &lock), request, is_me, progress).await?;
    let (name, fence) = (leadership.guard().name(), leadership.fence());
    arguments.session.say(format_args!("leading `{name}` with fence {fence}"));
    Ok(leadership)
}

/// The leadership, or none if another candidate leads and is not to be waited for.
async fn request(election: &Election, limit: Limit) -> Result<Option<Leadership>, Error> {
    match limit {
        Limit::Now => election.try_campaign().await,
        Limit::Within(time) => election.campaign_within(time).await.map(Some),
        Limit::Forever => election.campaign().await.map(Some),
    }
}

/// Leads until the command ends by itself, or leadership is lost and the candidate does not stand again.
async fn lead_until_end(
    tenure: &Tenure,
    mut leadership: Leadership,
    arguments: &Arguments,
    signals: &mut Signals,
) -> End {
    loop {
        let end = lead(tenure, leadership, arguments, signals).await;
        if !arguments.stand_again || !matches!(end, End::Lost) {
            return end;
        }
        arguments.session.say(format_args!("standing for `{}` again", arguments.session.name));
        // Leadership is lost most often because the store cannot be reached.
        let patience = arguments.wait_args.endless_patience(arguments.session.verbose);
        let stood = before_signals(signals, campaign(tenure, arguments, &patience)).await;
        leadership = match stood {
            Ok(leadership) => leadership,
            Err(end) => return leave_queue(tenure, end).await,
        };
    }
}

async fn lead(
    tenure: &Tenure,
    leadership: Leadership,
    arguments: &Arguments,
    signals: &mut Signals,
) -> End {
    // The rest of the lease after the renew deadline is for the command to end in.
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
