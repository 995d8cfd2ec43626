//! A store as one node of a quorum: the fence is the client's proposal. I1, I4, I5, I10.

use std::time::SystemTime;

use tenure::engine::{AcquireRequest, Acquired, Proposal, Renewal, Renewed};
use tenure::{Entry, Fence};

use super::fixture::{
    Client, Fixture, RELEASED, granted, lease, long, ms, name, pass, queued, request, someone,
    waiting,
};

/// The calendar as a fence: all stores of a test have the clock of this machine.
#[allow(clippy::disallowed_methods, reason = "a client proposes the time")]
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_micros()).unwrap()
}

fn proposing(request: AcquireRequest, fence: u64) -> AcquireRequest {
    let proposal =
        Proposal { fence: Fence::from_value(fence), is_repair: false, is_repeated: false };
    AcquireRequest { proposal: Some(proposal), ..request }
}

fn repairing(request: AcquireRequest, fence: u64) -> AcquireRequest {
    let proposal =
        Proposal { fence: Fence::from_value(fence), is_repair: true, is_repeated: false };
    AcquireRequest { proposal: Some(proposal), ..request }
}

async fn commit(client: &Client, entry: Entry, fence: u64) -> Renewed {
    let commit = Some(Fence::from_value(fence));
    let renewal = Renewal { name: name("x"), entry, lease: long(), commit };
    client.renew_all(vec![renewal]).await[0]
}

pub(crate) async fn a_proposal_above_the_last_fence_is_granted(store: &impl Fixture) {
    let client = store.client();
    let (first, second, fence) = (someone(), someone(), now() + 1_000_000);
    let grant = granted(client.acquire(proposing(request("x", first), fence)).await);
    assert_eq!((grant.fence.value(), grant.fences), (fence, 1));
    let again = granted(client.acquire(proposing(request("x", first), fence + 9)).await);
    assert_eq!(again.fence.value(), fence, "the same entry has the same grant");
    let busy = client.acquire(proposing(request("x", second), fence + 1)).await;
    assert_eq!(busy, Acquired::Busy);
    assert_eq!(client.renew("x", first, long()).await, Renewed::Extended);
    assert_eq!(client.release("x", first).await, RELEASED);
    let last = Fence::from_value(fence);
    let outdated = client.acquire(proposing(request("x", second), fence)).await;
    assert_eq!(outdated, Acquired::Outdated { last });
    assert!(client.inspect("x").await.holders.is_empty(), "nothing was done");
    let next = granted(client.acquire(proposing(request("x", second), fence + 1)).await);
    assert_eq!(next.fence.value(), fence + 1);
    client.release("x", second).await;
    let chosen = client.take("x", someone()).await.fence;
    assert!(chosen.value() > fence + 1, "the store's own fences continue above it");
}

pub(crate) async fn a_proposal_far_from_the_calendar_is_refused(store: &impl Fixture) {
    let client = store.client();
    let before = now();
    let ahead = client.acquire(proposing(waiting("x", someone()), before + 70_000_000)).await;
    let Acquired::Ahead { clock } = ahead else { panic!("{ahead:?}") };
    assert!((before..=now()).contains(&clock.as_micros()));
    // The store may have forgotten a larger one.
    let behind = client.acquire(proposing(request("x", someone()), before - 31_000_000)).await;
    let Acquired::Outdated { last } = behind else { panic!("{behind:?}") };
    assert!(last.value() >= before, "the next proposal is not behind again");
    granted(client.acquire(proposing(request("x", someone()), last.value() + 1)).await);
}

/// I10: all nodes of a quorum hand over to the same waiter.
pub(crate) async fn waiters_are_served_by_their_proposals(store: &impl Fixture) {
    let client = store.client();
    let (holder, late, early) = (someone(), someone(), someone());
    let fence = now() + 1_000_000;
    granted(client.acquire(proposing(request("x", holder), fence)).await);
    let last = queued(client.acquire(proposing(waiting("x", late), fence + 20)).await);
    let first = queued(client.acquire(proposing(waiting("x", early), fence + 10)).await);
    assert_eq!((last.ahead, first.ahead), (0, 0));
    let again = queued(client.acquire(proposing(waiting("x", late), fence + 1)).await);
    assert_eq!(again.ahead, 1, "asking again keeps the ticket");
    client.release("x", holder).await;
    let (entry, grant) = client.next_grant().await;
    assert_eq!((entry, grant.fence.value()), (early, fence + 10), "its proposal is its fence");
    client.release("x", early).await;
    let (entry, grant) = client.next_grant().await;
    assert_eq!((entry, grant.fence.value()), (late, fence + 20));
}

pub(crate) async fn a_handover_is_above_the_last_fence(store: &impl Fixture) {
    let client = store.client();
    let (holder, waiter, fence) = (someone(), someone(), now() + 1_000_000);
    granted(client.acquire(proposing(request("x", holder), fence)).await);
    queued(client.acquire(proposing(waiting("x", waiter), fence - 5)).await);
    client.release("x", holder).await;
    assert_eq!(client.next_grant().await.1.fence.value(), fence + 1);
}

pub(crate) async fn a_committed_fence_is_the_last_one(store: &impl Fixture) {
    let client = store.client();
    let (holder, fence) = (someone(), now() + 1_000_000);
    granted(client.acquire(proposing(request("x", holder), fence)).await);
    for committed in [fence + 7, fence + 3] {
        assert_eq!(commit(&client, holder, committed).await, Renewed::Extended);
        let held = client.inspect("x").await.holders[0].fence;
        assert_eq!(held.value(), fence + 7, "it is raised, and never lowered");
    }
    assert_eq!(commit(&client, someone(), fence + 99).await, Renewed::NotHeld);
    client.release("x", holder).await;
    let outdated = client.acquire(proposing(request("x", someone()), fence + 7)).await;
    assert_eq!(outdated, Acquired::Outdated { last: Fence::from_value(fence + 7) });
}

/// The holder at a majority gets the lock of this node before its waiters, with the fence that it has.
pub(crate) async fn a_repair_precedes_the_waiters(store: &impl Fixture) {
    let client = store.client();
    let (waiter, owner, fence) = (someone(), someone(), now() + 1_000_000);
    granted(client.acquire(proposing(request("y", someone()), fence)).await);
    let busy = client.acquire(repairing(request("y", owner), fence + 1)).await;
    assert_eq!(busy, Acquired::Busy, "the lease of another owner has not ended");
    let crashed = AcquireRequest { lease: lease(1_000), ..request("x", someone()) };
    granted(client.acquire(proposing(crashed, fence + 2)).await);
    queued(client.acquire(proposing(waiting("x", waiter), fence + 3)).await);
    pass(ms(1_100)).await;
    let repaired = granted(client.acquire(repairing(request("x", owner), fence + 2)).await);
    assert_eq!(repaired.fence.value(), fence + 2, "the last fence again");
    queued(client.acquire(proposing(waiting("x", waiter), fence + 3)).await);
    client.release("x", owner).await;
    let (entry, grant) = client.next_grant().await;
    assert_eq!((entry, grant.fence.value()), (waiter, fence + 3));
    client.release("x", waiter).await;
    let outdated = client.acquire(repairing(request("x", owner), fence + 2)).await;
    assert_eq!(outdated, Acquired::Outdated { last: Fence::from_value(fence + 3) });
}
