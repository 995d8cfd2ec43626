//! I3: only the owner can renew or release, and a renewal never recreates a missing lock.

use tenure::engine::{Acquired, ReleaseOutcome, Renewed};

use super::fixture::{Fixture, RELEASED, features, long, request, someone};

pub(crate) async fn only_the_owner_releases(store: &impl Fixture) {
    let (a, b) = (store.client(), store.client());
    let owner = someone();
    a.take("x", owner).await;
    assert_eq!(b.release("x", someone()).await, ReleaseOutcome::NotHeld);
    assert_eq!(b.acquire(request("x", someone())).await, Acquired::Busy, "still held");
    assert_eq!(b.release("x", owner).await, RELEASED, "the owner, from wherever it comes");
}

pub(crate) async fn only_the_owner_renews(store: &impl Fixture) {
    let client = store.client();
    let owner = someone();
    client.take("x", owner).await;
    let left = client.inspect("x").await.holders[0].lease_left;
    assert_eq!(client.renew("x", someone().owner, long()).await, Renewed::NotHeld);
    assert!(client.inspect("x").await.holders[0].lease_left <= left, "unchanged");
    assert_eq!(client.renew("x", owner.owner, long()).await, Renewed::Extended);
}

pub(crate) async fn a_renewal_never_recreates_a_missing_lock(store: &impl Fixture) {
    let client = store.client();
    let owner = someone();
    assert_eq!(client.renew("x", owner.owner, long()).await, Renewed::NotHeld);
    assert!(client.inspect("x").await.is_free());
    client.take("x", owner).await;
    client.release("x", owner).await;
    assert_eq!(client.renew("x", owner.owner, long()).await, Renewed::NotHeld);
    assert!(client.inspect("x").await.is_free());
}

pub(crate) async fn a_waiter_is_no_owner(store: &impl Fixture) {
    let client = store.client();
    let waiter = someone();
    client.take("x", someone()).await;
    client.queue("x", waiter).await;
    assert_eq!(client.renew("x", waiter.owner, long()).await, Renewed::NotHeld);
    assert_eq!(client.release("x", waiter).await, ReleaseOutcome::NotHeld);
    let waiting = usize::from(features().has_queue);
    assert_eq!(client.inspect("x").await.waiting, waiting, "it still waits");
}
