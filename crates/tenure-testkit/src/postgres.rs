//! A real PostgreSQL server that belongs to one test: its own folder, its own data, its own process.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use crate::guardian::Guardian;
use crate::toolset::Toolset;
use crate::wait;

/// How long a server may take to start: usually 100 ms, but a test machine may be overloaded.
const START_BOUND: Duration = Duration::from_secs(60);

/// How long it may take to end after SIGQUIT, before it is killed. It gives its own processes five seconds.
const STOP_BOUND: Duration = Duration::from_secs(20);

/// The account that owns no files, on every Unix.
const WITHOUT_RIGHTS: u32 = 65534;

/// A running PostgreSQL server on a Unix socket, which stops when this is dropped.
///
/// Its superuser is `postgres`, without a password; only processes of this machine reach the socket.
#[derive(Debug)]
#[must_use = "the server stops when this is dropped"]
pub struct Postgres {
    child: Child,
    // Dropped in this order: the guardian, when it ends, removes the folder too.
    guardian: Guardian,
    folder: TempDir,
}

impl Postgres {
    /// Creates a database cluster in a new folder, and starts a server for it.
    ///
    /// # Panics
    ///
    /// If there is no PostgreSQL, or it does not start; the message says why and what to do.
    pub fn start() -> Self {
        Self::launch().unwrap_or_else(|sentence| panic!("{sentence}"))
    }

    /// The address of a database as a URL; `postgres` is the one that is always there.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@localhost/{database}?host={}", self.folder().display())
    }

    /// The folder with its socket, its log and its data.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What it has written to its log.
    #[must_use]
    pub fn log(&self) -> String {
        log_in(self.folder())
    }

    fn launch() -> Result<Self, String> {
        let programs = Toolset::Postgres.find()?;
        let folder = tempfile::Builder::new().prefix("tenure-").tempdir();
        let folder = folder.map_err(|error| format!("could not create a folder: {error}"))?;
        let account = Account::needed()?;
        if let Some(account) = &account {
            let owned = chown(folder.path(), Some(account.user), Some(account.group));
            owned.map_err(|error| format!("could not give the folder away: {error}"))?;
        }
        let guardian = Guardian::sending("QUIT", folder.path());
        let start = Start { programs, folder: folder.path(), account };
        start.create_cluster()?;
        let spawned = start.server().and_then(|mut command| command.spawn());
        let child = spawned.map_err(|error| format!("could not start postgres: {error}"))?;
        let mut server = Self { child, guardian, folder };
        server.guardian.watch(server.child.id());
        server.await_ready()?;
        Ok(server)
    }

    /// The server writes its state into its process file, so no client is needed to ask it.
    fn await_ready(&self) -> Result<(), String> {
        let file = self.folder().join("data/postmaster.pid");
        let pid = Pid::from_child(&self.child);
        let is_ready = || {
            let text = fs::read_to_string(&file).unwrap_or_default();
            text.lines().nth(7).is_some_and(|state| state.trim() == "ready")
        };
        let progress = || {
            if is_ready() {
                return Some(Ok(()));
            }
            wait::has_ended(pid).then_some(Err("it ended at its start"))
        };
        let outcome = wait::until(START_BOUND, progress);
        let outcome = outcome.unwrap_or(Err("it was not ready in time"));
        outcome.map_err(|what| format!("PostgreSQL did not start: {what}:\n{}", self.log()))
    }
}

impl Drop for Postgres {
    /// By SIGQUIT, because a server that is killed leaves its shared memory behind.
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.child);
        let _ = kill_process(pid, Signal::QUIT);
        wait::until(STOP_BOUND, || wait::has_ended(pid).then_some(()));
        let _ = self.child.kill();
        self.guardian.forget();
        let _ = self.child.wait();
    }
}

/// How a server is started.
struct Start<'a> {
    programs: PathBuf,
    folder: &'a Path,
    account: Option<Account>,
}

impl Start<'_> {
    fn create_cluster(&self) -> Result<(), String> {
        let mut initdb = self.command("initdb");
        initdb.arg("-D").arg(self.folder.join("data"));
        initdb.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]);
        let output = initdb.output().map_err(|error| format!("could not run initdb: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("initdb failed:\n{}", String::from_utf8_lossy(&output.stderr)))
    }

    fn server(&self) -> io::Result<Command> {
        let log = File::create(self.folder.join("server.log"))?;
        let mut postgres = self.command("postgres");
        postgres.arg("-D").arg(self.folder.join("data")).arg("-k").arg(self.folder);
        // Nothing of it outlives the test, so nothing need reach the disk.
        postgres.args(["-c", "listen_addresses=", "-c", "fsync=off"]);
        postgres.stderr(log.try_clone()?).stdout(log);
        Ok(postgres)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        // In a folder that its user may enter.
        command.current_dir(self.folder).stdin(Stdio::null());
        if let Some(account) = &self.account {
            command.uid(account.user).gid(account.group);
        }
        command
    }
}

/// The user to run as: PostgreSQL refuses to run as root.
struct Account {
    user: u32,
    group: u32,
}

impl Account {
    /// None if this process may run it itself.
    fn needed() -> Result<Option<Self>, String> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
        Self::choose(&users).map(Some).ok_or_else(|| {
            "PostgreSQL does not run as root, and there is neither a user postgres nor one without rights; run the \
             tests as another user"
                .to_owned()
        })
    }

    /// By the lines of /etc/passwd: name, password, user, group, ….
    fn choose(users: &str) -> Option<Self> {
        let accounts = || {
            users.lines().map(|line| line.split(':').collect::<Vec<_>>()).filter_map(|fields| {
                let [name, _, user, group, ..] = fields[..] else { return None };
                Some((name, Self { user: user.parse().ok()?, group: group.parse().ok()? }))
            })
        };
        let of_package = accounts().find(|(name, _)| *name == "postgres");
        let without_rights = || accounts().find(|(_, account)| account.user == WITHOUT_RIGHTS);
        of_package.or_else(without_rights).map(|(_, account)| account)
    }
}

fn log_in(folder: &Path) -> String {
    let bytes = fs::read(folder.join("server.log")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_of_the_package_is_preferred() {
        let user = |users: &str| Account::choose(users).map(|account| account.user);
        let root = "root:x:0:0:root:/root:/bin/sh\n";
        let plain = "plain:x:65534:65534::/:/bin/false\n";
        let package = "postgres:x:101:104:,,,:/var/lib/postgresql:/bin/sh\n";
        assert_eq!(user(&format!("{root}{plain}{package}")), Some(101));
        assert_eq!(user(&format!("{root}{plain}")), Some(WITHOUT_RIGHTS));
        assert_eq!(user(root), None);
    }
}
