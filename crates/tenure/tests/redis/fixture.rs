//! Helpers of the tests of the Redis engine.

use std::time::Duration;

use tenure::{LockInfo, Tenure};
use tenure_testkit::proxy::{Command, Proxy};
use tenure_testkit::{Server, resp::Reply};

pub(crate) use crate::waiting::{LONG, pass};

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) async fn connect(url: &str) -> Tenure {
    Tenure::connect(url).await.unwrap()
}

/// A server, a proxy, a client that connects through the proxy, and one that connects directly.
pub(crate) async fn behind_proxy() -> (Server, Proxy, Tenure, Tenure) {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let (proxied, direct) = (connect(&proxy.url()).await, connect(&server.url()).await);
    (server, proxy, proxied, direct)
}

/// Sends one command to the server.
pub(crate) fn command(server: &Server, words: &[&str]) -> Reply {
    server.connect().unwrap().command(words).unwrap()
}

/// Matches calls of one script, by its hash.
pub(crate) fn calls(
    server: &Server,
    operation: &str,
) -> impl Fn(&Command) -> bool + Clone + Send + use<> {
    let lua = concat!(env!("CARGO_MANIFEST_DIR"), "/src/engine/redis/lua");
    let read = |file: &str| std::fs::read_to_string(format!("{lua}/{file}.lua")).unwrap();
    let plain = ["plain_begin", "plain_result", "plain_end"];
    let rules = ["fast_path", "lock", "proposals", "state", "holders", "queue", "common"];
    let include = |text: String, part: &&str| text.replace(&format!("--@ {part}.lua"), &read(part));
    let text = plain.iter().chain(&rules).fold(read(operation), include);
    let hash = command(server, &["SCRIPT", "LOAD", &text]).text().unwrap();
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
        panic!("timed out: {:?}", lock.inspect().await);
    }
}

pub(crate) async fn until_free(tenure: &Tenure, name: &str) {
    until(tenure, name, |info| info.is_free() && info.waiting == 0).await;
}
