//! Ten downloads, three at a time; a fourth slot is added while they run.
//!
//! `cargo run --example download_slots`

use std::time::Duration;

use tenure::{Error, Tenure};

#[expect(clippy::disallowed_methods, reason = "stands for the work")]
fn download() {
    std::thread::sleep(Duration::from_millis(50));
}

fn main() -> Result<(), Error> {
    let tenure = Tenure::memory()?;
    std::thread::scope(|scope| {
        let workers = (0..10).map(|number| {
            // The last ones request a limit of four, which then holds for all.
            let slots = tenure.semaphore("downloads", if number < 7 { 3 } else { 4 }).blocking();
            scope.spawn(move || {
                let slot = slots.acquire()?;
                println!("download {number} runs; {} slots are free", slots.available()?);
                download();
                slot.release()
            })
        });
        let workers: Vec<_> = workers.collect();
        for worker in workers {
            worker.join().expect("no panic")?;
        }
        Ok(())
    })
}
