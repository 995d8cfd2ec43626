//! A report that waits until every import is done, each in a process of its own.
//!
//! `cargo run --example imports`

use std::time::Duration;

use tenure::{Error, Tenure};

fn main() -> Result<(), Error> {
    let tenure = Tenure::memory()?;
    let imported = tenure.latch("imports/today", 3).blocking();
    std::thread::scope(|scope| {
        let report = scope.spawn(|| {
            imported.wait_within(Duration::from_secs(5))?;
            println!("all are imported; the report begins");
            Ok(())
        });
        for source in ["orders", "customers", "stock"] {
            println!("{source} is imported; {} are left", imported.count()? - 1);
            imported.count_down()?;
        }
        report.join().expect("no panic")
    })
}
