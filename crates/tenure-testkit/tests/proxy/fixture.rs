//! A server, a proxy in front of it, and what the tests ask of them.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use tenure_testkit::proxy::Command;
use tenure_testkit::resp::{Connection, Reply};
use tenure_testkit::{Proxy, Server};

/// How long a connection must be silent to count as silent. Too short could only hide a fault.
const SILENCE: Duration = Duration::from_millis(100);

pub(crate) fn start() -> (Server, Proxy) {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    (server, proxy)
}

pub(crate) fn ok() -> Reply {
    Reply::Simple("OK".into())
}

pub(crate) fn pong() -> Reply {
    Reply::Simple("PONG".into())
}

pub(crate) fn text(text: &str) -> Reply {
    Reply::Bulk(Some(text.into()))
}

pub(crate) fn is_set(command: &Command) -> bool {
    command.name() == "SET"
}

/// The value on the server, read without the proxy.
pub(crate) fn value(server: &Server, key: &str) -> Option<String> {
    server.connect().unwrap().command(&["GET", key]).unwrap().text()
}

/// Sends a command that needs no answer yet.
pub(crate) fn send(client: &mut Connection, words: &str) {
    client.send(&words.split(' ').collect::<Vec<_>>()).unwrap();
}

/// Sends a command and reads the answer.
pub(crate) fn ask(client: &mut Connection, words: &str) -> Reply {
    send(client, words);
    client.read().unwrap()
}

#[track_caller]
pub(crate) fn assert_closed(client: &mut Connection) {
    assert_eq!(client.read().unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

/// The connection is open, but nothing comes.
#[track_caller]
pub(crate) fn assert_silent(client: &mut Connection) {
    client.set_patience(SILENCE).unwrap();
    let kind = client.read().unwrap_err().kind();
    assert!(matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{kind}");
    client.set_patience(Duration::from_secs(10)).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "a delay is measured by the clock")]
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let outcome = work();
    (outcome, began.elapsed())
}
