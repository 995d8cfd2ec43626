//! R15: the oversell case. 100 buyers, 10 items, and one buyer whose process is stopped (SIGSTOP) between its read and
//! its write until its lease is over, and then continues. Without the fence more than 10 items are sold; with it,
//! exactly 10. The lock is on a real Redis, the data in a real database.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "common/client.rs"]
mod client;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../tenure/tests/common/process.rs"]
mod process;
mod oversell {
    pub(crate) mod buyer;
    pub(crate) mod shop;
}

use std::io::Write;
use std::process::Stdio;

use oversell::buyer::{Checks, buy};
use oversell::shop::{ITEMS, Shop};
use process::{Process, part, this_program};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use tenure::Tenure;
use tenure_testkit::{Postgres, Server};
use tokio::task::JoinSet;

/// With the one that is stopped.
const BUYERS: u32 = 100;

#[tokio::test]
async fn postgres_oversells_without_the_fence_and_not_with_it() {
    let server = Postgres::start();
    oversells_only_without_the_fence(&server.url("postgres")).await;
}

#[tokio::test]
async fn sqlite_oversells_without_the_fence_and_not_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}?mode=rwc", folder.path().join("shop.db").display());
    oversells_only_without_the_fence(&url).await;
}

#[tokio::test]
async fn redis_oversells_without_the_fence_and_not_with_it() {
    let server = Server::start();
    oversells_only_without_the_fence(&server.url()).await;
}

async fn oversells_only_without_the_fence(shop: &str) {
    let locks = Server::start();
    let (sold, last) = sell_out(shop, &locks, Checks::Nothing).await;
    assert!(sold > ITEMS, "{sold} of {ITEMS} were sold without the fence");
    assert_eq!(last, "bought");
    let (sold, last) = sell_out(shop, &locks, Checks::Fence).await;
    assert_eq!(sold, ITEMS, "with the fence");
    assert!(last.contains("is overtaken by"), "{last}");
}

/// Opens the shop, lets all buyers buy, and returns how many items were sold, and what the stopped buyer printed at last.
async fn sell_out(shop: &str, locks: &Server, checks: Checks) -> (i64, String) {
    let url = shop;
    let shop = Shop::open(url).await;
    shop.stock_up().await;
    let mut stopped = start_other_buyer(url, locks, checks);
    stopped.expect("has read 10");
    stop(&stopped);

    let tenure = Tenure::connect(&locks.url()).await.unwrap();
    let mut buyers = JoinSet::new();
    for buyer in 1..BUYERS {
        let (tenure, shop) = (tenure.clone(), shop.clone());
        buyers.spawn(async move { buy(&tenure, &shop, checks, buyer, async || {}).await.unwrap() });
    }
    let bought = buyers.join_all().await.into_iter().filter(|bought| *bought).count();
    assert_eq!(bought, usize::try_from(ITEMS).unwrap(), "sold out while one buyer was stopped");
    assert_eq!(shop.sold().await, ITEMS);

    stopped.child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    stopped.signal(Signal::CONT);
    let last = stopped.expect("outcome: ");
    (shop.sold().await, last.rsplit("outcome: ").next().unwrap().to_owned())
}

fn start_other_buyer(shop: &str, locks: &Server, checks: Checks) -> Process {
    let mut command = this_program();
    part(&mut command, "oversell::buyer::the_buyer_that_is_stopped")
        .env("TENURE_SHOP", shop)
        .env("TENURE_LOCKS", locks.url())
        .env("TENURE_CHECKS", checks.word())
        .stdin(Stdio::piped());
    Process::start(&mut command)
}

/// Stops the process, and returns when it does not run any more.
fn stop(process: &Process) {
    process.signal(Signal::STOP);
    let pid = Pid::from_child(&process.child);
    let status = waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT).unwrap();
    assert!(status.unwrap().stopped());
}
