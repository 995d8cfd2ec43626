//! The same owner enters again; the lock is free when every entry has ended.

use tenure::engine::{AcquireRequest, Acquired, ReleaseOutcome};
use tenure::{Entry, Owner};

use super::fixture::{
    Fixture, RELEASED, granted, lease, ms, pass, request, semaphore, someone, waiting,
};

fn entries(count: u64) -> Vec<Entry> {
    let owner = Owner::new();
    (1..=count).map(|number| Entry { owner, number }).collect()
}

pub(crate) async fn the_same_owner_enters_again(store: &impl Fixture) {
    let client = store.client();
    let entries = entries(3);
    for entry in &entries {
        client.take("x", *entry).await;
    }
    let info = client.inspect("x").await;
    assert_eq!((info.holders.len(), info.holders[0].entries), (1, 3));
    assert_eq!(client.acquire(request("x", someone())).await, Acquired::Busy);
}

pub(crate) async fn every_entry_must_end(store: &impl Fixture) {
    let client = store.client();
    let entries = entries(3);
    for entry in &entries {
        client.take("x", *entry).await;
    }
    let outcome = client.release("x", entries[1]).await;
    assert_eq!(outcome, ReleaseOutcome::Released { remaining: 2 });
    let outcome = client.release("x", entries[0]).await;
    assert_eq!(outcome, ReleaseOutcome::Released { remaining: 1 });
    assert_eq!(client.acquire(request("x", someone())).await, Acquired::Busy);
    assert_eq!(client.release("x", entries[2]).await, RELEASED);
    client.take("x", someone()).await;
}

pub(crate) async fn a_reentry_refreshes_the_lease(store: &impl Fixture) {
    let client = store.client();
    let entries = entries(2);
    let short = |entry| AcquireRequest { lease: lease(1000), ..request("x", entry) };
    granted(client.acquire(short(entries[0])).await);
    pass(ms(600)).await;
    granted(client.acquire(short(entries[1])).await);
    pass(ms(600)).await;
    assert_eq!(client.acquire(request("x", someone())).await, Acquired::Busy);
    // A shorter lease of a further entry does not shorten the hold.
    let shorter = Entry { owner: entries[0].owner, number: 9 };
    granted(client.acquire(AcquireRequest { lease: lease(10), ..request("x", shorter) }).await);
    pass(ms(20)).await;
    assert_eq!(client.acquire(request("x", someone())).await, Acquired::Busy);
}

pub(crate) async fn other_entries_of_the_owner_come_along(store: &impl Fixture) {
    let client = store.client();
    let holder = someone();
    client.take("x", holder).await;
    let entries = entries(2);
    client.queue("x", entries[0]).await;
    let other = someone();
    client.queue("x", other).await;
    client.queue("x", entries[1]).await;
    client.release("x", holder).await;
    let (first, second) = (client.next_grant().await, client.next_grant().await);
    assert_eq!((first.0, second.0), (entries[0], entries[1]), "or it would wait for itself");
    assert_eq!(first.1.fence, second.1.fence);
    client.release("x", entries[0]).await;
    client.release("x", entries[1]).await;
    assert_eq!(client.next_grant().await.0, other);
}

pub(crate) async fn asking_for_more_permits_is_refused(store: &impl Fixture) {
    let client = store.client();
    let entries = entries(2);
    let want =
        |entry, permits| AcquireRequest { shape: semaphore(4, permits), ..waiting("s", entry) };
    granted(client.acquire(want(entries[0], 1)).await);
    assert_eq!(client.acquire(want(entries[1], 4)).await, Acquired::Upgrade { held: 1 });
    granted(client.acquire(want(entries[1], 1)).await);
}
