//! What the tests of the Redis engine stand on.

use std::time::Duration;

use tenure::{LockInfo, Tenure};
use tenure_testkit::proxy::{Command, Proxy};
use tenure_testkit::{Server, resp::Reply};

pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[expect(clippy::disallowed_methods, reason = "tests wait for leases to end")]
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

pub(crate) async fn connect(url: &str) -> Tenure {
    Tenure::connect(url).await.unwrap()
}

/// A server, a proxy before it, a client behind the proxy, and one with a way of its own.
pub(crate) async fn behind_proxy() -> (Server, Proxy, Tenure, Tenure) {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let (troubled, calm) = (connect(&proxy.url()).await, connect(&server.url()).await);
    (server, proxy, troubled, calm)
}

/// Says one thing to the server.
pub(crate) fn say(server: &Server, words: &[&str]) -> Reply {
    server.connect().unwrap().command(words).unwrap()
}

/// Recognises calls of one script, by the hash that the server gives it.
pub(crate) fn calls(
    server: &Server,
    operation: &str,
) -> impl Fn(&Command) -> bool + Clone + Send + use<> {
    let lua = concat!(env!("CARGO_MANIFEST_DIR"), "/src/engine/redis/lua");
    let read = |file: &str| std::fs::read_to_string(format!("{lua}/{file}.lua")).unwrap();
    let parts = [
        "plain_begin",
        "plain_result",
        "plain_end",
        "fast_path",
        "lock",
        "state",
        "holders",
        "queue",
        "common",
    ];
    let text = parts
        .iter()
        .fold(read(operation), |text, part| text.replace(&format!("--@ {part}.lua"), &read(part)));
    let hash = say(server, &["SCRIPT", "LOAD", &text]).text().unwrap();
    move |command: &Command| {
        command.name() == "EVALSHA"
            && command.args().first().is_some_and(|it| *it == hash.as_bytes())
    }
}

pub(crate) async fn until(tenure: &Tenure, name: &str, is_so: impl Fn(&LockInfo) -> bool) {
    let lock = tenure.lock(name);
    let seen = tokio::time::timeout(LONG, async {
        while !is_so(&lock.inspect().await.unwrap()) {
            pass(ms(2)).await;
        }
    });
    if seen.await.is_err() {
        panic!("it stays so: {:?}", lock.inspect().await);
    }
}

pub(crate) async fn until_free(tenure: &Tenure, name: &str) {
    until(tenure, name, |info| info.is_free() && info.waiting == 0).await;
}
