//! R15: fences in a real Redis.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/client.rs"]
mod client;

use client::Client;
use tenure::{Fence, LockName};
use tenure_fenced::Error;
use tenure_fenced::redis::RedisFences;
use tenure_testkit::Server;
use tenure_testkit::resp::Reply;

#[tokio::test]
async fn redis_names_the_fence_that_overtook_a_holder() {
    let server = Server::start();
    let (fences, look) = (RedisFences::new(Client::of(&server), "fence:"), Client::of(&server));
    let (name, old, new) = (LockName::new("stock").unwrap(), 7, Fence::MAX.value());
    let [old, new] = [old, new].map(Fence::from_value);

    fences.register(&name, old).await.unwrap();
    fences.set(&name, old, "left", b"9").await.unwrap();
    fences.register(&name, new).await.unwrap();
    let late_read = fences.register(&name, old).await.unwrap_err();
    let late_write = fences.set(&name, old, "left", b"8").await.unwrap_err();
    for refused in [late_read, late_write] {
        let Error::Overtaken(overtaken) = refused else { panic!("{refused}") };
        assert_eq!((overtaken.fence(), overtaken.newer()), (old, new));
    }
    assert_eq!(look.command(&["GET", "left"]), Reply::Bulk(Some(b"9".to_vec())));
    assert_eq!(look.command(&["GET", "fence:stock"]).text().unwrap(), new.to_string());
}

#[tokio::test]
async fn a_failing_server_is_reported_with_its_cause() {
    let server = Server::start();
    let (fences, look) = (RedisFences::new(Client::of(&server), "fence:"), Client::of(&server));
    let name = LockName::new("stock").unwrap();
    look.command(&["RPUSH", "fence:stock", "not a fence"]);
    let failed = fences.register(&name, Fence::from_value(7)).await.unwrap_err();
    assert!(matches!(failed, Error::Store { .. }), "{failed}");
    assert!(failed.to_string().contains("WRONGTYPE"), "{failed}");
    let wrong = fences.register(&name, Fence::from_value(1 << 53)).await.unwrap_err();
    assert!(matches!(wrong, Error::NotAFence { .. }), "{wrong}");
}
