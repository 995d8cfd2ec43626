//! Where a server listens.

use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::resp::Connection;
use crate::stream::Stream;

/// The address of a server.
#[derive(Clone, Debug)]
pub(crate) enum Endpoint {
    /// A Unix socket.
    Socket(PathBuf),
    /// A port of 127.0.0.1.
    Port(u16),
}

impl Endpoint {
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Socket(path) => format!("unix://{}", path.display()),
            Self::Port(port) => format!("redis://127.0.0.1:{port}"),
        }
    }

    pub(crate) fn connect(&self) -> io::Result<Connection> {
        Connection::over(self.stream()?)
    }

    pub(crate) fn stream(&self) -> io::Result<Stream> {
        match self {
            Self::Socket(path) => Stream::unix(path),
            Self::Port(port) => Stream::tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, *port))),
        }
    }

    /// The settings that make a server listen here and nowhere else.
    pub(crate) fn settings(&self) -> Vec<OsString> {
        match self {
            Self::Socket(path) => {
                ["--port".into(), "0".into(), "--unixsocket".into(), path.into()].into()
            }
            Self::Port(port) => {
                let port = port.to_string().into();
                ["--bind".into(), "127.0.0.1".into(), "--port".into(), port].into()
            }
        }
    }
}
