//! `tenure acquire`, `renew` and `release`: locks that outlive the command, for scripts; and forced releases.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tenure::engine::ForceOutcome;
use tenure::{Error, Handle, LockName, Owner, Released, Tenure};
use tenure_serve::shape;

use crate::args::lock_args::LockArgs;
use crate::args::store::Store;
use crate::args::time::period;
use crate::exec::{holder, loss};
use crate::exit::Exit;
use crate::view::output::{Form, is_closed, say};
use crate::view::{about, format, help};

/// Acquire a lock, and print a handle to renew and release it with
///
/// It is not renewed: it is held for its lease, unless `tenure renew` is called in time.
#[derive(Args)]
#[command(after_long_help = help::DETACHED)]
pub(crate) struct Acquire {
    #[command(flatten)]
    lock_args: LockArgs,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    store: Store,
    /// The name of the lock
    name: String,
}

/// Extend the lease of a lock that `tenure acquire` has acquired
///
/// The exit status is 76 if it is no longer held.
#[derive(Args)]
#[command(after_long_help = help::DETACHED)]
pub(crate) struct Renew {
    /// The lease, from now on; if not given, the one that the lock was acquired with. A renewal never shortens it
    #[arg(long, value_name = "TIME", value_parser = period)]
    lease: Option<Duration>,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    store: Store,
    /// The handle that `tenure acquire` printed
    handle: Handle,
}

/// Release a lock by its handle; or, with --force, by its name
///
/// The exit status is 76 if it was no longer held.
#[derive(Args)]
#[command(after_long_help = help::DETACHED)]
pub(crate) struct Release {
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    store: Store,
    /// The handle that `tenure acquire` printed, or TENURE_HANDLE of `tenure hold`
    #[arg(required_unless_present = "force", conflicts_with = "force")]
    handle: Option<Handle>,
    /// Take the lock NAME away from its holders. They are notified, their fences are overtaken, and a record is kept
    #[arg(long, value_name = "NAME", requires = "reason")]
    force: Option<LockName>,
    /// The reason, for the record
    #[arg(long, value_name = "TEXT", requires = "force")]
    reason: Option<String>,
    /// Only if this owner holds it, as `tenure show` prints it
    #[arg(long, value_name = "OWNER", requires = "force")]
    owner: Option<Owner>,
    /// Do not ask for confirmation
    #[arg(long, requires = "force")]
    yes: bool,
}

pub(crate) async fn acquire(arguments: Acquire) -> Result<(), ExitCode> {
    if is_closed() {
        let why = "standard output is closed, so the handle cannot be printed";
        return Err(Exit::CannotWrite.because(&why));
    }
    let patience = arguments.lock_args.patience(false);
    let tenure = arguments.store.reach(&about::of_caller(), &patience).await?;
    let owner = Owner::new();
    let lock = arguments.lock_args.lock(&tenure, &arguments.name, owner);
    let guard =
        arguments.lock_args.acquire((&arguments.name, &lock, owner), &patience, false).await?;
    let detached = guard.detach().await;
    let handle = detached.map_err(|error| Exit::report(&error))?;
    let printed = arguments
        .form
        .print(|| format!("{handle}\n"), || shape::handle(&handle, handle.lease().duration()));
    if printed.is_err() {
        // Without its handle the lock could not be released.
        let _ = tenure.release(&handle).await;
    }
    // The lock outlives this process, so its holder stays described.
    tenure.leave_registered();
    printed
}

pub(crate) async fn renew(arguments: Renew) -> Result<(), ExitCode> {
    let tenure = arguments.store.connect().await?;
    let lease = arguments.lease.unwrap_or(arguments.handle.lease().duration());
    match tenure.renew_for(&arguments.handle, lease).await {
        Err(Error::Lost(lost)) => {
            let why = loss::sentence(&tenure, &lost, arguments.handle.owner()).await;
            return Err(Exit::Lost.because(&why));
        }
        renewed => renewed.map_err(|error| Exit::report(&error))?,
    }
    arguments.form.print(String::new, || shape::handle(&arguments.handle, lease))
}

pub(crate) async fn release(arguments: Release) -> Result<(), ExitCode> {
    let Some(handle) = &arguments.handle else {
        return force(&arguments.store.connect().await?, &arguments).await;
    };
    let print =
        || arguments.form.print(String::new, || shape::released(handle.name(), &[handle.owner()]));
    // A lock of `tenure hold`: its holder would take a release by this process for a loss.
    match holder::release(handle) {
        Some(Released::Now) => return print(),
        Some(Released::AlreadyLost) => {
            return Err(Exit::Lost.because(&format!("`{}` was not held any more", handle.name())));
        }
        None => {}
    }
    let tenure = arguments.store.connect().await?;
    match tenure.release(handle).await {
        Ok(Released::Now) => print(),
        Ok(Released::AlreadyLost) => {
            let by = loss::forced(&tenure, handle.name(), handle.owner()).await;
            let by = by.map_or_else(String::new, |by| format!(": {by}"));
            Err(Exit::Lost.because(&format!("`{}` was not held any more{by}", handle.name())))
        }
        Err(error) => Err(Exit::report(&error)),
    }
}

async fn force(tenure: &Tenure, arguments: &Release) -> Result<(), ExitCode> {
    let (Some(name), Some(reason)) = (&arguments.force, &arguments.reason) else {
        return Err(Exit::Usage.because(&"--force needs a name, and --reason"));
    };
    let expected = match arguments.yes {
        true => arguments.owner,
        false => confirm(tenure, name, arguments.owner).await?,
    };
    let forced = tenure.force_release(name.clone(), expected, reason).await;
    match forced.map_err(|error| Exit::report(&error))? {
        ForceOutcome::Released(owners) => {
            let lines = || owners.iter().map(|owner| format!("{owner}\n")).collect();
            arguments.form.print(lines, || shape::released(name, &owners))
        }
        ForceOutcome::NotHeld => Err(not_held(name, expected)),
    }
}

fn not_held(name: &LockName, expected: Option<Owner>) -> ExitCode {
    let by = expected.map_or_else(String::new, |owner| format!(" by {owner}"));
    Exit::NotAcquired.because(&format!("`{name}` is not held{by}: nothing was done"))
}

/// At a terminal, the name must be typed again. Returns the owner that was shown, so that the lock is not taken from a
/// later holder.
async fn confirm(
    tenure: &Tenure,
    name: &LockName,
    owner: Option<Owner>,
) -> Result<Option<Owner>, ExitCode> {
    let refused = || {
        let why = "nothing was done: the name was not confirmed (or use --yes)";
        Exit::Usage.because(&why)
    };
    if !std::io::stdin().is_terminal() {
        return Err(refused());
    }
    let info = tenure.lock(name.clone()).inspect().await;
    let info = info.map_err(|error| Exit::report(&error))?;
    let Some(holders) = format::holders(&info) else { return Err(not_held(name, owner)) };
    say(format_args!("this takes `{name}` away, held by {holders}; type its name:"));
    let mut typed = String::new();
    let read = std::io::stdin().read_line(&mut typed);
    if read.is_err() || typed.trim_end_matches('\n') != name.as_str() {
        return Err(refused());
    }
    let sole = match &info.holders[..] {
        [holder] if info.holding == 1 => Some(holder.owner),
        _ => None,
    };
    Ok(owner.or(sole))
}
