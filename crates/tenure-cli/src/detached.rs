//! `tenure acquire`, `renew` and `release`: locks that outlive the command, for scripts. And the release
//! of somebody else's lock.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Args;
use tenure::engine::ForceOutcome;
use tenure::{Error, Guard, Handle, LockName, Owner, Released, Tenure};

use crate::exit::Exit;
use crate::store::Store;
use crate::wish::Wish;
use crate::words::plain;

/// Acquire a lock, and print a handle to renew and release it with
///
/// Nobody renews it: it is held for its lease, unless `tenure renew` is called in time.
#[derive(Args)]
pub(crate) struct Acquire {
    #[command(flatten)]
    wish: Wish,
    #[command(flatten)]
    store: Store,
    /// The name of the lock
    name: String,
}

/// Extend the lease of a lock that `tenure acquire` took
///
/// The exit status is 76 if it is not held any more.
#[derive(Args)]
pub(crate) struct Renew {
    #[command(flatten)]
    store: Store,
    /// What `tenure acquire` printed
    handle: Handle,
}

/// Release a lock that `tenure acquire` took; or, with --force, anyone's
///
/// The exit status is 76 if it was not held any more.
#[derive(Args)]
pub(crate) struct Release {
    #[command(flatten)]
    store: Store,
    /// What `tenure acquire` printed
    #[arg(required_unless_present = "force", conflicts_with = "force")]
    handle: Option<Handle>,
    /// Take the lock NAME away from whoever holds it. The holder is told, its fence is overtaken, and
    /// a record is kept
    #[arg(long, value_name = "NAME", requires = "reason")]
    force: Option<LockName>,
    /// Why, for the record
    #[arg(long, value_name = "TEXT", requires = "force")]
    reason: Option<String>,
    /// Only if this owner holds it, as `tenure show` tells
    #[arg(long, value_name = "OWNER", requires = "force")]
    owner: Option<Owner>,
    /// Do not ask for the name once more
    #[arg(long, requires = "force")]
    yes: bool,
}

pub(crate) async fn acquire(arguments: Acquire) -> ExitCode {
    match try_acquire(&arguments).await {
        Ok(Some(handle)) => {
            println!("{handle}");
            ExitCode::SUCCESS
        }
        Ok(None) => {
            eprintln!("tenure: `{}` is held by another", plain(&arguments.name));
            ExitCode::from(arguments.wish.conflict_exit_code)
        }
        Err(error) if Exit::of(&error) == Exit::NotAcquired => {
            eprintln!("tenure: {error}");
            ExitCode::from(arguments.wish.conflict_exit_code)
        }
        Err(error) => Exit::of(&error).because(&error),
    }
}

async fn try_acquire(arguments: &Acquire) -> Result<Option<Handle>, Error> {
    let tenure = arguments.store.connect().await?;
    let lock = arguments.wish.lock(&tenure, &arguments.name);
    let Some(guard) = arguments.wish.acquire(&lock).await? else { return Ok(None) };
    // A hand-over is valid for a few seconds only, until it is confirmed.
    guard.renew().await?;
    let handle = Guard::detach(guard)?;
    // The store forgets who a client is when it leaves; this one's lock stays.
    std::mem::forget(tenure);
    Ok(Some(handle))
}

pub(crate) async fn renew(arguments: Renew) -> ExitCode {
    let renewed = match arguments.store.connect().await {
        Ok(tenure) => tenure.renew(&arguments.handle).await,
        Err(error) => Err(error),
    };
    renewed.map_or_else(|error| Exit::of(&error).because(&error), |()| ExitCode::SUCCESS)
}

pub(crate) async fn release(arguments: Release) -> ExitCode {
    let tenure = match arguments.store.connect().await {
        Ok(tenure) => tenure,
        Err(error) => return Exit::of(&error).because(&error),
    };
    let Some(handle) = &arguments.handle else { return force(&tenure, &arguments).await };
    match tenure.release(handle).await {
        Ok(Released::Now) => ExitCode::SUCCESS,
        Ok(Released::AlreadyLost) => {
            let name = plain(handle.name().as_str());
            Exit::Lost.because(&format!("`{name}` was not held any more"))
        }
        Err(error) => Exit::of(&error).because(&error),
    }
}

async fn force(tenure: &Tenure, arguments: &Release) -> ExitCode {
    let (Some(name), Some(reason)) = (&arguments.force, &arguments.reason) else {
        return Exit::Usage.because(&"--force needs a name, and --reason");
    };
    if !arguments.yes && !is_confirmed(name) {
        return Exit::Usage.because(&"nothing was done: the name was not confirmed (or use --yes)");
    }
    match tenure.force_release(name.clone(), arguments.owner, reason).await {
        Ok(ForceOutcome::Released(owners)) => {
            for owner in owners {
                println!("{owner}");
            }
            ExitCode::SUCCESS
        }
        Ok(ForceOutcome::NotHeld) => {
            let name = plain(name.as_str());
            Exit::NotAcquired
                .because(&format!("`{name}` is not held by the one expected: nothing was done"))
        }
        Err(error) => Exit::of(&error).because(&error),
    }
}

/// On a terminal, the name is to be typed once more.
fn is_confirmed(name: &LockName) -> bool {
    if !std::io::stdin().is_terminal() {
        return false;
    }
    eprintln!("This takes `{}` away from its holder. Type its name:", plain(name.as_str()));
    let mut typed = String::new();
    std::io::stdin().read_line(&mut typed).is_ok() && typed.trim_end_matches('\n') == name.as_str()
}
