//! What is refused, and the permission that is needed.

use std::time::Duration;

use tenure::engine::Engine;
use tenure::{Builder, Error, Fallback, Tenure, Wait, acquire_all};
use tenure_testkit::{Flavor, Server};

use super::fixture::{Group, ms, on_all, run};

const SECOND: Duration = Duration::from_secs(1);

fn sentence(result: Result<impl Sized, Error>) -> String {
    match result.map(drop) {
        Err(error @ Error::Invalid(_)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// An engine without replicas refuses to wait for them, rather than to ignore it.
#[tokio::test]
async fn a_store_without_replicas_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("store");
    for (engine, url) in
        [("memory", "memory:".to_owned()), ("local", format!("local://{}", folder.display()))]
    {
        let client = Tenure::connect(&url).await.unwrap();
        let said = format!(
            "the {engine} store has no replicas to wait for: use a server, or do not ask for replicas"
        );
        let lock = client.lock("x").wait_replicas(1, SECOND);
        assert_eq!(sentence(lock.acquire().await), said);
        assert_eq!(sentence(lock.try_acquire().await), said);
        assert_eq!(sentence(acquire_all([lock], Wait::forever()).await), said);
        let strict = client.rwlock("y").wait_replicas_on_renewal(1, SECOND);
        assert_eq!(sentence(strict.write().await), said);
        assert!(client.lock("x").inspect().await.unwrap().is_free());
        assert_eq!(sentence(Tenure::builder().wait_replicas(1, SECOND).connect(&url).await), said);
    }
}

#[tokio::test]
async fn absurd_options_are_refused() {
    let server = Server::start();
    let client = Tenure::connect(&server.url()).await.unwrap();
    let refused = async |count, time| {
        sentence(client.lock("x").wait_replicas(count, time).try_acquire().await)
    };
    assert_eq!(refused(0, SECOND).await, "a lock can wait for 1 to 100 replicas, not 0");
    assert_eq!(refused(1, SECOND * 61).await, "replicas can be waited for 1 ms to 60 s, not 61s");
    assert_eq!(
        refused(1, SECOND * 30).await,
        "the time for replicas must be shorter than the lease of 30s, not 30s"
    );
    let builder: Builder = Tenure::builder().wait_replicas_on_renewal(0, SECOND);
    assert!(sentence(builder.connect(&server.url()).await).contains("1 to 100 replicas"));
}

/// The default of a client holds for all its locks, but not for latches and barriers, and a lock may have its own. A server
/// without replicas is no error until one is asked for. A fallback has none.
async fn defaults(flavor: Flavor) {
    let mut group = Group::start(flavor, 1).await;
    let builder = Tenure::builder().wait_replicas(2, ms(200)).fallback(Fallback::Process);
    let client = builder.patience(ms(100)).connect(&group.master.url()).await.unwrap();
    let refused = client.lock("x").acquire().await.unwrap_err();
    let is_one = matches!(refused, Error::Unreplicated { replicas: 1, wanted: 2, .. });
    assert!(is_one, "{refused}");
    drop(client.lock("x").wait_replicas(1, ms(20_000)).acquire().await.unwrap());
    let latch = client.latch("latch", 1);
    latch.count_down().await.unwrap();
    latch.wait().await.unwrap();
    client.barrier("barrier", 1).wait().await.unwrap();
    group.master.kill();
    let guard = client.lock("x").acquire().await.unwrap();
    assert_eq!(guard.fallback(), Some(Fallback::Process));
}

#[test]
fn a_client_has_a_default() {
    on_all(defaults);
}

/// The blocking mirror: the calling thread waits for the replicas.
async fn threads(flavor: Flavor) {
    let group = Group::start(flavor, 1).await;
    let lock = group.client.lock("x").wait_replicas(1, ms(20_000)).blocking();
    let two = group.client.lock("x").wait_replicas(2, ms(100)).blocking();
    let waiting = tokio::task::spawn_blocking(move || {
        drop(lock.acquire().unwrap());
        let refused = two.try_acquire().unwrap_err();
        assert!(matches!(refused, Error::Unreplicated { replicas: 1, .. }), "{refused}");
        lock.try_acquire().unwrap().expect("it is free").release().unwrap();
    });
    waiting.await.unwrap();
}

#[test]
fn threads_wait_for_replicas_too() {
    on_all(threads);
}

/// A user who may not run WAIT is refused with the server's reason, and the checkup of a client that waits for replicas names
/// the permission.
async fn a_permission(flavor: Flavor) {
    let group = Group::start(flavor, 1).await;
    run(&group.master, &["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-wait"]);
    let url = group.master.url().replace("redis://", "redis://app:pw@");
    let engine = tenure::engine::RedisEngine::connect(&url).await.unwrap();
    let before = engine.checkup().await.unwrap();
    let client = Tenure::connect(&url).await.unwrap();
    let lock = client.lock("x").wait_replicas(1, ms(20_000));
    let refused = lock.acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Unreachable { .. }), "{refused:?}");
    assert!(refused.to_string().contains("NOPERM"), "{refused}");
    assert!(group.client.lock("x").inspect().await.unwrap().is_free());
    let after = client.checkup().await.unwrap();
    let lacks = |findings: &[tenure::engine::Finding]| {
        findings.iter().any(|finding| format!("{finding:?}").contains("+wait"))
    };
    assert!(!lacks(&before), "it is not needed: {before:?}");
    assert!(lacks(&after), "{after:?}");
}

#[test]
fn a_user_needs_the_permission_to_wait() {
    on_all(a_permission);
}
