//! Short outages of a server.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tenure::{Error, Tenure};
use tenure_testkit::resp::Reply;
use tenure_testkit::{Flavor, Server};
use tokio::task::JoinSet;

use super::fixture::{LONG, behind_proxy, command, connect, ms, pass};

/// Waits until every connection is up; returns how long that took.
async fn until_up(tenure: &Tenure) -> Duration {
    let from = tokio::time::Instant::now();
    let up = tokio::time::timeout(LONG, async {
        while !tenure.health().is_well() {
            pass(ms(2)).await;
        }
    });
    up.await.expect("it connects again");
    from.elapsed()
}

/// Waits until every connection has been established twice.
async fn until_again(tenure: &Tenure) {
    let again = tokio::time::timeout(LONG, async {
        while !tenure.health().links.iter().all(|link| link.is_up && link.epoch == 2) {
            pass(ms(2)).await;
        }
    });
    again.await.unwrap_or_else(|_| panic!("no reconnect: {:?}", tenure.health()));
}

/// Outages of 0.3 s and of 1.2 s. After each, all three connections are up again within a share of
/// that. (Each of them used to stay down for up to two seconds more.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_outage_is_over_when_it_is_over() {
    let (_server, proxy, proxied, _direct) = behind_proxy().await;
    for outage in [ms(300), ms(1_200)] {
        let mut delays = Vec::new();
        for _ in 0..5 {
            // Long enough to end the outage.
            pass(ms(1_100)).await;
            proxy.refuse(true);
            proxy.cut();
            pass(outage).await;
            proxy.refuse(false);
            delays.push(until_up(&proxied).await);
        }
        delays.sort_unstable();
        assert!(delays[delays.len() / 2] < ms(350), "after {outage:?}: {delays:?}");
        assert!(delays[delays.len() - 1] < ms(1_000), "after {outage:?}: {delays:?}");
    }
}

/// A client can connect to a server that is out of memory, and inspect its locks, which is when an operator needs it;
/// and it registers when there is memory again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_memory_can_be_inspected() {
    let mut all = JoinSet::new();
    for flavor in Flavor::wanted() {
        all.spawn(inspect_full(flavor));
    }
    all.join_all().await;
}

async fn inspect_full(flavor: Flavor) {
    let server = Server::builder().flavor(flavor).start();
    let holder = connect(&server.url()).await;
    let guard = holder.lock("x").acquire().await.unwrap();
    command(&server, &["SET", "filler", &"x".repeat(1_000_000)]);
    command(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    let late = connect(&server.url()).await;
    let listed = late.list("", 10).await.unwrap();
    assert_eq!(listed.len(), 1, "{flavor}: {listed:?}");
    assert_eq!(late.lock("x").inspect().await.unwrap().holders[0].fence, guard.fence());
    // Lost connections are re-established.
    command(&server, &["CLIENT", "KILL", "TYPE", "normal"]);
    command(&server, &["CLIENT", "KILL", "TYPE", "pubsub"]);
    for tenure in [&holder, &late] {
        until_again(tenure).await;
    }
    command(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    guard.release().await.unwrap();
    let known = tokio::time::timeout(LONG, async {
        while clients(&server) < 2 {
            pass(ms(20)).await;
        }
    });
    known.await.unwrap_or_else(|_| panic!("{flavor}: it never registers"));
}

/// How many clients are registered.
fn clients(server: &Server) -> usize {
    match command(server, &["KEYS", "tenure:client:*"]) {
        Reply::Array(Some(keys)) => keys.len(),
        other => panic!("no list: {other:?}"),
    }
}

/// I6, I8: a server is stopped with fifty acquires in its buffers, which time out. It continues, and performs
/// them; they are undone long before their leases end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_that_a_stopped_server_performs_later_are_undone() {
    let server = Server::builder().on_port().start();
    let hasty = Tenure::builder().patience(ms(100)).connect(&server.url()).await.unwrap();
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let mut all = JoinSet::new();
    for number in 0..50 {
        let lock = hasty.lock(format!("late/{number}")).lease(Duration::from_secs(600));
        all.spawn(async move { lock.try_acquire().await.map(drop) });
    }
    let outcomes = all.join_all().await;
    kill_process(pid, Signal::CONT).unwrap();
    let is_unknown = |it: &&Result<(), Error>| matches!(it, Err(Error::Unknown { .. }));
    assert!(outcomes.iter().filter(is_unknown).count() >= 1, "{outcomes:?}");
    assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
    assert!(hasty.flush(LONG).await, "the cancels are answered");
    let direct = connect(&server.url()).await;
    assert_eq!(direct.list("late/", 100).await.unwrap().len(), 0);
}
