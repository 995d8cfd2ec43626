//! Where a server listens.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use crate::port;
use crate::resp::Connection;
use crate::stream::Stream;
use crate::tls::Tls;

/// The address of a server.
#[derive(Clone, Debug)]
pub(crate) enum Endpoint {
    /// A Unix socket.
    Socket(PathBuf),
    /// A port of 127.0.0.1.
    Port(u16),
    /// A port of 127.0.0.1 that speaks TLS, with the certificates in a folder. A Unix socket beside it
    /// lets the test inspect the server without TLS.
    Tls { port: u16, socket: PathBuf, folder: PathBuf, tls: Tls },
}

impl Endpoint {
    /// On the port if there is one, otherwise on a socket in the folder.
    pub(crate) fn new(folder: &Path, port: Option<u16>, tls: Option<Tls>) -> Self {
        let socket = folder.join("socket");
        match (port, tls) {
            (Some(port), Some(tls)) => Self::Tls { port, socket, folder: folder.into(), tls },
            (Some(port), None) => Self::Port(port),
            (None, _) => Self::Socket(socket),
        }
    }

    /// A free port of 127.0.0.1 that this process listens on itself.
    pub(crate) fn listen() -> (Self, TcpListener) {
        let listener = port::listen();
        (Self::Port(port::number(&listener)), listener)
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Socket(path) => format!("unix://{}", path.display()),
            Self::Port(port) => format!("redis://127.0.0.1:{port}"),
            Self::Tls { port, folder, .. } => {
                format!("rediss://127.0.0.1:{port}?ca={}/ca.pem", folder.display())
            }
        }
    }

    pub(crate) fn connect(&self) -> io::Result<Connection> {
        Connection::over(self.stream()?)
    }

    pub(crate) fn stream(&self) -> io::Result<Stream> {
        match self {
            Self::Socket(socket) | Self::Tls { socket, .. } => Stream::unix(socket),
            Self::Port(port) => Stream::tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, *port))),
        }
    }

    /// The settings that make a server listen here and nowhere else.
    pub(crate) fn settings(&self) -> Vec<OsString> {
        let on_port = |port: &u16, name: &str| {
            let port = port.to_string().into();
            Vec::from(["--bind".into(), "127.0.0.1".into(), name.into(), port])
        };
        let on_socket = |path: &PathBuf| {
            Vec::from(["--port".into(), "0".into(), "--unixsocket".into(), path.into()])
        };
        match self {
            Self::Socket(path) => on_socket(path),
            Self::Port(port) => on_port(port, "--port"),
            Self::Tls { port, socket, folder, tls } => {
                [on_socket(socket), on_port(port, "--tls-port"), tls.settings(folder)].concat()
            }
        }
    }
}
