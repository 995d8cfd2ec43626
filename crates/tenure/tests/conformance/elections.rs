//! R27: leader elections.

use std::time::Duration;

use tenure::{Election, Error, Leadership, Tenure};

use super::fixture::{Fixture, KEPT, ms};
use super::locks::until_waiting;

const LONG: Duration = Duration::from_secs(20);

fn election(tenure: &Tenure, candidate: &str) -> Election {
    tenure.election("x").candidate(candidate).retry(ms(5))
}

fn campaign(election: Election) -> tokio::task::JoinHandle<Leadership> {
    tokio::spawn(async move { election.campaign_within(LONG).await.unwrap() })
}

pub(crate) async fn one_leads_and_the_next_follows(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    assert_eq!(election(&a, "a").leader().await.unwrap(), None);
    let first = election(&a, "a").campaign().await.unwrap();
    assert!(first.is_leader() && election(&b, "b").try_campaign().await.unwrap().is_none());
    let leader = election(&b, "b").leader().await.unwrap().unwrap();
    assert_eq!((&*leader.candidate, leader.fence), ("a", first.fence()));
    assert_eq!(leader.owner, first.owner());
    let next = campaign(election(&b, "b"));
    until_waiting(&a, "x", 1).await;
    let term = first.fence();
    first.resign().await.unwrap();
    let second = next.await.unwrap();
    assert!(second.fence() > term, "I4");
    assert!(second.is_leader(), "from the first moment");
    assert_eq!(&*election(&a, "a").leader().await.unwrap().unwrap().candidate, "b");
}

pub(crate) async fn participants_are_listed_in_order(store: &impl Fixture) {
    let tenure = store.tenure();
    let _leading = election(&tenure, "a").campaign().await.unwrap();
    let mut standing = Vec::new();
    for (number, name) in ["b", "c", "d"].into_iter().enumerate() {
        standing.push(campaign(election(&tenure, name)));
        until_waiting(&tenure, "x", number + 1).await;
    }
    let participants = election(&tenure, "e").participants().await.unwrap();
    let names: Vec<_> = participants.iter().filter_map(|about| about.note.as_deref()).collect();
    assert_eq!(names, ["a", "b", "c", "d"]);
    standing.iter().for_each(tokio::task::JoinHandle::abort);
}

pub(crate) async fn changes_of_leader_are_reported(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let mut changes = election(&b, "b").changes();
    assert_eq!(changes.next().await.unwrap(), None);
    let first = election(&a, "a").campaign().await.unwrap();
    let leader = tokio::time::timeout(LONG, changes.next()).await.unwrap().unwrap().unwrap();
    assert_eq!((&*leader.candidate, leader.fence), ("a", first.fence()));
    drop(first);
    let leader = tokio::time::timeout(LONG, changes.next()).await.unwrap().unwrap();
    assert_eq!(leader, None);
}

/// I9.
pub(crate) async fn a_leader_that_is_forced_out_is_notified(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let leading = election(&a, "a").campaign().await.unwrap();
    b.lock("x").force_release("a test").await.unwrap();
    tokio::time::timeout(LONG, leading.deposed()).await.expect("notified");
    assert!(!leading.is_leader());
    assert!(leading.protect(async {}).await.is_err());
}

pub(crate) async fn a_leader_goes_on_while_it_is_renewed(store: &impl Fixture) {
    let tenure = store.tenure();
    let election = election(&tenure, "a").lease(KEPT).renew_deadline(KEPT / 3 * 2);
    let leading = election.campaign().await.unwrap();
    let deposed = tokio::time::timeout(KEPT * 2, leading.deposed()).await;
    assert!(deposed.is_err(), "{deposed:?}");
    assert!(leading.is_leader());
}

/// A claim lease is shorter than the reserve, until it is confirmed.
pub(crate) async fn a_successor_goes_on_while_it_is_renewed(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let first = election(&a, "a").campaign().await.unwrap();
    let lease = Duration::from_secs(5);
    let next = campaign(election(&b, "b").lease(lease).renew_deadline(lease / 2));
    until_waiting(&a, "x", 1).await;
    first.resign().await.unwrap();
    let leading = next.await.unwrap();
    assert!(leading.guard().remaining() > lease * 4 / 5, "{:?}", leading.guard().remaining());
    let deposed = tokio::time::timeout(ms(1_000), leading.deposed()).await;
    assert!(deposed.is_err(), "{deposed:?}");
}

pub(crate) async fn terms_that_cannot_be_kept_are_refused(store: &impl Fixture) {
    let tenure = store.tenure();
    for deadline in [ms(600), ms(700), ms(299), ms(0)] {
        let election = election(&tenure, "a").lease(ms(600)).renew_deadline(deadline);
        let error = election.campaign().await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    }
    assert_eq!(election(&tenure, "a").leader().await.unwrap(), None);
}
