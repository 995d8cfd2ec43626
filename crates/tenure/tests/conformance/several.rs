//! R27: several locks at once.

use std::time::Duration;

use tenure::{Error, Released, Tenure, Wait, acquire_all};

use super::fixture::{Fixture, IN_VAIN};

const LONG: Duration = Duration::from_secs(20);

pub(crate) async fn several_locks_are_had_together(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let guards = acquire_all(["z", "x", "y"].map(|name| a.lock(name)), Wait::forever()).await;
    let guards = guards.unwrap();
    let names: Vec<_> = guards.iter().map(|guard| guard.name().as_str()).collect();
    assert_eq!(names, ["x", "y", "z"]);
    assert!(guards.get("y").is_some() && guards.remaining() > Duration::ZERO);
    for name in names {
        assert!(b.lock(name).try_acquire().await.unwrap().is_none());
    }
    assert_eq!(guards.release().await.unwrap(), Released::Now);
    let none = acquire_all(Vec::<tenure::Lock>::new(), Wait::forever()).await.unwrap();
    assert_eq!(none.iter().count(), 0);
}

pub(crate) async fn several_locks_are_all_or_nothing(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let held = b.lock("y").acquire().await.unwrap();
    let wanted = || ["x", "y", "z"].map(|name| a.lock(name));
    let error = acquire_all(wanted(), Wait::within(IN_VAIN)).await.unwrap_err();
    let Error::TimedOut { name, .. } = &error else { panic!("{error:?}") };
    assert_eq!(name.as_str(), "y");
    for name in ["x", "z"] {
        drop(b.lock(name).acquire_within(LONG).await.unwrap());
    }
    // It waits for it.
    let waiting = tokio::spawn(acquire_all(wanted(), Wait::within(LONG)));
    super::locks::until_waiting(&b, "y", 1).await;
    let behind = b.lock("z").try_acquire().await.unwrap();
    assert!(behind.is_some(), "what is later in the order is not held meanwhile");
    drop((held, behind));
    drop(waiting.await.unwrap().unwrap());
}

pub(crate) async fn several_locks_in_any_order_do_not_deadlock(store: &impl Fixture) {
    let mut tasks = tokio::task::JoinSet::new();
    for names in [["x", "y", "z"], ["z", "y", "x"], ["y", "z", "x"]] {
        let tenure = store.tenure();
        tasks.spawn(async move {
            for _ in 0..30 {
                let locks = names.map(|name| tenure.lock(name));
                acquire_all(locks, Wait::within(LONG)).await.unwrap().release().await.unwrap();
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
}

pub(crate) async fn a_lock_named_twice_is_refused(store: &impl Fixture) {
    let tenure = store.tenure();
    let twice = ["x", "y", "x"].map(|name| tenure.lock(name));
    let error = acquire_all(twice, Wait::forever()).await.unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    assert!(error.to_string().contains("`x` is named twice"), "{error}");
    assert!(tenure.lock("y").try_acquire().await.unwrap().is_some());
}

/// I9.
pub(crate) async fn one_lost_lock_is_reported_for_all(store: &impl Fixture) {
    let (a, b) = (store.tenure(), store.tenure());
    let guards = acquire_all(["x", "y"].map(|name| a.lock(name)), Wait::forever()).await.unwrap();
    assert!(!guards.is_lost());
    b.lock("y").force_release("a test").await.unwrap();
    let lost = tokio::time::timeout(LONG, guards.lost()).await.expect("reported");
    assert_eq!(lost.name().as_str(), "y");
    assert!(guards.is_lost());
    assert!(guards.protect(async {}).await.is_err());
    assert_eq!(guards.release().await.unwrap(), Released::AlreadyLost);
    assert!(b.lock("x").acquire_within(LONG).await.is_ok());
}

pub(crate) async fn locks_of_different_stores_are_had_together(store: &impl Fixture) {
    let (here, elsewhere) = (store.tenure(), Tenure::memory().unwrap());
    let locks = || [elsewhere.lock("x"), here.lock("x"), elsewhere.lock("a")];
    let guards = acquire_all(locks(), Wait::forever()).await.unwrap();
    assert_eq!(guards.iter().count(), 3);
    assert!(here.lock("x").try_acquire().await.unwrap().is_none());
    assert!(elsewhere.lock("x").try_acquire().await.unwrap().is_none());
    let error = acquire_all(locks(), Wait::within(IN_VAIN)).await.unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    guards.release().await.unwrap();
    drop(acquire_all(locks(), Wait::within(LONG)).await.unwrap());
}
