//! A terminal with a user.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetpgrp, tcsetwinsize};

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

    /// Whether a job of the shell, not the shell itself, has the terminal, and no process of it is stopped. The state and
    /// the group are the first and the third field after the program's name.
    pub(crate) fn is_job_running(&self) -> bool {
        let group = tcgetpgrp(&self.keyboard).unwrap().as_raw_nonzero().to_string();
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let stats = processes.filter_map(|it| std::fs::read_to_string(it.path().join("stat")).ok());
        let fields = stats.filter_map(|stat| {
            let fields: Vec<_> = stat.rsplit_once(')')?.1.split(' ').map(str::to_owned).collect();
            (fields[3] == group).then_some(fields)
        });
        let front: Vec<_> = fields.collect();
        // A shell leads its session, and its group bears the number of the session.
        front.iter().all(|fields| fields[1] != "T" && fields[4] != group)
    }

    /// Waits until this text is shown.
    pub(crate) fn until(&self, text: &str) {
        let is_seen = becomes_so(|| self.seen().contains(text));
        assert!(is_seen, "{text:?} is not seen, but {:?}", self.seen());
    }
}
