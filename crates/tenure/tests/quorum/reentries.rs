//! One owner that enters a lock again: after its hold was lost, and by several clients.

use std::time::Duration;

use tenure::{Guard, Owner, Tenure};
use tenure_testkit::Proxy;

use super::entries::{cut_off, holder, is_held_alone};
use super::fixture::{LONGEST, Nodes, now, pass, until_well};

/// All nodes have forgotten what this client held.
async fn forgotten(holder: &Tenure, proxies: &[Proxy]) {
    proxies.iter().for_each(cut_off);
    pass(LONGEST + LONGEST / 10).await;
    proxies.iter().for_each(|proxy| proxy.refuse(false));
    until_well(holder).await;
}

/// I1: the end of a re-entry that was lost ended what the same owner had been granted since; and the first renewal of that
/// was refused, because no node had the entry that was lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reentry_does_not_end_a_later_grant() {
    let nodes = Nodes::start(3).await;
    let (holder, proxies) = holder(&nodes).await;
    let lock = holder.lock("x").owner(Owner::new());
    let first = lock.acquire().await.unwrap();
    let second = lock.acquire().await.unwrap();
    first.release().await.unwrap();
    forgotten(&holder, &proxies).await;
    assert!(second.is_lost());
    let third = lock.acquire().await.unwrap();
    assert!(third.fence() > second.fence(), "I4");
    second.release().await.unwrap();
    is_held_alone(&nodes, &third).await;
    pass(LONGEST + LONGEST / 10).await;
    assert!(!third.is_lost(), "it is renewed");
    third.release().await.unwrap();
    nodes.until_empty().await;
}

/// I1, I4: a client had lost its hold. It entered that of another client with the same owner, without an entry of its own and
/// with its old fence, and the release of the other one freed the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_lost_its_hold_does_not_enter_that_of_another() {
    let nodes = Nodes::start(3).await;
    let (holder, proxies) = holder(&nodes).await;
    let owner = Owner::new();
    let lock = holder.lock("x").owner(owner);
    let _lost = lock.acquire().await.unwrap();
    proxies.iter().for_each(cut_off);
    pass(LONGEST + LONGEST / 10).await;
    let other = nodes.client().await;
    let between = other.lock("x").acquire().await.unwrap();
    let fence = between.fence();
    between.release().await.unwrap();
    let peers = other.lock("x").owner(owner).acquire().await.unwrap();
    proxies.iter().for_each(|proxy| proxy.refuse(false));
    until_well(&holder).await;
    let again = lock.acquire().await.unwrap();
    assert!(again.fence() > fence, "I4");
    peers.release().await.unwrap();
    is_held_alone(&nodes, &again).await;
}

/// I1: a node had forgotten the entry of a client, and had that of another one with the same owner. It counted for the renewals
/// of both, and was free once the other one had released.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_the_entry_of_another_client_does_not_count() {
    let nodes = Nodes::start(3).await;
    let (holder, proxies) = holder(&nodes).await;
    let owner = Owner::new();
    let first = holder.lock("x").owner(owner).acquire().await.unwrap();
    cut_off(&proxies[0]);
    pass(LONGEST + LONGEST / 10).await;
    assert!(!first.is_lost());
    let other = nodes.client().await;
    let peers = other.lock("x").owner(owner).acquire().await.unwrap();
    proxies[0].refuse(false);
    until_well(&holder).await;
    first.renew().await.unwrap();
    cut_off(&proxies[2]);
    renewed_for(LONGEST + LONGEST / 10, &first).await;
    peers.release().await.unwrap();
    let started = now();
    while started.elapsed() < LONGEST && !first.is_lost() {
        is_held_alone(&nodes, &first).await;
    }
}

/// It is renewed all the time; single renewals may fail while a node is repaired.
async fn renewed_for(time: Duration, guard: &Guard) {
    let started = now();
    while started.elapsed() < time {
        let _ = guard.renew().await;
        pass(Duration::from_millis(300)).await;
    }
    assert!(!guard.is_lost());
}
