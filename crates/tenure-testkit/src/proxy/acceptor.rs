//! Accepts connections: each is forwarded, refused or left dark, as the proxy is set.
//!
//! Connections are shut down, not only dropped: a process that another test is just starting briefly
//! inherits all open descriptors, and would keep them open.

use std::io::ErrorKind;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use super::hub::Hub;
use super::link::Link;
use super::pump;
use crate::endpoint::Endpoint;
use crate::stream::Stream;

pub(super) struct Acceptor(Option<JoinHandle<()>>);

impl Acceptor {
    pub(super) fn start(hub: &Arc<Hub>, listener: TcpListener) -> Self {
        let hub = Arc::clone(hub);
        Self(Some(std::thread::spawn(move || {
            accept(&hub, &listener);
            // Some systems do not support this for a listener; there it closes a little later.
            let _ = rustix::net::shutdown(&listener, rustix::net::Shutdown::Both);
        })))
    }

    /// Ends the thread, once the hub is over. It blocks in `accept`, so a connection of our own wakes it.
    pub(super) fn end(&mut self, endpoint: &Endpoint) {
        let is_awake = endpoint.stream().is_ok();
        if let Some(thread) = self.0.take().filter(|thread| is_awake || thread.is_finished()) {
            let _ = thread.join();
        }
    }
}

fn accept(hub: &Arc<Hub>, listener: &TcpListener) {
    loop {
        let client = match listener.accept() {
            Ok((client, _)) => client,
            Err(error) if is_transient(error.kind()) => continue,
            Err(error) => panic!("the proxy could not accept a connection: {error}"),
        };
        if hub.read(|state| state.is_over) {
            return;
        }
        if let Some(link) = connect(hub, client) {
            admit(hub, link);
        }
    }
}

/// A client that disconnected before it was accepted is no reason to stop.
fn is_transient(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionAborted | ErrorKind::Interrupted)
}

/// Connects a client to the server. None closes it: it is refused, or there is no server.
fn connect(hub: &Hub, client: TcpStream) -> Option<Arc<Link>> {
    let client = Stream::over(client).ok()?;
    let (refuses, is_dark, endpoint) =
        hub.read(|state| (state.refuses, state.is_dark, state.endpoint.clone()));
    let server = if refuses || is_dark { None } else { endpoint.stream().ok() };
    if refuses || (server.is_none() && !is_dark) {
        client.shutdown(Shutdown::Both);
        return None;
    }
    Some(Arc::new(Link::new(client, server)))
}

fn admit(hub: &Arc<Hub>, link: Arc<Link>) {
    hub.change(|state| {
        // The proxy may have gone dark while the link was being connected.
        if state.is_dark {
            link.go_dark();
        }
        state.links.retain(|link| !link.is_finished());
        state.threads.retain(|thread| !thread.is_finished());
        state.threads.extend(pump::start(hub, &link));
        state.links.push(link);
    });
}
