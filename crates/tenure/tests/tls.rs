//! The Redis engine over TLS, against real servers that speak it.
//!
//! Redis alone: the Valkey that `cargo xtask` gets for the tests is built without TLS.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tenure::engine::ForceOutcome;
use tenure::{Error, LockName, Released, Tenure, WhyLost};
use tenure_testkit::{Builder, Flavor, Server, Tls};

const LONG: Duration = Duration::from_secs(20);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[expect(clippy::disallowed_methods, reason = "tests wait for leases to end")]
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

fn with(tls: Tls) -> Builder {
    Server::builder().flavor(Flavor::Redis).tls(tls)
}

fn start() -> Server {
    with(Tls::default()).start()
}

async fn connect(url: &str) -> Tenure {
    Tenure::connect(url).await.unwrap()
}

/// Fails to connect, with a password; returns the error message.
async fn refusal(url: &str) -> String {
    let url = url.replace("rediss://", "rediss://ann:s3cret@");
    let error = Tenure::connect(&url).await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    error.to_string()
}

/// The URL of the server with other parameters.
fn url(server: &Server, parameters: &[(&str, &Path)]) -> String {
    let mut url = format!("rediss://127.0.0.1:{}?", server.port().unwrap());
    for (name, file) in parameters {
        url.push_str(&format!("{name}={}&", file.display()));
    }
    url.trim_end_matches(['&', '?']).to_owned()
}

#[tokio::test]
async fn a_lock_is_handed_over_and_renewed() {
    let server = start();
    let (one, two) = (connect(&server.url()).await, connect(&server.url()).await);
    let held = one.lock("x").lease(ms(1_500)).acquire().await.unwrap();
    let waiter = tokio::spawn(async move {
        let guard = two.lock("x").acquire().await.unwrap();
        (guard.fence(), guard.release().await.unwrap(), two)
    });
    while one.lock("x").inspect().await.unwrap().waiting == 0 {
        pass(ms(2)).await;
    }
    pass(ms(3_000)).await;
    assert!(!held.is_lost(), "renewed");
    let fence = held.fence();
    assert_eq!(held.release().await.unwrap(), Released::Now);
    let granted = tokio::time::timeout(ms(1_000), waiter).await;
    let (next, outcome, _two) = granted.expect("granted by a message, not by polling").unwrap();
    assert!(next > fence);
    assert_eq!(outcome, Released::Now);
}

#[tokio::test]
async fn hosts_are_known_by_name_and_by_number() {
    let server = start();
    for host in ["localhost", "127.0.0.1"] {
        let tenure = connect(&server.url().replace("127.0.0.1", host)).await;
        drop(tenure.lock("x").acquire_within(LONG).await.unwrap());
        assert!(tenure.flush(LONG).await);
    }
    let named = server.url().replace("rediss://", "valkeys://");
    drop(connect(&named).await.lock("x").acquire_within(LONG).await.unwrap());
}

/// Calls and answers of many records.
#[tokio::test]
async fn many_locks_with_long_notes_are_held_at_once() {
    let server = start();
    let tenure = connect(&server.url()).await;
    let note = "n".repeat(1024);
    let tasks: Vec<_> = (0..512)
        .map(|number| {
            let lock = tenure.lock(format!("many/{number:03}")).note(note.clone());
            tokio::spawn(async move { lock.acquire().await.unwrap() })
        })
        .collect();
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(task.await.unwrap());
    }
    let listed = tenure.list("many/", 1_000).await.unwrap();
    assert_eq!(listed.len(), 512);
    assert!(listed.iter().all(|info| info.holders[0].about.note.as_deref() == Some(&note)));
    drop(guards);
    assert!(tenure.flush(LONG).await);
    assert!(tenure.list("many/", 1_000).await.unwrap().is_empty());
}

/// A server that does not read makes the socket full, within a record. The rest is sent when it reads
/// again.
#[tokio::test]
async fn the_rest_of_a_full_socket_is_sent_later() {
    let server = start();
    let tenure = connect(&server.url()).await;
    let pid = Pid::from_raw(server.pid().try_into().unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    // A space is encoded as three bytes, so together they are more than a socket holds.
    let reason = " ".repeat(1024);
    let calls: Vec<_> = (0..3_000)
        .map(|number| {
            let (tenure, reason) = (tenure.clone(), reason.clone());
            let name = LockName::new(format!("free/{number}")).unwrap();
            tokio::spawn(async move { tenure.force_release(name, None, &reason).await })
        })
        .collect();
    pass(ms(300)).await;
    kill_process(pid, Signal::CONT).unwrap();
    for call in calls {
        let outcome = tokio::time::timeout(LONG, call).await.unwrap().unwrap().unwrap();
        assert_eq!(outcome, ForceOutcome::NotHeld);
    }
}

/// The server is restarted with other certificates, as when they are renewed.
#[tokio::test]
async fn a_killed_server_comes_back_with_new_certificates() {
    let mut server = start();
    let tenure = connect(&server.url()).await;
    let guard = tenure.lock("x").lease(Duration::from_secs(2)).acquire().await.unwrap();
    server.kill();
    Tls::default().write(server.folder());
    server.restart();
    let lost = tokio::time::timeout(LONG, guard.lost()).await.unwrap();
    assert!(matches!(lost.why(), WhyLost::NotHeld | WhyLost::LeaseEnded));
    let held = tenure.lock("x").acquire_within(LONG).await.unwrap();
    let waiter = tokio::spawn({
        let lock = tenure.lock("x").fair();
        async move { lock.acquire_within(LONG).await.unwrap() }
    });
    while tenure.lock("x").inspect().await.unwrap().waiting == 0 {
        pass(ms(2)).await;
    }
    assert_eq!(held.release().await.unwrap(), Released::Now);
    assert_eq!(waiter.await.unwrap().release().await.unwrap(), Released::Now);
}

#[tokio::test]
async fn a_certificate_must_be_signed_by_a_trusted_authority() {
    let server = start();
    let stranger = server.folder().join("stranger.pem");
    for url in [url(&server, &[]), url(&server, &[("ca", &stranger)])] {
        let why = refusal(&url).await;
        let endpoint = format!("127.0.0.1:{}", server.port().unwrap());
        assert!(why.contains(&endpoint) && why.contains("not signed by an authority"), "{why}");
        assert!(why.contains("?ca=FILE"), "{why}");
    }
}

#[tokio::test]
async fn a_certificate_must_be_for_the_host() {
    let server = with(Tls::default().named("elsewhere.example")).start();
    for host in ["127.0.0.1", "localhost"] {
        let why = refusal(&server.url().replace("127.0.0.1", host)).await;
        assert!(why.contains("another name: elsewhere.example: connect"), "{why}");
    }
}

#[tokio::test]
async fn a_certificate_must_not_have_expired() {
    let server = with(Tls::default().expired()).start();
    let why = refusal(&server.url()).await;
    assert!(why.contains("has expired: renew it"), "{why}");
}

#[tokio::test]
async fn a_certificate_must_be_that_of_a_server() {
    let server = with(Tls::default().of_authority()).start();
    let why = refusal(&server.url()).await;
    assert!(why.contains("is that of an authority, not of a server"), "{why}");
}

#[tokio::test]
async fn a_client_sends_its_certificate_if_the_server_requires_one() {
    for version in ["TLSv1.3", "TLSv1.2"] {
        let asking = with(Tls::default().asks_clients()).arg("--tls-protocols", version);
        let server = asking.start();
        let file = |name: &str| server.folder().join(name);
        let why = refusal(&server.url()).await;
        assert!(why.contains("client certificate"), "{version}: {why}");
        assert!(why.contains("?cert=FILE&key=FILE"), "{version}: {why}");

        let shown = |cert: &str, key: &str| {
            let files = [("ca", file("ca.pem")), ("cert", file(cert)), ("key", file(key))];
            url(&server, &files.each_ref().map(|(name, file)| (*name, &**file)))
        };
        let tenure = connect(&shown("client.pem", "client.key")).await;
        let guard = tenure.lock("x").acquire().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::Now);

        let why = refusal(&shown("client.pem", "server.key")).await;
        assert!(why.contains("cannot be used with the certificate in"), "{why}");

        let other = start();
        let files = ["client.pem", "client.key"].map(|name| other.folder().join(name));
        let files = [("ca", &*file("ca.pem")), ("cert", &*files[0]), ("key", &*files[1])];
        let why = refusal(&url(&server, &files)).await;
        assert!(why.contains("does not accept this client's certificate"), "{version}: {why}");
    }
}

#[tokio::test]
async fn unusable_files_are_named() {
    let server = start();
    let file = |name: &str| server.folder().join(name);
    let (ca, cert, key) = (file("ca.pem"), file("client.pem"), file("client.key"));
    let why = refusal(&url(&server, &[("ca", Path::new("/nowhere/ca.pem"))])).await;
    assert!(why.contains("/nowhere/ca.pem, which cannot be read: No such file"), "{why}");
    let why = refusal(&url(&server, &[("ca", &key)])).await;
    assert!(why.contains("client.key contains no certificate"), "{why}");
    let why = refusal(&url(&server, &[("ca", &ca), ("cert", &cert), ("key", &cert)])).await;
    assert!(why.contains("client.pem contains no private key"), "{why}");
    let half = Tenure::connect(&url(&server, &[("ca", &ca), ("cert", &cert)])).await.unwrap_err();
    assert!(half.to_string().contains("cert without its key"), "{half}");
}

#[tokio::test]
async fn a_plain_server_is_distinguished_from_one_with_tls() {
    let plain = Server::builder().on_port().start();
    let why = refusal(&plain.url().replace("redis://", "rediss://")).await;
    assert!(why.contains("TLS") && why.contains("write redis:// for rediss://"), "{why}");

    let secret = start();
    let plainly = format!("redis://127.0.0.1:{}", secret.port().unwrap());
    let error = Tenure::connect(&plainly).await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
}

/// A server that answers, but not with TLS.
#[tokio::test]
async fn another_protocol_is_no_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            std::io::Write::write_all(&mut &connection, b"-ERR unknown command\r\n").unwrap();
        }
    });
    let why = refusal(&format!("rediss://{address}")).await;
    assert!(why.contains(&format!("{address} does not speak TLS")), "{why}");
}

#[tokio::test]
async fn a_silent_listener_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let url = format!("rediss://{address}");
    let why = tokio::time::timeout(ms(4_000), refusal(&url)).await.expect("in time");
    assert!(why.contains(&format!("{address} did not answer within 2s")), "{why}");
    drop(listener);
}

/// Without `ca`, the system's authorities are used. They are taken from a variable, as in programs with
/// OpenSSL, so the test runs in another process.
#[test]
fn the_systems_authorities_are_trusted() {
    let server = start();
    let run = |authority: &str| {
        Command::new(std::env::current_exe().unwrap())
            .args(["the_process_with_other_authorities", "--exact", "--ignored"])
            .env("TENURE_OTHER_URL", url(&server, &[]))
            .env("SSL_CERT_FILE", server.folder().join(authority))
            .output()
            .unwrap()
            .status
            .success()
    };
    assert!(run("ca.pem"));
    assert!(!run("stranger.pem"));
}

#[tokio::test]
#[ignore = "the other half of the_systems_authorities_are_trusted, which runs it"]
async fn the_process_with_other_authorities() {
    let tenure = connect(&std::env::var("TENURE_OTHER_URL").unwrap()).await;
    drop(tenure.lock("x").acquire().await.unwrap());
}
