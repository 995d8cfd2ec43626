//! Redis from the system's package manager, if we may use it.
//!
//! We may as root, with Homebrew (which needs no rights), or by sudo without a password when the user
//! said TENURE_INSTALL=yes. TENURE_INSTALL=no forbids all of it. Some packages start a service; the
//! tests start servers of their own, so none is left running.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::flavor::Flavor;
use crate::sh::{self, Failure, Outcome};

/// The user's word on installing things.
const VARIABLE: &str = "TENURE_INSTALL";

/// Debian's package starts a service unless it is told not to; the script says how.
const DEBIAN: &str = include_str!("debian.sh");
/// Starts nothing. On some Fedoras it brings Valkey instead, which is noticed when it is asked.
const FEDORA: &str = "dnf install -y redis";
const HOMEBREW: &str = "brew install redis";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manager {
    Apt,
    Homebrew,
    Dnf,
}

/// Who we are to the package manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rights {
    Root,
    Sudo,
    None,
}

pub(super) fn install() -> Outcome<PathBuf> {
    let wish = std::env::var(VARIABLE).unwrap_or_default();
    if wish == "no" {
        return Err(Failure::new(format!("{VARIABLE}=no forbids installing a package.")));
    }
    let rights = rights(&wish);
    let manager = choose(|manager| is_present(manager.program()), rights).ok_or_else(|| {
        Failure::new(format!(
            "no package manager that may be used without asking \
             (as root, with Homebrew, or by sudo with {VARIABLE}=yes)."
        ))
    })?;
    let program = manager.program();
    sh::say(format!("installing Redis with {program}"));
    let before = services();
    sh::run_aside(manager.command(rights))
        .map_err(|_| Failure::new(format!("{program} could not install Redis.")))?;
    refuse_new_services(&before)?;
    super::on_path(Flavor::Redis).ok_or_else(|| {
        Failure::new("a package was installed, but it brought no Redis to the PATH.")
    })
}

fn refuse_new_services(before: &[String]) -> Outcome {
    let mut left = services();
    left.retain(|service| !before.contains(service));
    if left.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "the package left a service running (process {}); stop it, then try again.",
        left.join(", ")
    )))
}

/// The first manager that is present and that we may use.
fn choose(is_present: impl Fn(Manager) -> bool, rights: Rights) -> Option<Manager> {
    let order = [Manager::Apt, Manager::Homebrew, Manager::Dnf];
    order.into_iter().filter(|manager| manager.allows(rights)).find(|manager| is_present(*manager))
}

impl Manager {
    fn program(self) -> &'static str {
        match self {
            Self::Apt => "apt-get",
            Self::Homebrew => "brew",
            Self::Dnf => "dnf",
        }
    }

    fn allows(self, rights: Rights) -> bool {
        match self {
            Self::Apt | Self::Dnf => rights != Rights::None,
            // Homebrew refuses to run as root.
            Self::Homebrew => rights != Rights::Root,
        }
    }

    fn command(self, rights: Rights) -> Command {
        let script = match self {
            Self::Apt => DEBIAN,
            Self::Homebrew => HOMEBREW,
            Self::Dnf => FEDORA,
        };
        let by_sudo = rights == Rights::Sudo && self != Self::Homebrew;
        let words: &[&str] = if by_sudo { &["sudo", "-n", "sh", "-c"] } else { &["sh", "-c"] };
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg(script);
        command
    }
}

fn rights(wish: &str) -> Rights {
    let command = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        command
    };
    if sh::output(command(&["id", "-u"])).is_ok_and(|id| id.trim() == "0") {
        return Rights::Root;
    }
    let may_sudo = wish == "yes" && sh::succeeds(command(&["sudo", "-n", "true"]));
    if may_sudo { Rights::Sudo } else { Rights::None }
}

fn is_present(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    sh::programs(program, &path).next().is_some()
}

/// A process, as far as it matters here.
struct Process {
    id: String,
    user: u32,
    name: String,
}

impl Process {
    /// Reads a process's folder in /proc; none if it has ended, or is no process.
    fn read(folder: &Path) -> Option<Self> {
        let has_ended = fs::read(folder.join("cmdline")).ok()?.is_empty();
        if has_ended {
            return None;
        }
        Some(Self {
            id: folder.file_name()?.to_string_lossy().into_owned(),
            user: folder.metadata().ok()?.uid(),
            name: fs::read_to_string(folder.join("comm")).ok()?,
        })
    }
}

/// The process ids of the servers that run as a system service.
fn services() -> Vec<String> {
    // No `ps`: small containers lack it. And where there is no /proc, no package starts a service.
    let Ok(own) = fs::metadata("/proc/self") else {
        return Vec::new();
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = processes.filter_map(|entry| Process::read(&entry.path()));
    services_in(processes, own.uid())
}

/// A service runs under its own user, which tells it from the servers that a test started.
fn services_in(processes: impl Iterator<Item = Process>, own_user: u32) -> Vec<String> {
    let is_server = |process: &Process| Flavor::PROGRAMS.contains(&process.name.trim_end());
    processes
        .filter(|process| process.user != own_user && is_server(process))
        .map(|process| process.id)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_packages_need_rights_and_homebrew_none() {
        let all = |_: Manager| true;
        assert_eq!(choose(all, Rights::Root), Some(Manager::Apt));
        assert_eq!(choose(all, Rights::Sudo), Some(Manager::Apt));
        assert_eq!(choose(all, Rights::None), Some(Manager::Homebrew));
        assert_eq!(choose(|manager| manager != Manager::Apt, Rights::Root), Some(Manager::Dnf));
        assert_eq!(choose(|manager| manager == Manager::Apt, Rights::None), None);
    }

    #[test]
    fn sudo_is_used_only_where_it_is_needed() {
        let program = |manager: Manager, rights| manager.command(rights).get_program().to_owned();
        assert_eq!(program(Manager::Apt, Rights::Sudo), "sudo");
        assert_eq!(program(Manager::Homebrew, Rights::Sudo), "sh");
        assert_eq!(program(Manager::Dnf, Rights::Root), "sh");
    }

    #[test]
    fn only_servers_under_the_services_user_are_services() {
        let process =
            |id: &str, user, name: &str| Process { id: id.into(), user, name: name.into() };
        let processes = [
            process("1", 0, "init\n"),
            process("20", 104, "redis-server\n"),
            process("21", 0, "redis-server\n"),
            process("22", 105, "postgres\n"),
        ];
        assert_eq!(services_in(processes.into_iter(), 0), ["20"]);
    }
}
