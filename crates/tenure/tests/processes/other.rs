//! The other process, which the tests start.

use std::sync::Arc;
use std::time::Duration;

use tenure::blocking::block_on;
use tenure::engine::{AcquireRequest, Engine, Queueing, RedisEngine};
use tenure::{About, Entry, Guard, Kind, Lease, LockInfo, LockName, Owner, Shape, Tenure};
use tenure_testkit::Server;
use tokio::time::Instant;

use crate::process::{Process, part, this_program};

pub(crate) const LONG: Duration = Duration::from_secs(20);

/// How long a party that does not ask again is considered alive.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Starts a process that acquires "x" as a `lock`, `reader`, `permits` or `party`, and prints its progress.
pub(crate) fn start(server: &Server, role: &str) -> Process {
    let mut command = this_program();
    part(&mut command, "processes::other::the_other_process")
        .env("TENURE_OTHER_URL", server.url())
        .env("TENURE_OTHER_ROLE", role);
    Process::start(&mut command)
}

/// The other process: acquires the lock with a lease of a second, keeps it until it is lost, and prints how
/// that ended.
#[test]
#[ignore = "the other half of the tests here, which run it"]
fn the_other_process() {
    let url = std::env::var("TENURE_OTHER_URL").unwrap();
    let role = std::env::var("TENURE_OTHER_ROLE").unwrap();
    block_on(async {
        if role == "party" {
            return wait_as_party(&url).await;
        }
        let tenure = Tenure::connect(&url).await.unwrap();
        println!("connected");
        let guard = take(&tenure, &role).await;
        println!("holds");
        guard.lost().await;
        println!("lost");
        println!("{:?}", guard.release().await.unwrap());
    });
}

async fn take(tenure: &Tenure, role: &str) -> Guard {
    let second = Duration::from_secs(1);
    match role {
        "lock" => tenure.lock("x").lease(second).acquire().await.unwrap(),
        "reader" => tenure.rwlock("x").lease(second).read().await.unwrap(),
        "permits" => tenure.semaphore("x", 3).lease(second).acquire_many(2).await.unwrap(),
        other => panic!("no such role: {other}"),
    }
}

/// Asks repeatedly, as a client does, but more often.
async fn wait_as_party(url: &str) {
    let engine = RedisEngine::connect(url).await.unwrap();
    let claim = Duration::from_secs(3);
    let request = AcquireRequest {
        name: LockName::new("x").unwrap(),
        entry: Entry { owner: Owner::new(), number: 0 },
        shape: Shape::new(Kind::Barrier, 2, 1).unwrap(),
        lease: Lease::DEFAULT,
        about: Arc::new(About::this_process()),
        queue: Some(Queueing { heartbeat: HEARTBEAT, claim, fences: 1 }),
        proposal: None,
    };
    loop {
        let answer = engine.acquire(request.clone()).await.unwrap();
        println!("waits: {answer:?}");
        std::thread::park_timeout(HEARTBEAT / 4);
    }
}

pub(crate) fn connect(server: &Server) -> Tenure {
    block_on(Tenure::connect(&server.url())).unwrap()
}

/// Waits until the store shows this state of "x"; panics after a long time.
pub(crate) fn wait_for(tenure: &Tenure, is_so: impl Fn(&LockInfo) -> bool) {
    let started = Instant::now();
    loop {
        let info = block_on(tenure.lock("x").inspect()).unwrap();
        if is_so(&info) {
            return;
        }
        assert!(started.elapsed() < LONG, "it stays so: {info:?}");
        std::thread::yield_now();
    }
}
