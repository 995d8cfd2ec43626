//! `tenure quorum init`: marks servers as the nodes of one quorum.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use tenure::Lease;
use tenure::engine::QuorumEngine;

use crate::args::store::Store;
use crate::args::time::period;
use crate::exit::Exit;
use crate::view::help;
use crate::view::output::Form;

/// Quorums of independent servers.
#[derive(Args)]
#[command(after_long_help = help::VIEW)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Init(Init),
}

/// Mark new, empty servers as the nodes of one quorum.
///
/// Once, before the first client connects. A node that loses its data loses its marker, and does not count until the
/// longest lease has passed; then clients mark it again by themselves.
#[derive(Args)]
struct Init {
    /// The longest lease that clients may ask for; 60 s unless the quorum exists. A node that has lost its data, or was
    /// restarted, does not count for this long and 30 s
    #[arg(long, value_name = "TIME", value_parser = max_lease)]
    max_lease: Option<Duration>,
    /// Mark servers that are not empty, or belong to another quorum, and nodes that have lost their marker, at once.
    /// Only right if no client holds a lock
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    store: Store,
}

/// Clients that ask for no other lease have the default one.
fn max_lease(text: &str) -> Result<Duration, String> {
    let (time, least) = (period(text)?, Lease::DEFAULT.duration());
    if time < least {
        return Err(format!(
            "it must be {least:?} at least, the lease that clients have unless they ask for another"
        ));
    }
    Ok(time)
}

pub(crate) async fn quorum(arguments: Arguments) -> Result<(), ExitCode> {
    let Action::Init(Init { max_lease, force, form, store }) = arguments.action;
    let url = store.url().map_err(|why| Exit::Usage.because(&why))?;
    let done = QuorumEngine::mark_nodes(&url, max_lease, force).await;
    let done = done.map_err(|error| Exit::report(&error))?;
    form.print(|| done.join("\n") + "\n", || json!({ "done": done }))
}
