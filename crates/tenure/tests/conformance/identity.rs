//! I3: only the owner can renew or release, and a renewal never recreates a missing lock.

use tenure::Entry;
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
    assert_eq!(client.renew("x", someone(), long()).await, Renewed::NotHeld);
    assert!(client.inspect("x").await.holders[0].lease_left <= left, "unchanged");
    assert_eq!(client.renew("x", owner, long()).await, Renewed::Extended);
}

/// Another entry of the owner may end at any time: a holder must not rely on it.
pub(crate) async fn a_renewal_is_for_the_entry_that_it_names(store: &impl Fixture) {
    let client = store.client();
    let (first, owner) = (someone(), someone().owner);
    let [one, other, third] = [1, 2, 3].map(|number| Entry { owner, number });
    client.take("x", first).await;
    assert_eq!(client.renew("x", Entry { number: 7, ..first }, long()).await, Renewed::NotHeld);
    assert_eq!(client.renew("x", first, long()).await, Renewed::Extended);
    client.take("y", one).await;
    client.take("y", other).await;
    assert_eq!(client.renew("y", third, long()).await, Renewed::NotHeld);
    assert_eq!(client.renew("y", other, long()).await, Renewed::Extended);
    client.release("y", one).await;
    assert_eq!(client.renew("y", one, long()).await, Renewed::NotHeld, "it has ended");
    assert_eq!(client.renew("y", other, long()).await, Renewed::Extended);
    let left = client.inspect("y").await.holders[0].lease_left;
    assert!(left > long().duration() / 2, "{left:?}");
}

pub(crate) async fn a_renewal_never_recreates_a_missing_lock(store: &impl Fixture) {
    let client = store.client();
    let owner = someone();
    assert_eq!(client.renew("x", owner, long()).await, Renewed::NotHeld);
    assert!(client.inspect("x").await.is_free());
    client.take("x", owner).await;
    client.release("x", owner).await;
    assert_eq!(client.renew("x", owner, long()).await, Renewed::NotHeld);
    assert!(client.inspect("x").await.is_free());
}

pub(crate) async fn a_waiter_is_no_owner(store: &impl Fixture) {
    let client = store.client();
    let waiter = someone();
    client.take("x", someone()).await;
    client.queue("x", waiter).await;
    assert_eq!(client.renew("x", waiter, long()).await, Renewed::NotHeld);
    assert_eq!(client.release("x", waiter).await, ReleaseOutcome::NotHeld);
    let waiting = usize::from(features().has_queue);
    assert_eq!(client.inspect("x").await.waiting, waiting, "it still waits");
}
