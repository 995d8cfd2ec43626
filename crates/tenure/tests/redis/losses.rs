//! A loss that is reported while the owner of the lock enters it again.

use std::task::{Context, Waker};

use tenure::Owner;
use tenure_testkit::Server;

use super::fixture::{LONG, connect, until};

/// I9: a task asks once more for a lock that its owner holds, and does not run for a while. The lock is taken away by force, which is
/// reported to the first guard, and then the task reads that it was granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_concerns_what_its_owner_was_granted_before() {
    let server = Server::start();
    let (client, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let lock = client.lock("x").owner(Owner::new()).fixed_lease(10 * LONG);
    let first = lock.acquire().await.unwrap();
    let mut entering = Box::pin(lock.acquire());
    // Most answers take longer than one look.
    while entering.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
        entering = Box::pin(lock.acquire());
    }
    until(&other, "x", |info| info.holders[0].entries == 2).await;
    other.lock("x").force_release("a test").await.unwrap();
    first.lost().await;
    let second = entering.await.unwrap();
    tokio::time::timeout(LONG, second.lost()).await.expect("it is lost, too");
}
