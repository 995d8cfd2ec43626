//! Events (R21): what happens to the locks of a client, as a stream and by a callback.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::mpsc;
use std::time::Duration;

use tenure::engine::MemoryEngine;
use tenure::{Event, EventKind, Events, Tenure, WhyLost};

const LONG: Duration = Duration::from_secs(20);

async fn next(events: &mut Events) -> Event {
    tokio::time::timeout(LONG, events.next()).await.expect("an event").expect("the client lives")
}

#[tokio::test]
async fn a_client_reports_what_happens_to_its_locks() {
    let store = MemoryEngine::new();
    let client = || Tenure::builder().engine(store.another()).unwrap();
    let (a, b) = (client(), client());
    let (mut of_a, mut of_b) = (a.events(), b.events());

    let held = a.lock("x").acquire().await.unwrap();
    let acquired = next(&mut of_a).await;
    assert!(matches!(acquired.kind, EventKind::Acquired { .. }), "{acquired:?}");
    assert_eq!((acquired.owner, acquired.fence), (held.owner(), held.fence()));
    assert!(acquired.to_string().starts_with("acquired `x` after "), "{acquired}");

    let waiter = b.lock("x");
    let waiter = tokio::spawn(async move { waiter.acquire().await.unwrap() });
    while a.lock("x").inspect().await.unwrap().waiting == 0 {
        tokio::task::yield_now().await;
    }
    held.release().await.unwrap();
    let second = waiter.await.unwrap();
    let released = next(&mut of_a).await.kind;
    assert!(matches!(released, EventKind::Released { .. }), "{released:?}");
    let handed_over = next(&mut of_b).await;
    let is_remote = matches!(handed_over.kind, EventKind::HandedOver { is_local: false, .. });
    assert!(is_remote, "{handed_over:?}");
    assert_eq!(handed_over.fence, second.fence());
    assert!(matches!(next(&mut of_b).await.kind, EventKind::Acquired { .. }));

    a.lock("x").force_release("a test").await.unwrap();
    let forced = next(&mut of_b).await;
    assert_eq!((forced.kind, forced.fence), (EventKind::Forced, second.fence()));
    drop(second);

    let fixed = b.lock("y").fixed_lease(Duration::from_millis(40)).acquire().await.unwrap();
    assert!(matches!(next(&mut of_b).await.kind, EventKind::Acquired { .. }));
    let lost = next(&mut of_b).await;
    assert!(matches!(lost.kind, EventKind::Lost { why: WhyLost::LeaseEnded, .. }), "{lost:?}");
    assert_eq!(lost.fence, fixed.fence());
}

#[tokio::test]
async fn the_stream_ends_with_the_client_and_its_guards() {
    let tenure = Tenure::memory().unwrap();
    let mut events = tenure.events();
    let guard = tenure.lock("x").acquire().await.unwrap();
    drop(tenure);
    assert!(matches!(next(&mut events).await.kind, EventKind::Acquired { .. }));
    drop(guard);
    assert!(matches!(next(&mut events).await.kind, EventKind::Released { .. }));
    let end = tokio::time::timeout(LONG, events.next()).await.expect("an end");
    assert_eq!(end, None);
}

#[tokio::test]
async fn a_reader_that_falls_behind_misses_the_oldest_events() {
    let tenure = Tenure::memory().unwrap();
    let (lock, mut events) = (tenure.lock("x"), tenure.events());
    for _ in 0..1_000 {
        drop(lock.acquire().await.unwrap());
    }
    let first = next(&mut events).await;
    assert_eq!(events.missed(), 2_000 - 1_024);
    assert!(matches!(first.kind, EventKind::Acquired { .. } | EventKind::Released { .. }));
}

/// A callback may panic and may block: locks are not affected.
#[tokio::test]
async fn a_callback_gets_the_events_on_a_thread_of_its_own() {
    let (send, seen) = mpsc::channel();
    let mut count = 0;
    let callback = move |event: &Event| {
        count += 1;
        send.send((event.kind, std::thread::current().name().map(str::to_owned))).unwrap();
        assert!(count != 1, "a callback that panics, as this test wants it to");
    };
    let tenure = Tenure::builder().on_event(callback).engine(MemoryEngine::new()).unwrap();
    drop(tenure.lock("x").acquire().await.unwrap());
    let (acquired, thread) = seen.recv_timeout(LONG).unwrap();
    assert!(matches!(acquired, EventKind::Acquired { .. }), "{acquired:?}");
    assert_eq!(thread.as_deref(), Some("tenure-events"));
    let (released, _) = seen.recv_timeout(LONG).unwrap();
    assert!(matches!(released, EventKind::Released { .. }), "{released:?}");
    drop(tenure);
    assert!(seen.recv_timeout(LONG).is_err(), "the thread ends with the client");
}
