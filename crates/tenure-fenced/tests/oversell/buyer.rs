//! A buyer: acquires the lock, reads how many items are left, and buys one if there is any.

use std::time::Duration;

use tenure::{LockName, Tenure};
use tenure_fenced::Error;

use super::shop::Shop;

/// Renewed while the process runs: only the stop ends it.
const LEASE: Duration = Duration::from_secs(1);

/// What the shop checks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checks {
    Nothing,
    Fence,
}

impl Checks {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Fence => "fence",
        }
    }
}

/// Buys an item, and returns whether there was one. Between the read and the write, `pause` runs.
pub(crate) async fn buy(
    tenure: &Tenure,
    shop: &Shop,
    checks: Checks,
    buyer: u32,
    pause: impl AsyncFnOnce(),
) -> Result<bool, Error> {
    let guard = tenure.lock("stock/lamp").lease(LEASE).acquire().await.unwrap();
    let fence = (checks == Checks::Fence).then(|| guard.fence());
    let name: &LockName = guard.name();
    let left = shop.left(name, fence).await?;
    guard.ensure_held().unwrap();
    pause().await;
    if left == 0 {
        return Ok(false);
    }
    shop.sell(name, fence, buyer, left).await?;
    Ok(true)
}

/// The other process, which the tests stop while it waits for a line of input.
#[tokio::test]
#[ignore = "the other half of the tests here, which run it"]
async fn the_buyer_that_is_stopped() {
    let variable = |name| std::env::var(name).unwrap();
    let checks = variable("TENURE_CHECKS");
    let checks = if checks == "fence" { Checks::Fence } else { Checks::Nothing };
    let tenure = Tenure::connect(&variable("TENURE_LOCKS")).await.unwrap();
    let shop = Shop::open(&variable("TENURE_SHOP")).await;
    let pause = async || {
        println!("has read 10");
        std::io::stdin().read_line(&mut String::new()).unwrap();
    };
    match buy(&tenure, &shop, checks, 0, pause).await {
        Ok(true) => println!("outcome: bought"),
        Ok(false) => println!("outcome: sold out"),
        Err(refused) => println!("outcome: {refused}"),
    }
}
