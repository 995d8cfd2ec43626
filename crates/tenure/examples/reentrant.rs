//! A re-entrant lock, which a function and the functions it calls can all acquire, on threads.
//!
//! `cargo run --example reentrant`

use tenure::{Error, Tenure, blocking::Lock};

fn transfer(account: &Lock) -> Result<(), Error> {
    let guard = account.acquire()?;
    println!("transfer holds it with fence {}", guard.fence());
    withdraw(account)
}

fn withdraw(account: &Lock) -> Result<(), Error> {
    let guard = account.acquire()?; // the same thread: no deadlock
    println!("withdraw holds it with fence {}", guard.fence());
    println!("entered {} times", account.inspect()?.holders[0].entries);
    Ok(())
}

fn main() -> Result<(), Error> {
    let tenure = Tenure::memory()?;
    let account = tenure.lock("accounts/7").reentrant().blocking();
    transfer(&account)?;
    println!("free again: {}", account.inspect()?.is_free());
    Ok(())
}
