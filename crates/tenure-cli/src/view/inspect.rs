//! `tenure ls` and `tenure show`: who holds what.

use std::fmt::{self, Display, Formatter};
use std::process::ExitCode;

use clap::Args;
use tenure::{Kind, LockInfo};
use tenure_serve::shape;

use crate::args::store::Store;
use crate::exit::Exit;
use crate::view::format::{ago, fence, for_people, holds, known, plain, who};
use crate::view::help;
use crate::view::output::{Form, columns, say};
use crate::view::table;

/// List the locks that are held or wanted
#[derive(Args)]
#[command(after_long_help = help::VIEW)]
pub(crate) struct List {
    /// Only names that begin with this
    #[arg(default_value = "")]
    prefix: String,
    /// The most locks to list
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: usize,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    store: Store,
}

/// Show one lock: its holders and its waiters, in order
#[derive(Args)]
#[command(after_long_help = help::VIEW)]
pub(crate) struct Show {
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    store: Store,
    /// The name of the lock
    name: String,
}

pub(crate) async fn list(arguments: List) -> Result<(), ExitCode> {
    let tenure = arguments.store.connect().await?;
    let listed = tenure.list(&arguments.prefix, arguments.limit.saturating_add(1)).await;
    let mut locks = listed.map_err(|error| Exit::report(&error))?;
    let more = locks.len() > arguments.limit;
    locks.truncate(arguments.limit);
    let objects = || shape::locks(&locks, more);
    arguments.form.print(|| format!("{}\n", table::table(&locks, columns())), objects)?;
    for (lock, trouble) in locks.iter().filter_map(|lock| Some((lock, lock.error.as_ref()?))) {
        say(format_args!("`{}` cannot be read: {trouble}", lock.name));
    }
    if more {
        say("there are more: raise --limit, or give a prefix");
    }
    Ok(())
}

pub(crate) async fn show(arguments: Show) -> Result<(), ExitCode> {
    let tenure = arguments.store.connect().await?;
    let shown = tenure.lock(arguments.name.as_str()).inspect().await;
    let lock = shown.map_err(|error| Exit::report(&error))?;
    arguments.form.print(|| LockView(&lock).to_string(), || shape::lock(&lock))
}

/// A lock, on several lines for users.
struct LockView<'a>(&'a LockInfo);

impl Display for LockView<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let lock = self.0;
        let name = plain(lock.name.as_str());
        match lock.kind {
            // The limit of these kinds is not chosen by a caller.
            Some(kind @ (Kind::Mutex | Kind::ReadWrite)) => writeln!(f, "{name}: {kind}")?,
            Some(kind) => writeln!(f, "{name}: {kind}, limit {}", lock.limit)?,
            None if lock.is_free() => writeln!(f, "{name}: free")?,
            None => writeln!(f, "{name}: unknown")?,
        }
        for it in &lock.holders {
            writeln!(f, "  held by {}", holds(lock, it))?;
            let since = known(it.since).map(|since| format!("since {} ago, ", ago(since)));
            let left = for_people(it.lease_left);
            writeln!(f, "    {}lease left {left}", since.unwrap_or_default())?;
            let share = match lock.kind {
                Some(Kind::Mutex) => String::new(),
                Some(Kind::ReadWrite) if it.permits == lock.limit => ", writes".to_owned(),
                Some(Kind::ReadWrite) => ", reads".to_owned(),
                _ => format!(", permits {}", it.permits),
            };
            let fence = fence(it.fence).map(|fence| format!(", fence {fence}")).unwrap_or_default();
            let entries = match it.entries {
                0 | 1 => String::new(),
                entries => format!(", entered {entries} times"),
            };
            writeln!(f, "    owner {}{fence}{share}{entries}", it.owner)?;
            if it.entries == 0 {
                writeln!(f, "    released, and kept for its least time")?;
            }
        }
        if let more @ 1.. = lock.holding.saturating_sub(lock.holders.len()) {
            writeln!(f, "  and {more} more")?;
        }
        if lock.waiting > 0 {
            writeln!(f, "  {} waiting", lock.waiting)?;
        }
        for (place, it) in lock.waiters.iter().enumerate() {
            writeln!(f, "  {:>3}. {}, for {}", place + 1, who(&it.about), ago(it.since))?;
        }
        if let more @ 1.. = lock.waiting.saturating_sub(lock.waiters.len()) {
            writeln!(f, "       and {more} more")?;
        }
        if let Some(forced) = &lock.forced {
            let (by, reason) = (who(&forced.by), plain(&forced.reason));
            writeln!(f, "  release forced {} ago by {by}: {reason}", ago(forced.at))?;
        }
        if let Some(trouble) = &lock.error {
            writeln!(f, "  {}", plain(trouble))?;
        }
        if let Some(others) = &lock.disagreement {
            writeln!(f, "  not all nodes agree: {}", plain(others))?;
        }
        Ok(())
    }
}
