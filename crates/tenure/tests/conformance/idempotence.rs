//! I5: every operation is idempotent by its entry. Sent twice, it acts once (R31).

use tenure::Entry;
use tenure::engine::{Acquired, ReleaseOutcome};

use super::fixture::{Fixture, RELEASED, features, queued, request, someone, waiting};

pub(crate) async fn an_acquire_sent_twice_counts_once(store: &impl Fixture) {
    let (a, b) = (store.client(), store.client());
    let entry = someone();
    let first = a.take("x", entry).await;
    let second = b.take("x", entry).await;
    assert_eq!(first.fence, second.fence);
    assert_eq!(a.release("x", entry).await, RELEASED);
    assert!(a.inspect("x").await.is_free());

    let (holder, waiter) = (someone(), someone());
    a.take("x", holder).await;
    a.queue("x", waiter).await;
    queued(a.acquire(waiting("x", waiter)).await);
    assert_eq!(a.inspect("x").await.waiting, usize::from(features().has_queue));
}

pub(crate) async fn a_release_sent_twice_releases_once(store: &impl Fixture) {
    let client = store.client();
    let entry = someone();
    client.take("x", entry).await;
    assert_eq!(client.release("x", entry).await, RELEASED);
    assert_eq!(client.release("x", entry).await, ReleaseOutcome::NotHeld);
}

pub(crate) async fn a_late_release_never_frees_a_newer_holder(store: &impl Fixture) {
    let client = store.client();
    let (old, new) = (someone(), someone());
    client.take("x", old).await;
    client.release("x", old).await;
    client.take("x", new).await;
    assert_eq!(client.release("x", old).await, ReleaseOutcome::NotHeld);
    client.cancel("x", old).await;
    assert_eq!(client.acquire(request("x", someone())).await, Acquired::Busy);
    assert_eq!(client.inspect("x").await.holders[0].owner, new.owner);
}

pub(crate) async fn a_cancel_sent_twice_is_harmless(store: &impl Fixture) {
    let client = store.client();
    let (holder, waiter) = (someone(), someone());
    client.take("x", holder).await;
    client.queue("x", waiter).await;
    client.cancel("x", waiter).await;
    client.cancel("x", waiter).await;
    client.cancel("never seen", waiter).await;
    let info = client.inspect("x").await;
    assert_eq!((info.holders[0].owner, info.waiting), (holder.owner, 0));
}

pub(crate) async fn a_reentry_sent_twice_counts_once(store: &impl Fixture) {
    let client = store.client();
    let first = Entry { number: 1, ..someone() };
    let second = Entry { number: 2, ..first };
    client.take("x", first).await;
    client.take("x", second).await;
    client.take("x", first).await;
    client.take("x", second).await;
    assert_eq!(client.inspect("x").await.holders[0].entries, 2);
    assert_eq!(client.release("x", second).await, ReleaseOutcome::Released { remaining: 1 });
    assert_eq!(client.release("x", second).await, ReleaseOutcome::NotHeld);
    assert_eq!(client.release("x", first).await, RELEASED);
}
