//! One server under several names.

use std::time::Duration;

use tenure::{Error, Tenure, Wait, acquire_all};
use tenure_testkit::Server;

use super::fixture::{LONG, connect, ms};

/// A client that connects to the server by this host name.
async fn by(host: &str, server: &Server) -> Tenure {
    connect(&format!("redis://{host}:{}", server.port().unwrap())).await
}

/// A lock that is listed twice, through two names of its server, is refused. (It used to wait for
/// itself.) Another database is another store.
#[tokio::test]
async fn a_lock_under_two_names_of_its_server_is_one_lock() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let server = Server::builder().on_port().arg("--unixsocket", socket.to_str().unwrap()).start();
    let unix = connect(&format!("unix://{}", socket.display())).await;
    let clients = [by("127.0.0.1", &server).await, by("localhost", &server).await, unix];
    for other in &clients[1..] {
        let twice = [clients[0].lock("x"), other.lock("x")];
        let refused = acquire_all(twice, Wait::within(ms(300))).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
        let both = [clients[0].lock("x"), other.lock("y")];
        drop(acquire_all(both, Wait::within(LONG)).await.unwrap());
    }
    let database = connect(&format!("{}/1", server.url())).await;
    let both = [clients[0].lock("x"), database.lock("x")];
    drop(acquire_all(both, Wait::within(LONG)).await.unwrap());
}

/// The id of a store is optional: if it cannot be written, the address is used.
#[tokio::test]
async fn a_server_without_memory_is_identified_by_its_address() {
    let (one, other) = (Server::start(), Server::start());
    for server in [&one, &other] {
        super::fixture::command(server, &["CONFIG", "SET", "maxmemory", "1"]);
    }
    let (a, b, c) =
        (connect(&one.url()).await, connect(&one.url()).await, connect(&other.url()).await);
    for server in [&one, &other] {
        super::fixture::command(server, &["CONFIG", "SET", "maxmemory", "0"]);
    }
    let refused = acquire_all([a.lock("x"), b.lock("x")], Wait::within(ms(300))).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
    drop(acquire_all([a.lock("x"), c.lock("x")], Wait::within(LONG)).await.unwrap());
}

/// Two servers, and two processes that know them by different names: both take the same two locks, in
/// the same order. (They used to take them in different orders, and to wait for each other.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_under_different_names_are_taken_in_one_order() {
    let (one, other) = (Server::builder().on_port().start(), Server::builder().on_port().start());
    let first = (by("127.0.0.1", &one).await, by("localhost", &other).await);
    let second = (by("localhost", &one).await, by("127.0.0.1", &other).await);
    let tasks = [first, second].map(|(one, other)| {
        tokio::spawn(async move {
            for _ in 0..100 {
                let both = [one.lock("x"), other.lock("x")];
                let guards = acquire_all(both, Wait::within(Duration::from_secs(10))).await?;
                tokio::task::yield_now().await;
                guards.release().await?;
            }
            Ok::<(), Error>(())
        })
    });
    for task in tasks {
        task.await.unwrap().expect("no deadlock");
    }
}
