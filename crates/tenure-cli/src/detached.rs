//! `tenure acquire`, `renew` and `release`: locks that outlive the command, for scripts. And the release
//! of somebody else's lock.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use tenure::engine::ForceOutcome;
use tenure::{Error, Guard, Handle, LockName, Owner, Released, Tenure};

use crate::exit::Exit;
use crate::store::Store;
use crate::voice::{Form, say};
use crate::wish::Wish;
use crate::words;

/// Acquire a lock, and print a handle to renew and release it with
///
/// Nobody renews it: it is held for its lease, unless `tenure renew` is called in time.
#[derive(Args)]
pub(crate) struct Acquire {
    #[command(flatten)]
    wish: Wish,
    #[command(flatten)]
    form: Form,
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
    form: Form,
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
    form: Form,
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

pub(crate) async fn acquire(arguments: Acquire) -> Result<(), ExitCode> {
    let tenure = arguments.store.connect().await?;
    let lock = arguments.wish.lock(&tenure, &arguments.name);
    let guard = arguments.wish.acquire(&lock, &arguments.name).await?;
    let detached = detach(guard).await;
    let handle = detached.map_err(|error| Exit::of(&error).because(&error))?;
    let printed = arguments.form.print(|| format!("{handle}\n"), || words::handle(&handle));
    if printed.is_err() {
        // Nobody knows the handle, so nobody else could release it.
        let _ = tenure.release(&handle).await;
    }
    // The store forgets who a client is when it leaves; this one's lock stays.
    std::mem::forget(tenure);
    printed
}

async fn detach(guard: Guard) -> Result<Handle, Error> {
    // A hand-over is valid for a few seconds only, until it is confirmed.
    guard.renew().await?;
    guard.detach()
}

pub(crate) async fn renew(arguments: Renew) -> Result<(), ExitCode> {
    let tenure = arguments.store.connect().await?;
    let renewed = tenure.renew(&arguments.handle).await;
    renewed.map_err(|error| Exit::of(&error).because(&error))?;
    arguments.form.print(String::new, || words::handle(&arguments.handle))
}

pub(crate) async fn release(arguments: Release) -> Result<(), ExitCode> {
    let tenure = arguments.store.connect().await?;
    let Some(handle) = &arguments.handle else { return force(&tenure, &arguments).await };
    match tenure.release(handle).await {
        Ok(Released::Now) => {
            arguments.form.print(String::new, || released(handle.name(), &[handle.owner()]))
        }
        Ok(Released::AlreadyLost) => {
            Err(Exit::Lost.because(&format!("`{}` was not held any more", handle.name())))
        }
        Err(error) => Err(Exit::of(&error).because(&error)),
    }
}

async fn force(tenure: &Tenure, arguments: &Release) -> Result<(), ExitCode> {
    let (Some(name), Some(reason)) = (&arguments.force, &arguments.reason) else {
        return Err(Exit::Usage.because(&"--force needs a name, and --reason"));
    };
    if !arguments.yes && !is_confirmed(name) {
        let why = "nothing was done: the name was not confirmed (or use --yes)";
        return Err(Exit::Usage.because(&why));
    }
    let forced = tenure.force_release(name.clone(), arguments.owner, reason).await;
    match forced.map_err(|error| Exit::of(&error).because(&error))? {
        ForceOutcome::Released(owners) => {
            let lines = || owners.iter().map(|owner| format!("{owner}\n")).collect();
            arguments.form.print(lines, || released(name, &owners))
        }
        ForceOutcome::NotHeld => {
            let why = format!("`{name}` is not held by the one expected: nothing was done");
            Err(Exit::NotAcquired.because(&why))
        }
    }
}

/// Who had what, for programs.
fn released(name: &LockName, owners: &[Owner]) -> Value {
    json!({ "name": name.as_str(), "released": words::owners(owners) })
}

/// On a terminal, the name is to be typed once more.
fn is_confirmed(name: &LockName) -> bool {
    if !std::io::stdin().is_terminal() {
        return false;
    }
    say(format_args!("this takes `{name}` away from its holder; type its name:"));
    let mut typed = String::new();
    std::io::stdin().read_line(&mut typed).is_ok() && typed.trim_end_matches('\n') == name.as_str()
}
