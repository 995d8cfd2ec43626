//! The background process of `tenure hold`: holds a lock until a shell ends.
//!
//! It has a session of its own, so that ^C at the terminal does not end it, and does not keep the command
//! substitution open. It listens on an abstract socket named after the owner: `tenure release HANDLE` asks it there
//! to release the lock, because a release by another process would count as a loss; and this one has the login.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::ExitCode;
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::process::{Signal, getuid};
use rustix::stdio::dup2_stdout;
use tenure::{About, Guard, Handle, Owner, Released, Tenure};
use tokio::sync::{mpsc, oneshot};

use crate::exec::hold::{Arguments, code};
use crate::exec::job::OnLost;
use crate::exec::loss;
use crate::exec::processes::Identity;
use crate::exec::shell::Shell;
use crate::exec::signals::Signals;
use crate::exit::Exit;
use crate::view::about;
use crate::view::format::holding;
use crate::view::output::{print, say};

/// The name under which it is started.
pub(crate) const NAME: &str = "tenure-holder";

/// The variable that names the shell: its pid in /proc, and its start time.
pub(crate) const SHELL: &str = "TENURE_HOLDER_SHELL";

/// The time that a shell has to end itself when the lock is being lost; a third of the lease at most.
const GRACE: Duration = Duration::from_secs(5);

/// How long to wait for the release; the lease ends it otherwise.
const RELEASE_TIME: Duration = Duration::from_secs(5);

/// How long `tenure release` waits for the answer of a holder.
const ANSWER_TIME: Duration = Duration::from_secs(6);

/// The answers of a holder.
const RELEASED: u8 = b'r';
const LOST: u8 = b'l';

/// Holds a lock as these arguments say.
pub(crate) async fn hold(arguments: Arguments) -> ExitCode {
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"tenure-holder");
    let prepared = Signals::catch().and_then(|signals| Ok((signals, Shell::watch(identity()?)?)));
    let (mut signals, mut shell) = match prepared {
        Ok((signals, Some(shell))) => (signals, shell),
        // The shell has ended: nothing is to be held.
        Ok((_, None)) => return Exit::NotAcquired.into(),
        Err(error) => return Exit::System.because(&error),
    };
    let about = about::of_shell(&shell.process);
    let holding = tokio::select! {
        holding = Holding::acquire(&arguments, &about) => holding,
        () = shell.ended() => return Exit::NotAcquired.into(),
        _ = caller_ended() => return Exit::NotAcquired.into(),
        signal = signals.end() => return ExitCode::from(128 + signal.as_raw() as u8),
    };
    match holding {
        Ok(holding) => holding.keep(&arguments, shell, signals).await,
        Err(code) => code,
    }
}

/// The shell that `tenure hold` has found.
fn identity() -> io::Result<Identity> {
    let text = std::env::var(SHELL).unwrap_or_default();
    let parsed = text
        .split_once(':')
        .and_then(|(number, started)| Some((number.parse().ok()?, started.parse().ok()?)));
    parsed.ok_or_else(|| io::Error::other(format!("{NAME} is started by `tenure hold` alone")))
}

/// Waits until `tenure hold` has ended, which holds the other end of our standard input.
async fn caller_ended() {
    let (send, ended) = oneshot::channel::<()>();
    let wait = move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        drop(send);
    };
    match std::thread::Builder::new().name("tenure-caller".into()).spawn(wait) {
        Ok(_) => drop(ended.await),
        Err(_) => std::future::pending().await,
    }
}

/// A lock that is held.
struct Holding {
    tenure: Tenure,
    guard: Guard,
    requests: mpsc::UnboundedReceiver<UnixStream>,
}

impl Holding {
    /// Acquires the lock, and prints the code for the shell. An error is reported already.
    async fn acquire(arguments: &Arguments, about: &About) -> Result<Self, ExitCode> {
        let (name, owner) = (&*arguments.name, Owner::new());
        let patience = arguments.lock_args.patience(arguments.verbose);
        let tenure = arguments.store.reach(about, &patience).await?;
        let lock = arguments.lock_args.lock(&tenure, name, owner);
        let guard =
            arguments.lock_args.acquire((name, &lock, owner), &patience, arguments.verbose).await?;
        let requests = listen(owner).map_err(|error| Exit::System.because(&error))?;
        let handle = guard.detach().await.map_err(|error| Exit::report(&error))?;
        let guard = tenure.adopt(handle.clone()).await.map_err(|error| Exit::report(&error))?;
        if arguments.verbose {
            say(format_args!("{}", holding(&guard)));
        }
        print(code(&handle, arguments.store.named().as_deref()))?;
        // The command substitution ends when its pipe has no writer.
        let nothing = File::options().write(true).open("/dev/null");
        let closed = nothing.and_then(|nothing| Ok(dup2_stdout(nothing)?));
        closed.map_err(|error| Exit::System.because(&error))?;
        Ok(Self { tenure, guard, requests })
    }

    /// Holds it until the shell ends, a signal asks for its end, or `tenure release` does.
    async fn keep(
        mut self,
        arguments: &Arguments,
        mut shell: Shell,
        mut signals: Signals,
    ) -> ExitCode {
        let grace = GRACE.min(arguments.lock_args.lease / 3);
        let mut is_watched = arguments.on_lost != OnLost::Ignore;
        loop {
            tokio::select! {
                () = shell.ended() => break,
                _ = signals.end() => break,
                Some(request) = self.requests.recv() => return self.release_for(request).await,
                () = self.guard.runs_out(grace), if is_watched => {
                    is_watched = false;
                    if arguments.on_lost == OnLost::Kill {
                        shell.signal(Signal::TERM);
                        // A stopped process does not end.
                        shell.signal(Signal::CONT);
                    }
                    loss::report(&self.tenure, &self.guard).await;
                }
            }
        }
        if arguments.verbose {
            say(format_args!("releasing `{}`", self.guard.name()));
        }
        // A loss was reported when it was noticed; after the shell's end no process depends on it.
        let _ = tokio::time::timeout(RELEASE_TIME, self.guard.release()).await;
        ExitCode::SUCCESS
    }

    /// Releases the lock, and answers what came of it; nothing if the store did not confirm it.
    async fn release_for(self, mut request: UnixStream) -> ExitCode {
        let released = tokio::time::timeout(RELEASE_TIME, self.guard.release()).await;
        let answer = match released {
            Ok(Ok(Released::Now)) => &[RELEASED][..],
            Ok(Ok(Released::AlreadyLost)) => &[LOST],
            _ => &[],
        };
        let _ = request.write_all(answer);
        ExitCode::SUCCESS
    }
}

/// Asks the holder of a lock to release it. None if there is no holder on this machine, or it does not confirm the release.
pub(crate) fn release(handle: &Handle) -> Option<Released> {
    let holder = address(handle.owner()).and_then(|it| UnixStream::connect_addr(&it));
    let mut holder = holder.ok()?;
    holder.set_read_timeout(Some(ANSWER_TIME)).ok()?;
    let mut answer = [0];
    holder.read_exact(&mut answer).ok()?;
    match answer[0] {
        RELEASED => Some(Released::Now),
        LOST => Some(Released::AlreadyLost),
        _ => None,
    }
}

/// An abstract address: it needs no folder, and goes with its process.
fn address(owner: Owner) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("{NAME}/{owner}"))
}

/// Requests of `tenure release`, by processes of the same user.
fn listen(owner: Owner) -> io::Result<mpsc::UnboundedReceiver<UnixStream>> {
    let listener = UnixListener::bind_addr(&address(owner)?)?;
    let (send, requests) = mpsc::unbounded_channel();
    let accept = move || {
        // Any user may connect to an abstract address.
        let is_own = |it: &UnixStream| socket_peercred(it).is_ok_and(|peer| peer.uid == getuid());
        for request in listener.incoming().flatten().filter(is_own) {
            let _ = send.send(request);
        }
    };
    std::thread::Builder::new().name("tenure-release".into()).spawn(accept)?;
    Ok(requests)
}
