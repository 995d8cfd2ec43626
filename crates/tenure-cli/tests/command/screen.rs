//! A terminal with a user.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::fixture::{Fixture, becomes_so};

/// The keyboard and the screen.
pub(crate) struct Screen {
    keyboard: File,
    seen: Arc<Mutex<String>>,
    slave: OwnedFd,
}

impl Screen {
    /// Wide enough for every line.
    pub(crate) fn new() -> Self {
        Self::wide(200)
    }

    /// With this number of columns.
    pub(crate) fn wide(columns: u16) -> Self {
        // CLOEXEC: the commands of other tests, which run at the same time, must not inherit these.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let terminal = openpt(flags).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(name, flags, Mode::empty()).unwrap();
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&slave, size).unwrap();
        let keyboard = File::from(terminal);
        let seen = Arc::new(Mutex::new(String::new()));
        let (mut light, eye) = (keyboard.try_clone().unwrap(), seen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(count @ 1..) = light.read(&mut bytes) {
                eye.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { keyboard, seen, slave }
    }

    /// The end to which a program is connected.
    pub(crate) fn end(&self) -> OwnedFd {
        self.slave.try_clone().unwrap()
    }

    /// Starts a program in a session that has this terminal, with the command on its PATH.
    pub(crate) fn session(&self, fixture: &Fixture, words: &[&str]) -> Child {
        let command = std::path::Path::new(env!("CARGO_BIN_EXE_tenure"));
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", command.parent().unwrap().display());
        // The tests may run with signals ignored, which a shell would inherit.
        let mut session = Command::new("env");
        session.args(["--default-signal", "setsid", "--ctty", "--wait"]).args(words);
        session.env("PATH", path).env("PS1", "$ ").env("TERM", "xterm").env_remove("ENV");
        session.env("TENURE_URL", &fixture.url).env_remove("REDIS_URL");
        session.stdin(self.end()).stdout(self.end()).stderr(self.end()).spawn().unwrap()
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn seen(&self) -> String {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until this text is shown.
    pub(crate) fn until(&self, text: &str) {
        let is_seen = becomes_so(|| self.seen().contains(text));
        assert!(is_seen, "{text:?} is not seen, but {:?}", self.seen());
    }
}
