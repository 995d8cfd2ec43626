//! How a server is set up before it starts.

use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::PathBuf;

use crate::program;
use crate::server::{Server, Trouble};

/// Below the range from which the kernel gives ports to outgoing connections: a client that keeps
/// trying to reach a stopped server there could end up connected to itself, and keep the port. The
/// cluster bus, 10,000 above, stays below it too.
const PORTS: Range<u16> = 10_000..20_000;

/// Between our look at a port and the server's use of it somebody else may take it; not this often.
const PORT_ATTEMPTS: u32 = 20;

/// Sets up a [`Server`]. By default: on a Unix socket, keeping nothing on disk.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder starts nothing until `start` is called"]
pub struct Builder {
    program: Option<PathBuf>,
    on_port: bool,
    args: Vec<OsString>,
}

impl Builder {
    /// Listens on a free port of 127.0.0.1, instead of on a Unix socket.
    pub fn on_port(mut self) -> Self {
        self.on_port = true;
        self
    }

    /// Adds a setting, for example `.arg("--appendonly", "yes")`. It goes after the defaults, so it wins.
    pub fn arg(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.args.extend([name.into(), value.into()]);
        self
    }

    /// Starts this program, instead of the one that [`program::from_env`] finds.
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    ///
    /// If there is no server, or it does not start; the message says why and what to do.
    pub fn start(self) -> Server {
        let found = self.program.clone().map_or_else(program::from_env, Ok);
        let program = found.unwrap_or_else(|missing| panic!("{missing}"));
        for _ in 0..PORT_ATTEMPTS {
            let port = self.on_port.then(free_port);
            match Server::launch(program.clone(), port, self.args.clone()) {
                Ok(server) => return server,
                Err(Trouble::PortTaken) => {}
                Err(Trouble::Other(sentence)) => panic!("{sentence}"),
            }
        }
        panic!(
            "found no free port on 127.0.0.1 in {PORT_ATTEMPTS} attempts; close what occupies them"
        )
    }
}

/// A port that nobody listens on at this moment. Random, so that test processes seldom meet.
fn free_port() -> u16 {
    let offset = u16::try_from(RandomState::new().hash_one(()) % PORTS.len() as u64).unwrap_or(0);
    let mut candidates = (PORTS.start + offset..PORTS.end).chain(PORTS.start..PORTS.start + offset);
    candidates
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("ten thousand ports are never all taken")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_somebody_took_is_told_from_other_trouble() {
        // Other tests of this process look for free ports, too.
        let mut attempts =
            (0..PORT_ATTEMPTS).map(|_| TcpListener::bind(("127.0.0.1", free_port())));
        let listener = attempts.find_map(Result::ok).unwrap();
        let port = listener.local_addr().unwrap().port();
        let outcome = Server::launch(program::from_env().unwrap(), Some(port), Vec::new());
        assert!(matches!(outcome, Err(Trouble::PortTaken)), "{outcome:?}");
    }

    #[test]
    fn another_server_on_the_port_is_not_taken_for_ours() {
        let other = Server::builder().on_port().start();
        let outcome = Server::launch(program::from_env().unwrap(), other.port(), Vec::new());
        assert!(matches!(outcome, Err(Trouble::PortTaken)), "{outcome:?}");
    }
}
