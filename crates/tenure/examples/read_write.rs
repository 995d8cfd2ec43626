//! Many readers, one writer, and a writer that downgrades to a reader without another writer in between.
//!
//! `cargo run --example read_write`

use tenure::{Error, Tenure, blocking::block_on};

async fn run() -> Result<(), Error> {
    let tenure = Tenure::connect("memory:").await?;
    let config = tenure.rwlock("config");

    let readers = [config.read().await?, config.read().await?];
    println!("two read; a writer must wait: {}", config.try_write().await?.is_none());
    drop(readers);

    let writer = config.write().await?;
    println!(
        "one writer with fence {}; no reader: {}",
        writer.fence(),
        config.try_read().await?.is_none()
    );
    let reader = writer.downgrade().await;
    println!("now it reads, and others may: {}", config.try_read().await?.is_some());
    reader.release().await?;
    Ok(())
}

fn main() -> Result<(), Error> {
    block_on(run())
}
