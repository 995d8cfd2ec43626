//! Takes in new connections, each according to what the proxy does at the moment.
//!
//! What is closed here is shut down, not only dropped: a process that another test is just starting
//! holds copies of all that is open, for a moment, and would keep it open.

use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::hub::Hub;
use super::link::Link;
use super::pump;
use crate::stream::Stream;

/// How long our own knock at the door may take.
const KNOCK_BOUND: Duration = Duration::from_secs(1);

pub(super) struct Acceptor(Option<JoinHandle<()>>);

impl Acceptor {
    pub(super) fn start(hub: &Arc<Hub>, listener: TcpListener) -> Self {
        let hub = Arc::clone(hub);
        Self(Some(std::thread::spawn(move || {
            accept(&hub, &listener);
            // Some systems do not know this of a listener; there it ends a moment later.
            let _ = rustix::net::shutdown(&listener, rustix::net::Shutdown::Both);
        })))
    }

    /// Ends it, once the hub says that all is over. It sleeps until somebody connects, so we do.
    pub(super) fn end(&mut self, address: SocketAddr) {
        let knocked = TcpStream::connect_timeout(&address, KNOCK_BOUND).is_ok();
        if let Some(thread) = self.0.take().filter(|thread| knocked || thread.is_finished()) {
            let _ = thread.join();
        }
    }
}

fn accept(hub: &Arc<Hub>, listener: &TcpListener) {
    loop {
        let client = match listener.accept() {
            Ok((client, _)) => client,
            Err(error) if is_passing(error.kind()) => continue,
            Err(error) => panic!("the proxy cannot accept connections: {error}"),
        };
        if hub.look(|state| state.is_over) {
            return;
        }
        if let Some(link) = connect(hub, client) {
            admit(hub, link);
        }
    }
}

/// A client that gave up while it waited is no reason to stop.
fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionAborted | ErrorKind::Interrupted)
}

/// Connects a client to the server. None closes it: it is refused, or there is no server.
fn connect(hub: &Hub, client: TcpStream) -> Option<Arc<Link>> {
    let client = Stream::over(client).ok()?;
    let (refuses, is_dark, endpoint) =
        hub.look(|state| (state.refuses, state.is_dark, state.endpoint.clone()));
    let server = if refuses || is_dark { None } else { endpoint.stream().ok() };
    if refuses || (server.is_none() && !is_dark) {
        client.shutdown(Shutdown::Both);
        return None;
    }
    Some(Arc::new(Link::new(client, server)))
}

fn admit(hub: &Arc<Hub>, link: Arc<Link>) {
    hub.change(|state| {
        // The night may have fallen while it was being connected.
        if state.is_dark {
            link.go_dark();
        }
        state.links.retain(|link| !link.is_gone());
        state.threads.retain(|thread| !thread.is_finished());
        state.threads.extend(pump::start(hub, &link));
        state.links.push(link);
    });
}
