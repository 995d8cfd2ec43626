//! How a server is set up before it starts.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::flavor::Flavor;
use crate::server::{Server, StartError};
use crate::tls::Tls;
use crate::{port, program};

/// Another process may take a port between our check and the server's bind, but not this often in a row.
const PORT_ATTEMPTS: u32 = 20;

/// Sets up a [`Server`]. By default: on a Unix socket, keeping nothing on disk.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder starts nothing until `start` is called"]
pub struct Builder {
    flavor: Option<Flavor>,
    program: Option<PathBuf>,
    on_port: bool,
    tls: Option<Tls>,
    args: Vec<OsString>,
}

impl Builder {
    /// Listens on a free port of 127.0.0.1, instead of on a Unix socket.
    pub fn on_port(mut self) -> Self {
        self.on_port = true;
        self
    }

    /// Speaks TLS, and only that, on a free port of 127.0.0.1, with certificates made for it.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self.on_port()
    }

    /// Keeps its data when it is killed. With `appendfsync everysec`, the default, it would not: a server that is writing its
    /// file to a slow disk keeps what comes meanwhile in its memory for up to two seconds, and answers all the same.
    pub fn persistent(self) -> Self {
        self.arg("--appendonly", "yes").arg("--appendfsync", "always")
    }

    /// Adds a setting, for example `.arg("--maxmemory", "1mb")`. It goes after the defaults, so it wins.
    pub fn arg(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.args.extend([name.into(), value.into()]);
        self
    }

    /// Starts a server of this kind, instead of any that is installed, Redis preferred.
    pub fn flavor(mut self, flavor: Flavor) -> Self {
        self.flavor = Some(flavor);
        self
    }

    /// Starts this program, of any kind.
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
        let found = self.program.clone().map_or_else(|| program::find(self.flavor), Ok);
        let program = found.unwrap_or_else(|missing| panic!("{missing}"));
        for _ in 0..PORT_ATTEMPTS {
            let port = self.on_port.then(port::free);
            match Server::launch(program.clone(), port, self.tls.clone(), self.args.clone()) {
                Ok(server) => return server,
                Err(StartError::PortTaken) => {}
                Err(StartError::Other(sentence)) => panic!("{sentence}"),
            }
        }
        panic!(
            "found no free port on 127.0.0.1 in {PORT_ATTEMPTS} attempts; stop the programs that listen there"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    fn launch(port: Option<u16>) -> Result<Server, StartError> {
        launch_with(port, &[])
    }

    fn launch_with(port: Option<u16>, args: &[&str]) -> Result<Server, StartError> {
        let args = args.iter().map(OsString::from).collect();
        Server::launch(program::find(None).unwrap(), port, None, args)
    }

    #[test]
    fn a_port_that_is_taken_is_reported_as_such() {
        let listener = port::listen();
        let port = port::number(&listener);
        let outcome = launch(Some(port));
        assert!(matches!(outcome, Err(StartError::PortTaken)), "{outcome:?}");
    }

    #[test]
    fn another_server_on_the_port_is_not_mistaken_for_ours() {
        let other = Server::builder().on_port().start();
        let outcome = launch(other.port());
        assert!(matches!(outcome, Err(StartError::PortTaken)), "{outcome:?}");
    }

    #[test]
    fn a_bus_port_that_is_taken_is_reported_as_such() {
        let port = port::free();
        let _bus = TcpListener::bind((Ipv4Addr::LOCALHOST, port + 10_000)).unwrap();
        let outcome = launch_with(Some(port), &["--cluster-enabled", "yes"]);
        assert!(matches!(outcome, Err(StartError::PortTaken)), "{outcome:?}");
    }
}
