//! `tenure ls` and `tenure show`: who holds what.

use std::process::ExitCode;

use clap::Args;
use comfy_table::{Table, presets};
use serde_json::json;
use tenure::LockInfo;

use crate::exit::Exit;
use crate::store::Store;
use crate::words::{self, ago, for_people, plain, who};

/// List the locks that are held or wanted
#[derive(Args)]
pub(crate) struct List {
    /// Only names that begin with this
    #[arg(default_value = "")]
    prefix: String,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
    /// For programs: one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: Store,
}

/// Show one lock: who holds it, and who waits for it, in order
#[derive(Args)]
pub(crate) struct Show {
    /// For programs: one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    store: Store,
    /// The name of the lock
    name: String,
}

pub(crate) async fn list(arguments: List) -> ExitCode {
    let listed = match arguments.store.connect().await {
        Ok(tenure) => tenure.list(&arguments.prefix, arguments.limit).await,
        Err(error) => Err(error),
    };
    let locks = match listed {
        Ok(locks) => locks,
        Err(error) => return Exit::of(&error).because(&error),
    };
    if arguments.json {
        println!("{}", json!({ "locks": locks.iter().map(words::lock).collect::<Vec<_>>() }));
    } else {
        println!("{}", table(&locks));
    }
    ExitCode::SUCCESS
}

fn table(locks: &[LockInfo]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["NAME", "KIND", "HOLDER", "HELD FOR", "LEASE LEFT", "WAITERS", "FENCE"]);
    for lock in locks {
        let first = lock.holders.first();
        let others = match lock.holders.len() {
            0 | 1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        table.add_row([
            plain(lock.name.as_str()),
            lock.kind.map(|kind| kind.to_string()).unwrap_or_default(),
            first.map(|it| who(&it.about) + &others).unwrap_or_default(),
            first.map(|it| ago(it.since)).unwrap_or_default(),
            first.map(|it| for_people(it.lease_left)).unwrap_or_default(),
            lock.waiting.to_string(),
            first.map(|it| it.fence.to_string()).unwrap_or_default(),
        ]);
    }
    table
}

pub(crate) async fn show(arguments: Show) -> ExitCode {
    let shown = match arguments.store.connect().await {
        Ok(tenure) => tenure.lock(arguments.name.as_str()).inspect().await,
        Err(error) => Err(error),
    };
    let lock = match shown {
        Ok(lock) => lock,
        Err(error) => return Exit::of(&error).because(&error),
    };
    if arguments.json {
        println!("{}", words::lock(&lock));
    } else {
        print(&lock);
    }
    ExitCode::SUCCESS
}

fn print(lock: &LockInfo) {
    let name = plain(lock.name.as_str());
    match lock.kind {
        Some(kind) => println!("{name}: {kind}, limit {}", lock.limit),
        None => println!("{name}: free"),
    }
    for holder in &lock.holders {
        println!("  held by {}", who(&holder.about));
        println!(
            "    since {} ago, lease left {}",
            ago(holder.since),
            for_people(holder.lease_left)
        );
        println!("    owner {}, fence {}, permits {}", holder.owner, holder.fence, holder.permits);
        if holder.entries == 0 {
            println!("    released, and kept for its least time");
        }
    }
    if lock.waiting > 0 {
        println!("  {} waiting", lock.waiting);
    }
    for (place, waiter) in lock.waiters.iter().enumerate() {
        println!("  {:>3}. {}, for {}", place + 1, who(&waiter.about), ago(waiter.since));
    }
    if let Some(forced) = &lock.forced {
        let (by, reason) = (who(&forced.by), plain(&forced.reason));
        println!("  release forced {} ago by {by}: {reason}", ago(forced.at));
    }
}
