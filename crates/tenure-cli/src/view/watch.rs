//! `tenure watch`: a line for every change.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tenure::{LockInfo, Tenure};
use tenure_serve::shape;

use crate::args::store::Store;
use crate::args::time::{interval, pause};
use crate::exit::Exit;
use crate::view::format::{clock, clock_ms, holds, plain};
use crate::view::help;
use crate::view::output::{Form, say};

/// Follow the locks: a line for every change, until it is interrupted
///
/// The store is polled: a change that is undone between two polls is not shown.
#[derive(Args)]
#[command(after_long_help = help::VIEW)]
pub(crate) struct Arguments {
    /// Only names that begin with this
    #[arg(default_value = "")]
    prefix: String,
    /// The polling interval
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "1s")]
    interval: Duration,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    store: Store,
}

/// How many locks are followed at most.
const MOST: usize = 10_000;

pub(crate) async fn watch(arguments: Arguments) -> Result<(), ExitCode> {
    let tenure = arguments.store.connect().await?;
    let mut before: BTreeMap<String, LockInfo> = BTreeMap::new();
    let mut is_away = false;
    loop {
        let listed = list(&tenure, &arguments.prefix).await;
        let now = match listed {
            Ok(now) => now,
            // The store may become reachable again; changes are shown then.
            Err(error) if Exit::of(&error) == Exit::Unavailable => {
                if !is_away {
                    say(error);
                }
                is_away = true;
                pause(arguments.interval).await;
                continue;
            }
            Err(error) => return Err(Exit::report(&error)),
        };
        if std::mem::take(&mut is_away) {
            say("the store can be reached again");
        }
        for (name, info) in &now {
            if before.get(name).is_none_or(|earlier| differs(earlier, info)) {
                arguments.form.print(|| line(&sentence(info)), || stamped(shape::lock(info)))?;
            }
        }
        for name in before.keys().filter(|name| !now.contains_key(*name)) {
            let free = || {
                let fields = json!({ "name": name, "kind": null, "holding": 0, "holders": [], "waiting": 0 });
                stamped(fields)
            };
            arguments.form.print(|| line(&format!("{}: free", plain(name))), free)?;
        }
        before = now;
        pause(arguments.interval).await;
    }
}

async fn list(tenure: &Tenure, prefix: &str) -> Result<BTreeMap<String, LockInfo>, tenure::Error> {
    let locks = tenure.list(prefix, MOST).await?;
    Ok(locks.into_iter().map(|info| (info.name.as_str().to_owned(), info)).collect())
}

/// Other holders, or another number of waiters. A renewed lease is no change.
fn differs(earlier: &LockInfo, now: &LockInfo) -> bool {
    // Of many holders, a list has those whose leases end first: others after every renewal.
    let are_all = |info: &LockInfo| info.holding <= info.holders.len();
    let holders = |info: &LockInfo| {
        let holders = info.holders.iter().filter(|_| are_all(info));
        holders.map(|it| (it.owner, it.fence, it.permits)).collect::<Vec<_>>()
    };
    earlier.waiting != now.waiting
        || earlier.holding != now.holding
        || earlier.error.is_some() != now.error.is_some()
        || holders(earlier) != holders(now)
}

/// A line of its own, with the time.
fn line(sentence: &str) -> String {
    format!("{} {sentence}\n", clock())
}

fn stamped(mut object: Value) -> Value {
    object["at_ms"] = clock_ms().into();
    object
}

fn sentence(info: &LockInfo) -> String {
    if let Some(trouble) = &info.error {
        return format!("{}: unknown: {}", plain(info.name.as_str()), plain(trouble));
    }
    let holders: Vec<_> = info.holders.iter().map(|holder| holds(info, holder)).collect();
    let more = match info.holding.saturating_sub(holders.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let held = match holders.is_empty() {
        true => "not held".to_owned(),
        false => format!("held by {}{more}", holders.join(", ")),
    };
    format!("{}: {held}; {} waiting", plain(info.name.as_str()), info.waiting)
}
