//! I1: there is never one valid holder too many.

use tenure::engine::{AcquireRequest, Acquired};
use tenure::{Kind, Shape};

use super::fixture::{Fixture, RELEASED, granted, request, semaphore, someone};

pub(crate) async fn second_owner_is_refused(store: &impl Fixture) {
    let (a, b) = (store.client(), store.client());
    a.take("x", someone()).await;
    assert_eq!(a.acquire(request("x", someone())).await, Acquired::Busy);
    assert_eq!(b.acquire(request("x", someone())).await, Acquired::Busy);
}

pub(crate) async fn a_released_lock_is_free(store: &impl Fixture) {
    let client = store.client();
    let first = someone();
    client.take("x", first).await;
    assert_eq!(client.release("x", first).await, RELEASED);
    client.take("x", someone()).await;
}

pub(crate) async fn names_do_not_touch(store: &impl Fixture) {
    let client = store.client();
    for name in ["x", "x/y", "X", "x ", "{x}", "x:y", "%78", "é", "\u{1b}[0m", "*", "x?"] {
        client.take(name, someone()).await;
    }
}

pub(crate) async fn permits_never_exceed_the_limit(store: &impl Fixture) {
    let client = store.client();
    let want = |permits| AcquireRequest { shape: semaphore(5, permits), ..request("s", someone()) };
    let two = want(2);
    granted(client.acquire(two.clone()).await);
    granted(client.acquire(want(2)).await);
    assert_eq!(client.acquire(want(2)).await, Acquired::Busy);
    granted(client.acquire(want(1)).await);
    assert_eq!(client.acquire(want(1)).await, Acquired::Busy);
    assert_eq!(client.release("s", two.entry).await, RELEASED);
    granted(client.acquire(want(2)).await);
}

pub(crate) async fn another_kind_or_limit_is_refused(store: &impl Fixture) {
    let client = store.client();
    let holder = someone();
    client.take("x", holder).await;
    let other_kind = AcquireRequest { shape: semaphore(3, 1), ..request("x", someone()) };
    let mismatch = Acquired::Mismatch { kind: Kind::Mutex, limit: 1 };
    assert_eq!(client.acquire(other_kind.clone()).await, mismatch);

    let reader = |limit| AcquireRequest {
        shape: Shape::new(Kind::ReadWrite, limit, 1).unwrap(),
        ..request("x", someone())
    };
    client.release("x", holder).await;
    granted(client.acquire(reader(3)).await);
    let mismatch = Acquired::Mismatch { kind: Kind::ReadWrite, limit: 3 };
    for other in [other_kind, reader(4), request("x", someone())] {
        assert_eq!(client.acquire(other).await, mismatch);
    }
    assert_eq!(client.inspect("x").await.holders.len(), 1, "nothing was changed");
}
