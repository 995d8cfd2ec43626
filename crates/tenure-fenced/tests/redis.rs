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

/// What is stored may be wrong, too: a text that Lua reads as a number refused no holder, or blamed the caller.
#[tokio::test]
async fn what_is_stored_as_a_fence_must_be_one() {
    let server = Server::start();
    let (fences, look) = (RedisFences::new(Client::of(&server), "fence:"), Client::of(&server));
    let name = LockName::new("stock").unwrap();
    for stored in ["nan", "-5", "inf", "1e3", "0x7", "9999999999999999"] {
        look.command(&["SET", "fence:stock", stored]);
        for refused in [
            fences.register(&name, Fence::from_value(7)).await.unwrap_err(),
            fences.set(&name, Fence::from_value(7), "left", b"9").await.unwrap_err(),
        ] {
            assert!(matches!(refused, Error::Store { .. }), "{stored}: {refused}");
        }
        assert_eq!(look.command(&["GET", "fence:stock"]).text().unwrap(), stored);
    }
}

#[tokio::test]
async fn a_value_does_not_overwrite_its_fence() {
    let server = Server::start();
    let fences = RedisFences::new(Client::of(&server), "fence:");
    let name = LockName::new("stock").unwrap();
    fences.register(&name, Fence::from_value(9)).await.unwrap();
    let refused = fences.set(&name, Fence::from_value(9), "fence:stock", b"1").await.unwrap_err();
    assert!(refused.to_string().contains("keys of their own"), "{refused}");
    fences.register(&name, Fence::from_value(3)).await.unwrap_err();
}
