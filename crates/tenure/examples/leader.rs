//! Two nodes, one leader; when it resigns, the other one leads, and an observer sees the change.
//!
//! `cargo run --example leader`

use std::time::Duration;

use tenure::{Error, Tenure, blocking::block_on};

async fn run(tenure: &Tenure) -> Result<(), Error> {
    let election = tenure.election("scheduler").retry(Duration::from_millis(20));
    let mut changes = election.changes();
    let first = election.clone().candidate("node-1").campaign().await?;
    println!("the leader is {:?}", changes.next().await?.map(|leader| leader.candidate));

    let follower = election.clone().candidate("node-2").blocking();
    let follower = std::thread::spawn(move || follower.campaign());
    while election.participants().await?.len() < 2 {
        std::thread::yield_now();
    }
    first.protect(async { println!("node-1 works with term {}", first.fence()) }).await?;
    first.resign().await?;

    let second = follower.join().expect("no panic")?;
    println!("node-2 works with term {}", second.fence());
    println!("the leader is {:?}", changes.next().await?.map(|leader| leader.candidate));
    Ok(())
}

fn main() -> Result<(), Error> {
    block_on(run(&Tenure::memory()?))
}
