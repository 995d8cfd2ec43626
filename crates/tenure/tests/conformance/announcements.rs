//! Stores without a queue: a release is announced to all that wait, and what such a store lacks is refused.

use std::time::Duration;

use tenure::engine::{Acquired, Wakeup};
use tenure::{Error, Kind};

use super::fixture::{Client, Fixture, features, granted, name, someone, waiting};

/// Waits until a client is notified that the lock may be free. Two locks may share a channel, and more may have been missed.
async fn until_freed(client: &Client) {
    let freed = Wakeup::Freed { name: name("x") };
    while client.next_wakeup().await != freed {}
}

/// I7, R11: every client that was refused hears of the release, and one of them is granted the lock.
pub(crate) async fn a_release_is_announced_to_all_waiters(store: &impl Fixture) {
    let (holder, a, b) = (store.client(), store.client(), store.client());
    let entry = someone();
    holder.take("x", entry).await;
    let (one, two) = (someone(), someone());
    let standing = a.queue("x", one).await;
    assert!(standing.free_in > Duration::from_secs(50), "the holder's lease: {standing:?}");
    b.queue("x", two).await;
    holder.release("x", entry).await;
    for client in [&a, &b] {
        until_freed(client).await;
    }
    granted(a.acquire(waiting("x", one)).await);
    assert!(matches!(b.acquire(waiting("x", two)).await, Acquired::Queued(_)));
    a.release("x", one).await;
    until_freed(&b).await;
}

/// R30: asked-for features are refused with a sentence, and not ignored.
pub(crate) async fn what_a_store_lacks_is_refused(store: &impl Fixture) {
    let tenure = store.tenure();
    let lease = Duration::from_secs(10);
    let election = tenure.election("x").campaign().await.map(drop);
    let refused = [
        (tenure.lock("x").fair().acquire().await.map(drop), "in order"),
        (tenure.lock("x").note("nightly").try_acquire().await.map(drop), "note"),
        (tenure.lock("x").at_least(lease).acquire().await.map(drop), "least holding time"),
        (tenure.barrier("x", 2).wait().await, "barrier"),
        (election, "election"),
        (tenure.semaphore("x", 2).apply_limit().await, "limit"),
        (tenure.latch("x", 2).keep_for(lease).count_down().await, "keep_for"),
        (tenure.latch("x", 2).keep_for(lease).set_count().await, "keep_for"),
    ];
    for (result, word) in refused {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        let sentence = error.to_string();
        assert!(sentence.contains(word) && sentence.contains("`x`"), "{sentence}");
        assert!(!sentence.contains("  "), "{sentence}");
    }
    assert_eq!(tenure.list("", 10).await.unwrap(), []);
    let fence = tenure.rwlock("y").write().await.unwrap().fence();
    assert_eq!(fence == tenure::Fence::NONE, !features().has_fences_of(Kind::ReadWrite));
}
