//! `tenure elect`: a command that runs on one machine at a time, for as long as it leads.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tenure::{Leadership, Tenure};

use crate::exit::Exit;
use crate::job::{Job, OnLost};
use crate::session::Session;
use crate::signals::Signals;
use crate::store::Store;
use crate::time::time;
use crate::voice::verbosely;
use crate::waiting;

/// Run a command while leading an election
///
/// It waits until this candidate leads. When it does not any more, the command is ended before another
/// can lead, and the exit status is 76: start it again to stand again. Otherwise the exit status is
/// the command's own, as for `tenure run`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The name under which to stand, for others to see
    #[arg(long, value_name = "TEXT")]
    candidate: Option<String>,
    /// For how long a leader that crashed is still the leader
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "15s")]
    lease: Duration,
    /// How long to lead without a confirmed renewal
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "10s")]
    renew_deadline: Duration,
    /// Say what happens, on standard error
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    store: Store,
    /// The name of the election
    name: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) async fn elect(arguments: Arguments) -> ExitCode {
    let mut session = match Session::open(&arguments.store).await {
        Ok(session) => session,
        Err(code) => return code,
    };
    let Session { tenure, signals } = &mut session;
    let leadership = tokio::select! {
        leadership = campaign(tenure, &arguments) => leadership,
        code = signals.end() => Err(code),
    };
    let code = match leadership {
        Ok(leadership) => lead(&leadership, &arguments, signals).await,
        Err(code) => return session.leave(code).await,
    };
    session.close(code).await
}

async fn campaign(tenure: &Tenure, arguments: &Arguments) -> Result<Leadership, ExitCode> {
    let mut election = tenure.election(arguments.name.as_str()).lease(arguments.lease);
    election = election.renew_deadline(arguments.renew_deadline);
    if let Some(candidate) = &arguments.candidate {
        election = election.candidate(candidate);
    }
    // Whoever leads has the lock of that name.
    let lock = tenure.lock(arguments.name.as_str());
    let leadership = tokio::select! {
        leadership = election.campaign() => leadership,
        never = waiting::tell(&lock) => never,
    };
    let leadership = leadership.map_err(|error| Exit::of(&error).because(&error))?;
    let (name, fence) = (leadership.guard().name(), leadership.fence());
    verbosely(arguments.verbose, format_args!("leading `{name}` with fence {fence}"));
    Ok(leadership)
}

async fn lead(
    leadership: &Leadership,
    arguments: &Arguments,
    signals: &mut Signals,
) -> Result<ExitCode, Exit> {
    // What is left of the lease from the renew deadline on is for the command to end in.
    let grace = arguments.lease.saturating_sub(arguments.renew_deadline);
    let url = arguments.store.for_child();
    let job = Job { command: &arguments.command, url, on_lost: OnLost::Kill, grace };
    let code = job.run(leadership.guard(), signals).await?;
    verbosely(arguments.verbose, format_args!("resigning from `{}`", leadership.guard().name()));
    Ok(code.map_or_else(|told| told, ExitCode::from))
}
