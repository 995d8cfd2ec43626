//! A write with a fence, which the data refuses if a newer holder has written.
//!
//! `cargo run --example fenced_write`

use tenure::fenced::Gate;
use tenure::{Error, Fence, Tenure};

/// Data that stores the highest fence it was written with.
struct Stock {
    gate: Gate,
}

impl Stock {
    fn sell(&self, fence: Fence) -> Result<(), &'static str> {
        if self.gate.admits(fence) { Ok(()) } else { Err("overtaken by a newer holder") }
    }
}

fn main() -> Result<(), Error> {
    let stock = Stock { gate: Gate::new() };
    let tenure = Tenure::memory()?;
    let lock = tenure.lock("stock/lamp").blocking();

    let slow = lock.acquire()?;
    let slow_fence = slow.fence();
    drop(slow); // as if its lease had ended while it was stopped

    let quick = lock.acquire()?;
    println!("the new holder sells:  {:?}", stock.sell(quick.fence()));
    println!("the old holder wakes:  {:?}", stock.sell(slow_fence));
    Ok(())
}
