//! Redis, PostgreSQL and Chromium from the system's package manager, with the developer's consent (`consent`).
//!
//! The package manager runs as root, as Homebrew (which needs no rights), or by sudo without a password when
//! the developer agreed. Some packages start a service; the tests start their own servers, so none is left
//! running.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use tenure_testkit::{Flavor, program};

use super::consent::{Consent, VARIABLE};
use crate::sh::{self, Failure, Outcome};

/// Debian's packages start their service by default; the script prevents it.
const DEBIAN: &str = include_str!("debian.sh");
/// Starts no service.
const FEDORA: &str = r#"dnf install -y "$1""#;
const HOMEBREW: &str = r#"brew install "$1""#;

/// What is installed, and its names.
pub(super) struct Package {
    what: &'static str,
    apt: &'static str,
    brew: &'static str,
    dnf: &'static str,
    /// Debian's name of the service.
    service: &'static str,
    /// The names of the service's processes.
    processes: &'static [&'static str],
}

impl Package {
    pub(super) const REDIS: Self = Self {
        what: "Redis",
        apt: "redis-server",
        brew: "redis",
        // On some Fedoras it installs Valkey instead, which the version check detects.
        dnf: "redis",
        service: "redis-server",
        processes: &Flavor::PROGRAMS,
    };

    pub(super) const POSTGRES: Self = Self {
        what: "PostgreSQL",
        apt: "postgresql",
        brew: "postgresql",
        dnf: "postgresql-server",
        service: "postgresql",
        processes: &["postgres"],
    };

    /// It has no service: none is stopped by this name.
    pub(super) const CHROMIUM: Self = Self {
        what: "Chromium",
        apt: "chromium",
        brew: "chromium",
        dnf: "chromium",
        service: "chromium",
        processes: &[],
    };

    pub(super) fn install(&self, consent: Consent) -> Outcome {
        let rights = rights(consent.allows_sudo());
        let manager = choose(|manager| is_present(manager.program()), rights).ok_or_else(|| {
            Failure::new(format!(
                "there is no package manager that may be used \
                 (as root, with Homebrew, or by sudo with --yes or {VARIABLE}=yes)."
            ))
        })?;
        let program = manager.program();
        consent.confirm(&manager.plan(self, rights))?;
        let before = self.services();
        sh::run_aside(manager.command(self, rights))
            .map_err(|_| Failure::new(format!("{program} could not install {}.", self.what)))?;
        self.refuse_new_services(&before)
    }

    fn refuse_new_services(&self, before: &[String]) -> Outcome {
        let mut left = self.services();
        left.retain(|service| !before.contains(service));
        if left.is_empty() {
            return Ok(());
        }
        Err(Failure::new(format!(
            "the package left a service running (process {}); stop it, then retry.",
            left.join(", ")
        )))
    }

    /// The process ids of the servers that run as a system service.
    fn services(&self) -> Vec<String> {
        // No `ps`: small containers lack it. And where there is no /proc, no package starts a service.
        let Ok(own) = fs::metadata("/proc/self") else {
            return Vec::new();
        };
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let processes = processes.filter_map(|entry| Process::read(&entry.path()));
        services_in(processes, self.processes, own.uid())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manager {
    Apt,
    Homebrew,
    Dnf,
}

/// The rights with which the package manager runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rights {
    Root,
    Sudo,
    None,
}

/// The first manager that is present and usable with these rights.
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

    /// The name of the package, and the script that installs it.
    fn recipe(self, package: &Package) -> (&'static str, &'static str) {
        match self {
            Self::Apt => (package.apt, DEBIAN),
            Self::Homebrew => (package.brew, HOMEBREW),
            Self::Dnf => (package.dnf, FEDORA),
        }
    }

    fn command(self, package: &Package, rights: Rights) -> Command {
        let (name, script) = self.recipe(package);
        let words: &[&str] =
            if self.needs_sudo(rights) { &["sudo", "-n", "sh", "-c"] } else { &["sh", "-c"] };
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args([script, "sh", name, package.service]);
        command
    }

    fn needs_sudo(self, rights: Rights) -> bool {
        rights == Rights::Sudo && self != Self::Homebrew
    }

    /// The sentence that announces the installation.
    fn plan(self, package: &Package, rights: Rights) -> String {
        let (what, program, (name, _)) = (package.what, self.program(), self.recipe(package));
        let sudo = if self.needs_sudo(rights) { "sudo " } else { "" };
        format!(
            "the tests need {what}, which is not installed. This installs the system package `{name}` \
             (`{sudo}{program} install`) and starts no service; {VARIABLE}=no forbids it"
        )
    }
}

fn rights(may_use_sudo: bool) -> Rights {
    let command = |words: &[&str]| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        command
    };
    if sh::output(command(&["id", "-u"])).is_ok_and(|id| id.trim() == "0") {
        return Rights::Root;
    }
    let has_sudo = may_use_sudo && sh::succeeds(command(&["sudo", "-n", "true"]));
    if has_sudo { Rights::Sudo } else { Rights::None }
}

fn is_present(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    program::programs_in(&path, name).next().is_some()
}

/// A running process.
#[derive(Clone)]
struct Process {
    id: String,
    user: u32,
    name: String,
}

impl Process {
    /// Reads a process's folder in /proc; none if it has ended, or the folder is not a process.
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

/// A service runs under its own user, unlike the servers that a test started.
fn services_in(
    processes: impl Iterator<Item = Process>,
    names: &[&str],
    own_user: u32,
) -> Vec<String> {
    let is_server = |process: &Process| names.contains(&process.name.trim_end());
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
        let program = |manager: Manager, rights| {
            manager.command(&Package::REDIS, rights).get_program().to_owned()
        };
        assert_eq!(program(Manager::Apt, Rights::Sudo), "sudo");
        assert_eq!(program(Manager::Homebrew, Rights::Sudo), "sh");
        assert_eq!(program(Manager::Dnf, Rights::Root), "sh");
    }

    #[test]
    fn the_plan_names_the_package_and_the_command() {
        let plan = |manager: Manager, package| manager.plan(package, Rights::Sudo);
        let redis = plan(Manager::Apt, &Package::REDIS);
        assert!(redis.contains("need Redis,"), "{redis}");
        assert!(redis.contains("`redis-server` (`sudo apt-get install`)"), "{redis}");
        let redis = plan(Manager::Homebrew, &Package::REDIS);
        assert!(redis.contains("`redis` (`brew install`)"), "{redis}");
        let postgres = plan(Manager::Apt, &Package::POSTGRES);
        assert!(postgres.contains("need PostgreSQL,"), "{postgres}");
        assert!(postgres.contains("`postgresql` (`sudo apt-get install`)"), "{postgres}");
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
        let services =
            |package: &Package| services_in(processes.iter().cloned(), package.processes, 0);
        assert_eq!(services(&Package::REDIS), ["20"]);
        assert_eq!(services(&Package::POSTGRES), ["22"]);
    }
}
