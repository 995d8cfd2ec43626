//! I4: fences strictly increase in grant order.

use tenure::Entry;
use tenure::engine::{AcquireRequest, Queueing};

use super::fixture::{Fixture, QUEUEING, granted, long, queued, request, someone, waiting};

pub(crate) async fn fences_grow_in_grant_order(store: &impl Fixture) {
    let client = store.client();
    let mut last = 0;
    for _ in 0..50 {
        let entry = someone();
        let fence = client.take("x", entry).await.fence.value();
        assert!(fence > last && fence < 1 << 53, "{fence} after {last}");
        last = fence;
        client.release("x", entry).await;
    }
}

pub(crate) async fn renewal_and_reentry_keep_the_fence(store: &impl Fixture) {
    let client = store.client();
    let entry = Entry { number: 1, ..someone() };
    let fence = client.take("x", entry).await.fence;
    client.renew("x", entry, long()).await;
    assert_eq!(client.take("x", Entry { number: 2, ..entry }).await.fence, fence);
    assert_eq!(client.inspect("x").await.holders[0].fence, fence);
}

pub(crate) async fn a_handover_reserves_its_fences(store: &impl Fixture) {
    let client = store.client();
    let (a, b, c) = (someone(), someone(), someone());
    assert_eq!(client.take("x", a).await.fences, 1);
    let queue = Some(Queueing { fences: 10, ..QUEUEING });
    queued(client.acquire(AcquireRequest { queue, ..waiting("x", b) }).await);
    client.queue("x", c).await;
    client.release("x", a).await;
    let (_, second) = client.next_grant().await;
    assert_eq!(second.fences, 10);
    client.release("x", b).await;
    let (_, third) = client.next_grant().await;
    assert!(third.fence.value() >= second.fence.value() + 10);
}

pub(crate) async fn fences_of_all_clients_are_one_order(store: &impl Fixture) {
    let clients = [store.client(), store.client(), store.client()];
    let mut last = 0;
    for round in 0..30 {
        let client = &clients[round % clients.len()];
        let entry = someone();
        let fence = granted(client.acquire(request("x", entry)).await).fence.value();
        assert!(fence > last);
        last = fence;
        client.release("x", entry).await;
    }
}
