//! Runners that start together, twice.
//!
//! `cargo run --example race`

use tenure::{Error, Tenure};

fn main() -> Result<(), Error> {
    let tenure = Tenure::memory()?;
    std::thread::scope(|scope| {
        let runners: Vec<_> = (1..=3)
            .map(|runner| {
                let start = tenure.barrier("race/start", 3).blocking();
                scope.spawn(move || {
                    for race in 1..=2 {
                        start.wait()?;
                        println!("race {race}: runner {runner} is off");
                    }
                    Ok(())
                })
            })
            .collect();
        runners.into_iter().try_for_each(|runner| runner.join().expect("no panic"))
    })
}
