//! Inspecting a lock, and forcing its release (R13, R14).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tenure::engine::{ForceOutcome, ForceRequest, Wakeup};
use tenure::{About, Kind, Owner};

use super::fixture::{Client, Fixture, features, is_later, name, someone};

async fn force(client: &Client, lock: &str, expected: Option<Owner>) -> ForceOutcome {
    let request = ForceRequest {
        name: name(lock),
        expected,
        reason: "stuck since noon".into(),
        by: Arc::new(About::this_process()),
    };
    client.engine().force_release(request).await.unwrap()
}

pub(crate) async fn holders_and_waiters_can_be_read(store: &impl Fixture) {
    let (client, other) = (store.client(), store.client());
    let (holder, waiter) = (someone(), someone());
    let grant = client.take("x", holder).await;
    client.queue("x", waiter).await;

    let info = other.inspect("x").await;
    assert_eq!((info.kind, info.limit, info.waiting), (Some(Kind::Mutex), 1, 1));
    let seen = &info.holders[0];
    assert_eq!((seen.owner, seen.fence, seen.entries), (holder.owner, grant.fence, 1));
    assert_eq!((seen.about.pid, seen.permits), (std::process::id(), 1));
    assert!(!seen.about.host.is_empty() && seen.about.program.contains("conformance"));
    assert!(seen.lease_left > Duration::from_secs(50));
    assert_eq!(info.waiters[0].owner, waiter.owner);
    for since in [seen.since, info.waiters[0].since] {
        let age = SystemTime::UNIX_EPOCH.elapsed().unwrap()
            - since.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert!(age < Duration::from_secs(30), "{age:?} ago");
    }
}

pub(crate) async fn a_free_lock_is_shown_free(store: &impl Fixture) {
    let info = store.client().inspect("never used").await;
    assert!(info.is_free() && info.waiters.is_empty() && info.forced.is_none());
    assert_eq!(info.kind, None);
}

pub(crate) async fn locks_are_listed_by_prefix(store: &impl Fixture) {
    let client = store.client();
    for lock in ["b/2", "a/1", "b/1", "b/3", "*"] {
        client.take(lock, someone()).await;
    }
    client.queue("b/1", someone()).await;
    let listed = |infos: Vec<tenure::LockInfo>| {
        infos.iter().map(|info| info.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(listed(client.list("b/", 10).await), ["b/1", "b/2", "b/3"]);
    assert_eq!(listed(client.list("b/", 2).await), ["b/1", "b/2"]);
    assert_eq!(listed(client.list("*", 10).await), ["*"], "a prefix is no pattern");
    assert_eq!(client.list("", 10).await.len(), 5);
    assert_eq!(client.list("b/1", 1).await[0].waiting, usize::from(features().has_queue));
}

pub(crate) async fn a_forced_release_leaves_a_record(store: &impl Fixture) {
    let (holder, operator) = (store.client(), store.client());
    let entry = someone();
    let before = holder.take("x", entry).await.fence;
    let outcome = force(&operator, "x", None).await;
    assert_eq!(outcome, ForceOutcome::Released(vec![entry.owner]));

    let lost = Wakeup::Lost { name: name("x"), owner: entry.owner };
    assert_eq!(holder.next_wakeup().await, lost, "the holder is notified");
    let record = operator.inspect("x").await.forced.expect("a record is kept");
    assert_eq!((&*record.reason, &record.owners[..]), ("stuck since noon", &[entry.owner][..]));
    assert_eq!(record.by.pid, std::process::id());
    assert!(is_later(Kind::Mutex, operator.take("x", someone()).await.fence, before));
}

pub(crate) async fn a_forced_release_checks_the_expected_owner(store: &impl Fixture) {
    let client = store.client();
    let entry = someone();
    client.take("x", entry).await;
    assert_eq!(force(&client, "x", Some(Owner::new())).await, ForceOutcome::NotHeld);
    assert_eq!(force(&client, "free", None).await, ForceOutcome::NotHeld);
    let info = client.inspect("x").await;
    assert_eq!((info.holders[0].owner, info.forced), (entry.owner, None), "nothing was changed");
    let outcome = force(&client, "x", Some(entry.owner)).await;
    assert_eq!(outcome, ForceOutcome::Released(vec![entry.owner]));
}

pub(crate) async fn a_forced_release_serves_the_queue(store: &impl Fixture) {
    let (holder, client) = (store.client(), store.client());
    holder.take("x", someone()).await;
    let waiter = someone();
    client.queue("x", waiter).await;
    force(&client, "x", None).await;
    assert_eq!(client.next_grant().await.0, waiter);
}

pub(crate) async fn nothing_is_left_of_a_released_lock(store: &impl Fixture) {
    let client = store.client();
    for round in 0..100 {
        let lock = format!("order/{round}");
        let entry = someone();
        client.take(&lock, entry).await;
        client.release(&lock, entry).await;
    }
    assert_eq!(client.list("", 10).await, []);
}
