//! Two accounts locked together, by callers that name them in different orders: no deadlock.
//!
//! `cargo run --example transfer`

use std::time::Duration;

use tenure::{Error, Tenure, Wait, blocking::acquire_all};

fn transfer(tenure: &Tenure, from: &str, to: &str) -> Result<(), Error> {
    let locks = [from, to].map(|account| tenure.lock(format!("account/{account}")).blocking());
    let both = acquire_all(locks, Wait::within(Duration::from_secs(5)))?;
    both.ensure_held()?;
    let fences: Vec<_> = both.iter().map(|guard| guard.fence().to_string()).collect();
    println!("{from} pays {to}, with fences {}", fences.join(" and "));
    Ok(())
}

fn main() -> Result<(), Error> {
    let tenure = Tenure::memory()?;
    std::thread::scope(|scope| {
        let one = scope.spawn(|| (0..3).try_for_each(|_| transfer(&tenure, "ann", "bob")));
        let other = scope.spawn(|| (0..3).try_for_each(|_| transfer(&tenure, "bob", "ann")));
        one.join().expect("no panic").and(other.join().expect("no panic"))
    })
}
