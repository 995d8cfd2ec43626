//! Holders that are killed or stopped, that work for too long, or that acquire twice.

use crate::experiment::{Client, Experiment, Outcome, let_pass};
use crate::history::What;
use crate::time::millis;

/// For how long a waiter is watched that should get the lock when a lease of 1 s has ended.
const PATIENCE: std::time::Duration = millis(2_600);

/// Stage 1: A is killed while it holds the lock, and B waits.
pub(super) fn holder_is_killed(it: &mut Experiment) -> Outcome {
    let [mut a, mut b] = it.clients(["A", "B"])?;
    a.acquires()?;
    b.order("acquire");
    let_pass(300);
    a.dies();
    if b.until_it_holds(PATIENCE) {
        let_pass(200);
        b.releases_if_it_holds();
    }
    Ok(())
}

/// Stage 2: A is killed between the two commands of its acquire, or right after it if there is one.
pub(super) fn holder_is_killed_within_its_acquire(it: &mut Experiment) -> Outcome {
    let [mut a, mut b] = it.clients(["A", "B"])?;
    a.order("acquire 2000");
    a.until(PATIENCE, |what| matches!(what, What::Step(_) | What::Holds));
    a.dies();
    b.order("acquire");
    if b.until_it_holds(PATIENCE) {
        let_pass(200);
        b.releases_if_it_holds();
    }
    Ok(())
}

/// Stage 3: A is stopped, B gets the lock when A's lease has ended, A goes on and releases, and C asks.
pub(super) fn late_release(it: &mut Experiment) -> Outcome {
    let [mut a, mut b, mut c] = it.clients(["A", "B", "C"])?;
    a.acquires()?;
    let_pass(200);
    a.stops();
    b.order("acquire");
    b.until_it_holds(PATIENCE);
    let_pass(200);
    a.continues();
    // It goes on with its work for a moment, before it releases.
    let_pass(100);
    a.order("release");
    let_pass(100);
    asks_beside(&mut c, &mut b);
    Ok(())
}

/// Stage 4: A is stopped within its release.
pub(super) fn stopped_within_the_release(it: &mut Experiment) -> Outcome {
    let [mut a, mut b, mut c] = it.clients(["A", "B", "C"])?;
    a.acquires()?;
    let_pass(300);
    a.order("release 300");
    a.until(PATIENCE, |what| matches!(what, What::Step(_)));
    a.stops();
    b.order("acquire");
    b.until_it_holds(PATIENCE);
    let_pass(200);
    a.continues();
    let_pass(500);
    asks_beside(&mut c, &mut b);
    Ok(())
}

/// C asks while B holds the lock, and uses it after B, or beside it.
fn asks_beside(c: &mut Client, b: &mut Client) {
    c.order("acquire");
    c.until_it_holds(millis(600));
    let_pass(250);
    b.releases_if_it_holds();
    c.until_it_holds(PATIENCE);
    let_pass(150);
    c.releases_if_it_holds();
}

/// Stage 5: A works for longer than its lease, and B waits.
pub(super) fn work_outlives_the_lease(it: &mut Experiment) -> Outcome {
    let [mut a, mut b] = it.clients(["A", "B"])?;
    a.acquires()?;
    b.order("acquire");
    let_pass(2_000);
    a.order("release");
    b.until_it_holds(PATIENCE);
    let_pass(200);
    b.releases_if_it_holds();
    Ok(())
}

/// Stage 6: A is stopped, B gets the lock, A goes on, B is killed, and C waits.
pub(super) fn stopped_renewer(it: &mut Experiment) -> Outcome {
    let [mut a, mut b, mut c] = it.clients(["A", "B", "C"])?;
    a.acquires()?;
    b.order("acquire");
    let_pass(100);
    a.stops();
    b.until_it_holds(PATIENCE);
    let_pass(100);
    a.continues();
    let_pass(400);
    c.order("acquire");
    b.dies();
    c.until_it_holds(PATIENCE);
    let_pass(200);
    c.releases_if_it_holds();
    Ok(())
}

/// Stage 7: A acquires what it holds.
pub(super) fn nested_acquire(it: &mut Experiment) -> Outcome {
    let mut a = it.client("A")?;
    a.acquires()?;
    let_pass(300);
    a.order("acquire");
    // Its last event is either the second grant, or the question.
    a.until(millis(300), |what| *what == What::Asks);
    if a.until_it_holds(PATIENCE) {
        let_pass(200);
        a.order("release");
        let_pass(100);
        a.order("release");
        a.until(PATIENCE, |what| *what == What::Releases);
    }
    Ok(())
}

/// Stage 13: A reads, and is stopped; B sells all that is left; A goes on and sells; C sells what is left then.
pub(super) fn late_writer(it: &mut Experiment) -> Outcome {
    it.put_on_sale(10)?;
    let [mut a, mut b, mut c] = it.clients(["A", "B", "C"])?;
    a.acquires()?;
    let_pass(150);
    a.order("read");
    a.until(PATIENCE, |what| matches!(what, What::Reads(_)));
    a.stops();
    b.order("acquire");
    b.until_it_holds(PATIENCE);
    let_pass(150);
    sells_all(&mut b);
    let_pass(100);
    b.order("release");
    a.continues();
    a.order("sell");
    a.until(PATIENCE, |what| matches!(what, What::Sells(_) | What::Loses));
    let_pass(100);
    a.order("release");
    let_pass(100);
    c.order("acquire");
    c.until_it_holds(PATIENCE);
    sells_all(&mut c);
    let_pass(100);
    c.order("release");
    c.until(PATIENCE, |what| *what == What::Releases);
    Ok(())
}

/// Reads and sells, until nothing is left.
fn sells_all(client: &mut Client) {
    for _ in 0..20 {
        client.order("read");
        let read = client.until(PATIENCE, |what| matches!(what, What::Reads(_)));
        if !matches!(read, Some(What::Reads(1..))) {
            return;
        }
        client.order("sell");
        client.until(PATIENCE, |what| matches!(what, What::Sells(_)));
    }
}
