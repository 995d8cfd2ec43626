//! Work that stops when the lock is lost, before another holder gets it.
//!
//! `cargo run --example protected_work`

use std::time::Duration;

use tenure::{Error, Tenure};

fn main() -> Result<(), Error> {
    tenure::blocking::block_on(async {
        let tenure = Tenure::connect("memory:").await?;
        let lock = tenure.lock("reports/nightly").note("the example");

        let guard = lock.acquire_within(Duration::from_secs(5)).await?;
        println!("held by {}", lock.inspect().await?.holders[0].about);

        // An operator takes the lock away during the work.
        let work = async {
            lock.force_release("to show what happens").await?;
            std::future::pending::<Result<(), Error>>().await
        };
        match guard.protect(work).await {
            Ok(finished) => finished?,
            Err(lost) => println!("stopped: {lost}"),
        }
        println!("released: {:?}", guard.release().await?);
        Ok(())
    })
}
