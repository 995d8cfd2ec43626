//! Leases end by the store's clock, are extended by renewals, and are shortened only by a release.

use tenure::engine::{AcquireRequest, Acquired, ReleaseOutcome, Renewal, Renewed};

use super::fixture::{Fixture, RELEASED, granted, lease, long, ms, name, pass, request, someone};

pub(crate) async fn a_lease_that_ended_frees_the_lock(store: &impl Fixture) {
    let client = store.client();
    let crashed = someone();
    granted(client.acquire(AcquireRequest { lease: lease(50), ..request("x", crashed) }).await);
    assert_eq!(client.acquire(request("x", someone())).await, Acquired::Busy);
    pass(ms(70)).await;
    client.take("x", someone()).await;
    assert_eq!(client.release("x", crashed).await, ReleaseOutcome::NotHeld);
}

pub(crate) async fn a_renewal_extends_the_lease(store: &impl Fixture) {
    let client = store.client();
    let owner = someone();
    granted(client.acquire(AcquireRequest { lease: lease(800), ..request("x", owner) }).await);
    for _ in 0..4 {
        pass(ms(300)).await;
        assert_eq!(client.renew("x", owner, lease(800)).await, Renewed::Extended);
    }
    assert_eq!(client.acquire(request("x", someone())).await, Acquired::Busy);
    pass(ms(820)).await;
    assert_eq!(client.renew("x", owner, lease(800)).await, Renewed::NotHeld, "too late");
}

pub(crate) async fn a_renewal_never_shortens_the_lease(store: &impl Fixture) {
    let client = store.client();
    let owner = someone();
    client.take("x", owner).await;
    assert_eq!(client.renew("x", owner, lease(10)).await, Renewed::Extended);
    pass(ms(30)).await;
    assert_eq!(client.acquire(request("x", someone())).await, Acquired::Busy);
}

pub(crate) async fn many_leases_are_renewed_in_one_call(store: &impl Fixture) {
    let client = store.client();
    let (a, b) = (someone(), someone());
    client.take("a", a).await;
    client.take("b", b).await;
    let renewal = |lock, entry| Renewal { name: name(lock), entry, lease: long(), commit: None };
    let renewals = vec![renewal("a", a), renewal("missing", a), renewal("b", b)];
    let expected = [Renewed::Extended, Renewed::NotHeld, Renewed::Extended];
    assert_eq!(client.renew_all(renewals).await, expected);
    assert_eq!(client.renew_all(Vec::new()).await, []);
}

pub(crate) async fn a_lock_lingers_for_its_least_holding_time(store: &impl Fixture) {
    let client = store.client();
    let owner = someone();
    client.take("x", owner).await;
    assert_eq!(client.release_after("x", owner, ms(80)).await, RELEASED);
    assert_eq!(client.acquire(request("x", someone())).await, Acquired::Busy);
    assert_eq!(client.acquire(request("x", owner)).await, Acquired::Busy, "nor for itself");
    assert_eq!(client.renew("x", owner, long()).await, Renewed::NotHeld);
    assert_eq!(client.release("x", owner).await, ReleaseOutcome::NotHeld);
    assert_eq!(client.inspect("x").await.holders[0].entries, 0);
    pass(ms(100)).await;
    client.take("x", someone()).await;
}
