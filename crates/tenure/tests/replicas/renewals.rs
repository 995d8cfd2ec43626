//! Renewals that replicas must have.

use std::time::Duration;

use tenure::{Error, WhyLost};
use tenure_testkit::Flavor;

use super::fixture::{Group, LONG, ms, on_all, pass, run, stored};

const LEASE: Duration = Duration::from_secs(3);

/// I9: a renewal that no replica has does not count. A replica that is back in time costs nothing; one that is not costs
/// the lock, at its deadline.
async fn renewals_are_confirmed(flavor: Flavor) {
    let group = Group::start(flavor, 1).await;
    let plain = group.client.lock("plain").lease(LEASE).wait_replicas(1, ms(400));
    let strict = group.client.lock("strict").lease(LEASE).wait_replicas_on_renewal(1, ms(400));
    let (plain, guard) = (plain.acquire().await.unwrap(), strict.acquire().await.unwrap());
    let before = stored(&group.replicas[0], "strict");
    pass(LEASE).await;
    guard.ensure_held().unwrap();
    assert_ne!(stored(&group.replicas[0], "strict"), before, "the replica has the renewals");

    group.pause(true);
    let renewed = guard.renew().await.unwrap_err();
    assert!(matches!(renewed, Error::Unreplicated { replicas: 0, wanted: 1, .. }), "{renewed}");
    assert!(renewed.to_string().starts_with("could not renew `strict`: 0 of 1"), "{renewed}");
    guard.ensure_held().unwrap();
    group.pause(false);
    pass(LEASE).await;
    guard.ensure_held().unwrap();

    group.pause(true);
    let lost = tokio::time::timeout(LONG, guard.lost()).await.expect("it is lost");
    assert_eq!(lost.why(), WhyLost::LeaseEnded);
    plain.ensure_held().unwrap();
    group.pause(false);
    drop(guard);
}

#[test]
fn a_renewal_that_no_replica_has_does_not_count() {
    on_all(renewals_are_confirmed);
}

/// A replica that is cut off rather than slow: it follows no master any more.
async fn a_replica_that_left(flavor: Flavor) {
    let group = Group::start(flavor, 1).await;
    let lock = group.client.lock("x").wait_replicas(1, ms(300));
    drop(lock.acquire().await.unwrap());
    run(&group.replicas[0], &["REPLICAOF", "NO", "ONE"]);
    let refused = lock.acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Unreplicated { replicas: 0, .. }), "{refused}");
    assert!(group.other().await.lock("x").try_acquire().await.unwrap().is_some());
}

#[test]
fn a_replica_that_has_left_confirms_nothing() {
    on_all(a_replica_that_left);
}
