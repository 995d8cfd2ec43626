//! A server that is far away: operations do not wait for each other's answers, and the latency is not
//! taken for an outage.

use std::time::Duration;

use tenure::{Guard, Released, Tenure};
use tenure_testkit::proxy::{Command, Direction, Proxy};
use tenure_testkit::{Distance, Server};
use tokio::task::JoinSet;

use super::fixture::{LONG, connect, ms, pass, until};

/// A round trip takes 80 ms.
const ONE_WAY: Duration = Duration::from_millis(40);

fn is_call(command: &Command) -> bool {
    command.name() == "EVALSHA"
}

/// A client that has measured only slow round trips, through a proxy that is fast from now on.
async fn connect_slowly(proxy: &Proxy) -> Tenure {
    let rule = proxy.delay(|_| true, Direction::Replies, ONE_WAY);
    let tenure = connect(&proxy.url()).await;
    proxy.remove(rule);
    tenure
}

/// The number of locks in the calls that were sent.
fn locks(proxy: &Proxy) -> usize {
    let calls = proxy.requests().into_iter().filter(is_call);
    let count = |call: Command| String::from_utf8_lossy(&call.args()[1]).parse::<usize>().unwrap();
    calls.map(count).sum()
}

fn acquire_all(tenure: &Tenure, count: usize) -> JoinSet<Guard> {
    let mut tasks = JoinSet::new();
    for number in 0..count {
        let lock = tenure.lock(format!("x{number}"));
        tasks.spawn(async move { lock.acquire().await.unwrap() });
    }
    tasks
}

/// More operations are sent than one call carries, before the first answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_on_a_distant_server_do_not_wait_for_answers() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let tenure = connect_slowly(&proxy).await;
    let _answers = proxy.hold(is_call, Direction::Replies);
    proxy.forget();
    let tasks = acquire_all(&tenure, 1_000);
    proxy.wait_until("all are sent", |proxy| locks(proxy) == 1_000);
    proxy.release();
    let guards = tasks.join_all().await;
    assert!(guards.iter().all(|guard| !guard.is_lost()));
}

/// Rule 13: with many calls in flight, a client's operations are performed in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_is_kept_with_many_calls_in_flight() {
    let server = Server::start();
    let distance = Distance::start(&server, ms(2));
    let tenure = connect(&distance.url()).await;
    let mut tasks = JoinSet::new();
    for number in 0..64 {
        let lock = tenure.lock(format!("x{number}"));
        tasks.spawn(async move {
            for _ in 0..50 {
                drop(lock.try_acquire().await.unwrap().expect("its own lock is free"));
                let given_up = tokio::time::timeout(ms(1), lock.acquire()).await;
                drop(given_up);
                let guard = lock.try_acquire().await.unwrap().expect("its own lock is free");
                assert_eq!(guard.release().await.unwrap(), Released::Now);
            }
        });
    }
    tasks.join_all().await;
}

/// The connection is lost with many calls in flight, some of which were executed: each is retried, and every
/// caller gets its lock once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_that_are_lost_together_are_retried() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let tenure = connect_slowly(&proxy).await;
    let answers = proxy.hold(is_call, Direction::Replies);
    proxy.forget();
    let tasks = acquire_all(&tenure, 1_000);
    proxy.wait_until("some are executed", |proxy| proxy.strikes(answers) > 1);
    proxy.cut();
    proxy.release();
    for guard in tasks.join_all().await {
        assert_eq!(guard.release().await.unwrap(), Released::Now);
    }
}

/// At 80 ms, nothing times out, nothing is lost, and hand-overs arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_times_out_at_eighty_milliseconds() {
    let server = Server::start();
    let distance = Distance::start(&server, ONE_WAY);
    let (tenure, other) = (connect(&distance.url()).await, connect(&distance.url()).await);
    let held = tenure.lock("held").lease(ms(1_000)).acquire().await.unwrap();
    let lock = other.lock("held");
    let waiter = tokio::spawn(async move { lock.acquire_within(LONG).await });
    until(&tenure, "held", |info| info.waiting == 1).await;
    for _ in 0..3 {
        for guard in acquire_all(&tenure, 600).join_all().await {
            drop(guard);
        }
        pass(ms(500)).await;
    }
    held.ensure_held().unwrap();
    assert_eq!(held.release().await.unwrap(), Released::Now);
    let next = waiter.await.unwrap().expect("it is handed over");
    // Longer than the claim lease: it was renewed.
    pass(ms(3_500)).await;
    assert_eq!(next.release().await.unwrap(), Released::Now);
    for client in [&tenure, &other] {
        assert!(client.flush(LONG).await);
        let health = client.health();
        assert!(health.links.iter().all(|link| link.is_up && link.epoch == 1), "{health:?}");
    }
}
