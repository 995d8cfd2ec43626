//! Programs out of a Debian package that is not installed: needs apt and dpkg, but no rights.
//!
//! apt checks the download against the signed lists of the system.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tenure_testkit::Toolset;

use super::unpacked::{self, Unpacked};
use crate::sh::{self, Outcome};

/// A Debian package with the programs of a toolset.
pub(super) struct Archive {
    package: &'static str,
    toolset: Toolset,
}

impl Archive {
    pub(super) const PROMETHEUS: Self =
        Self { package: "prometheus", toolset: Toolset::Prometheus };

    pub(super) fn unpack(&self) -> Outcome<PathBuf> {
        let unpacked = Unpacked { name: format!("debian-{}", self.package) };
        let programs = |folder: &Path| {
            let programs = folder.join("usr/bin");
            self.toolset.is_in(&programs).then_some(programs)
        };
        unpacked.get(programs, |draft| self.fetch(draft, &unpacked.place()))
    }

    fn fetch(&self, draft: &Path, place: &str) -> Outcome {
        sh::say(format!("downloading the Debian package {} (it is not installed)", self.package));
        // The system's lists may be missing or out of date, and only root may change them.
        sh::run_aside(self.download(draft, &[])).or_else(|failure| {
            sh::say(format!("{failure} Retrying with lists of its own"));
            self.download_with_own_lists(draft)
        })?;
        let archive = unpacked::first_with_extension(draft, "deb")?;
        sh::say(format!("unpacking it into {place}"));
        let mut dpkg = Command::new("dpkg");
        dpkg.arg("-x").arg(&archive).arg(draft);
        sh::run_aside(dpkg)?;
        fs::remove_file(&archive).map_err(|error| unpacked::cannot_write(&archive, &error))
    }

    fn download_with_own_lists(&self, draft: &Path) -> Outcome {
        let (lists, cache) = (draft.join("lists"), draft.join("cache"));
        let partial = lists.join("partial");
        fs::create_dir_all(&partial).map_err(|error| unpacked::cannot_write(&partial, &error))?;
        let options = [
            format!("Dir::State::lists={}", lists.display()),
            format!("Dir::Cache={}", cache.display()),
        ];
        let mut update = apt(draft, &options);
        update.arg("update");
        sh::run_aside(update)?;
        sh::run_aside(self.download(draft, &options))?;
        let removed = fs::remove_dir_all(&lists);
        removed.map_err(|error| unpacked::cannot_write(&lists, &error))
    }

    fn download(&self, draft: &Path, options: &[String]) -> Command {
        let mut download = apt(draft, options);
        download.args(["download", self.package]);
        download
    }
}

fn apt(draft: &Path, options: &[String]) -> Command {
    let mut apt = Command::new("apt-get");
    // As root, apt downloads as a user that may not write below `target/`.
    apt.args(["-qq", "-o", "APT::Sandbox::User=root"]).current_dir(draft);
    options.iter().for_each(|option| {
        apt.arg("-o").arg(option);
    });
    apt
}
