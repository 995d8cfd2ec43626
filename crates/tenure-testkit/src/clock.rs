//! The wall clock of a server, which a test sets forward or back while the server runs.
//!
//! A small C library shifts the time that the server reads; the machine's own clock is not changed. The test
//! compiles it for the machine that it runs on, and `LD_PRELOAD` loads it.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::flavor::Flavor;
use crate::program;

/// The clock of one server: start [`Clock::program`] with it.
#[derive(Debug)]
pub struct Clock {
    folder: TempDir,
    shift: File,
}

impl Clock {
    /// A clock that shows the right time, for the system's Redis.
    ///
    /// # Panics
    ///
    /// If there is no C compiler, or no such server.
    #[must_use]
    pub fn new() -> Self {
        let server = program::find(Some(Flavor::Redis));
        Self::of_program(&server.unwrap_or_else(|missing| panic!("{missing}")))
    }

    /// A clock that shows the right time, for this program of a server.
    ///
    /// # Panics
    ///
    /// If there is no C compiler.
    #[must_use]
    pub fn of_program(server: &Path) -> Self {
        let folder = tempfile::Builder::new().prefix("tenure-clock-").tempdir();
        let folder = folder.expect("a test can create a folder in the temporary folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("clock.c"), include_str!("clock.c")).expect("the folder can be written");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O2", "-o"])
            .args([at("clock.so"), at("clock.c")])
            .status();
        let is_compiled = compiled.as_ref().is_ok_and(|status| status.success());
        assert!(
            is_compiled,
            "setting the clock of a server needs a C compiler, `cc`: {compiled:?}"
        );
        fs::write(at("shift"), 0i64.to_ne_bytes()).expect("the folder can be written");
        let shift = File::options().write(true).open(at("shift")).expect("it was just written");
        let script = format!(
            "#!/bin/sh\nTENURE_TEST_CLOCK='{}' LD_PRELOAD='{}' exec '{}' \"$@\"\n",
            at("shift").display(),
            at("clock.so").display(),
            server.display()
        );
        fs::write(at("server"), script).expect("the folder can be written");
        fs::set_permissions(at("server"), Permissions::from_mode(0o700)).expect("it is ours");
        Self { folder, shift }
    }

    /// The server's program, as it runs under this clock.
    #[must_use]
    pub fn program(&self) -> PathBuf {
        self.folder.path().join("server")
    }

    /// Sets the clock forward from the right time.
    pub fn set_ahead(&self, by: Duration) {
        self.set(micros(by));
    }

    /// Sets the clock back from the right time.
    pub fn set_back(&self, by: Duration) {
        self.set(-micros(by));
    }

    fn set(&self, micros: i64) {
        let written = self.shift.write_all_at(&micros.to_ne_bytes(), 0);
        written.unwrap_or_else(|error| panic!("the clock cannot be set: {error}"));
    }
}

fn micros(by: Duration) -> i64 {
    i64::try_from(by.as_micros()).unwrap_or(i64::MAX)
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Server;
    use crate::resp::Reply;

    fn seconds(server: &Server) -> i64 {
        let reply = server.connect().unwrap().command(&["TIME"]).unwrap();
        let Reply::Array(Some(parts)) = reply else { panic!("{reply:?}") };
        parts[0].text().unwrap().parse().unwrap()
    }

    #[test]
    fn a_server_sees_the_clock_that_it_is_given() {
        let clock = Clock::new();
        let server = Server::builder().program(clock.program()).start();
        let right = seconds(&server);
        clock.set_ahead(Duration::from_secs(3600));
        let ahead = seconds(&server);
        clock.set_back(Duration::from_secs(3600));
        let back = seconds(&server);
        assert!((3600..3660).contains(&(ahead - right)), "{}", ahead - right);
        assert!((3540..=3600).contains(&(right - back)), "{}", right - back);
    }
}
