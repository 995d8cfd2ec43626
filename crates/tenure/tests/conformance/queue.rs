//! I7 and I10: first come, first served, whichever waiter dies and whatever message is lost.

use tenure::engine::{AcquireRequest, Acquired, Queueing, Renewed};

use super::fixture::{
    Fixture, QUEUEING, granted, lease, long, ms, pass, queued, request, someone, waiting,
};

pub(crate) async fn waiters_are_served_in_order(store: &impl Fixture) {
    let clients = [store.client(), store.client()];
    let mut holder = someone();
    clients[0].take("x", holder).await;
    let waiters: Vec<_> = (0..6).map(|_| someone()).collect();
    for (place, waiter) in waiters.iter().enumerate() {
        let standing = clients[place % 2].queue("x", *waiter).await;
        assert_eq!(standing.ahead as usize, place);
    }
    for (place, waiter) in waiters.iter().enumerate() {
        clients[0].release("x", holder).await;
        let (entry, _) = clients[place % 2].next_grant().await;
        assert_eq!(entry, *waiter);
        holder = *waiter;
    }
}

pub(crate) async fn a_release_wakes_one_waiter(store: &impl Fixture) {
    let (a, b) = (store.client(), store.client());
    let holder = someone();
    a.take("x", holder).await;
    let first = someone();
    a.queue("x", first).await;
    for _ in 0..20 {
        b.queue("x", someone()).await;
    }
    a.release("x", holder).await;
    assert_eq!(a.next_grant().await.0, first);
    pass(ms(20)).await;
    assert_eq!((a.try_next_wakeup(), b.try_next_wakeup()), (None, None));
}

pub(crate) async fn a_request_that_does_not_wait_does_not_overtake(store: &impl Fixture) {
    let client = store.client();
    let want = |permits| AcquireRequest {
        shape: super::fixture::semaphore(2, permits),
        ..waiting("s", someone())
    };
    granted(client.acquire(want(1)).await);
    queued(client.acquire(want(2)).await);
    // One permit is free, but a waiter ahead needs two.
    let hasty = AcquireRequest { queue: None, ..want(1) };
    assert_eq!(client.acquire(hasty).await, Acquired::Busy);
    assert_eq!(queued(client.acquire(want(1)).await).ahead, 1);
}

pub(crate) async fn asking_again_keeps_the_place(store: &impl Fixture) {
    let client = store.client();
    let holder = someone();
    client.take("x", holder).await;
    let (first, second) = (someone(), someone());
    client.queue("x", first).await;
    client.queue("x", second).await;
    assert_eq!(client.queue("x", first).await.ahead, 0);
    assert_eq!(client.queue("x", second).await.ahead, 1);
    client.release("x", holder).await;
    assert_eq!(client.next_grant().await.0, first);
}

pub(crate) async fn asking_again_returns_the_missed_grant(store: &impl Fixture) {
    let client = store.client();
    let (holder, waiter) = (someone(), someone());
    client.take("x", holder).await;
    client.queue("x", waiter).await;
    client.release("x", holder).await;
    let (_, notified) = client.next_grant().await;
    let asked = granted(client.acquire(waiting("x", waiter)).await);
    assert_eq!(asked.fence, notified.fence);
    assert_eq!(client.inspect("x").await.holders[0].entries, 1);
}

pub(crate) async fn a_dead_waiter_is_passed_over(store: &impl Fixture) {
    let client = store.client();
    let holder = someone();
    client.take("x", holder).await;
    for _ in 0..100 {
        let dying = Some(Queueing { heartbeat: ms(30), ..QUEUEING });
        queued(client.acquire(AcquireRequest { queue: dying, ..waiting("x", someone()) }).await);
    }
    let live = someone();
    client.queue("x", live).await;
    pass(ms(60)).await;
    client.release("x", holder).await;
    assert_eq!(client.next_grant().await.0, live, "the dead got nothing");
    assert_eq!(client.inspect("x").await.waiting, 0);
}

pub(crate) async fn a_client_that_is_gone_is_passed_over(store: &impl Fixture) {
    let (client, gone) = (store.client(), store.client());
    let holder = someone();
    client.take("x", holder).await;
    gone.queue("x", someone()).await;
    gone.queue("x", someone()).await;
    let live = someone();
    client.queue("x", live).await;
    drop(gone);
    store.until_clients(1).await;
    client.release("x", holder).await;
    assert_eq!(client.next_grant().await.0, live);
}

pub(crate) async fn an_unclaimed_handover_goes_to_the_next(store: &impl Fixture) {
    let client = store.client();
    let (holder, frozen, live) = (someone(), someone(), someone());
    client.take("x", holder).await;
    let queue = Some(Queueing { claim: ms(50), ..QUEUEING });
    queued(client.acquire(AcquireRequest { queue, ..waiting("x", frozen) }).await);
    client.queue("x", live).await;
    client.release("x", holder).await;
    let (entry, grant) = client.next_grant().await;
    assert_eq!((entry, grant.lease), (frozen, ms(50)));
    pass(ms(70)).await;
    granted(client.acquire(waiting("x", live)).await);
    assert_eq!(client.renew("x", frozen, long()).await, Renewed::NotHeld);
}

pub(crate) async fn a_claimed_handover_has_the_full_lease(store: &impl Fixture) {
    let client = store.client();
    let (holder, waiter) = (someone(), someone());
    client.take("x", holder).await;
    let queue = Some(Queueing { claim: ms(80), ..QUEUEING });
    queued(client.acquire(AcquireRequest { queue, ..waiting("x", waiter) }).await);
    client.release("x", holder).await;
    client.next_grant().await;
    assert_eq!(client.renew("x", waiter, long()).await, Renewed::Extended);
    pass(ms(100)).await;
    assert_eq!(client.acquire(request("x", someone())).await, Acquired::Busy);
}

pub(crate) async fn a_cancelled_waiter_is_not_served(store: &impl Fixture) {
    let client = store.client();
    let (holder, leaving, live) = (someone(), someone(), someone());
    client.take("x", holder).await;
    client.queue("x", leaving).await;
    client.queue("x", live).await;
    client.cancel("x", leaving).await;
    client.release("x", holder).await;
    assert_eq!(client.next_grant().await.0, live);
}

pub(crate) async fn a_cancel_gives_back_what_was_granted(store: &impl Fixture) {
    let client = store.client();
    let (holder, leaving, live) = (someone(), someone(), someone());
    client.take("x", holder).await;
    client.queue("x", leaving).await;
    client.queue("x", live).await;
    client.release("x", holder).await;
    assert_eq!(client.next_grant().await.0, leaving);
    client.cancel("x", leaving).await;
    assert_eq!(client.next_grant().await.0, live);
}

pub(crate) async fn an_ended_lease_serves_the_queue(store: &impl Fixture) {
    let client = store.client();
    let crashed = AcquireRequest { lease: lease(50), ..request("x", someone()) };
    granted(client.acquire(crashed).await);
    let (first, second) = (someone(), someone());
    let standing = client.queue("x", first).await;
    assert!(standing.free_in <= ms(50), "so that the first in the queue knows when to ask");
    client.queue("x", second).await;
    pass(ms(70)).await;
    // Whichever waiter asks, the first one is served.
    queued(client.acquire(waiting("x", second)).await);
    assert_eq!(client.next_grant().await.0, first);
}
