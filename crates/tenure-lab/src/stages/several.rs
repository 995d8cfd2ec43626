//! Several servers: a failover, a clock that jumps, a node that restarts empty.

use std::time::Duration;

use crate::experiment::{Client, Experiment, Outcome, let_pass};
use crate::history::What;
use crate::time::millis;

const PATIENCE: Duration = millis(2_600);

/// How long a failover may take: usually three seconds.
const FAILOVER: Duration = Duration::from_secs(20);

/// The replicas, behind the master.
const REPLICAS: std::ops::RangeInclusive<usize> = 1..=2;

/// Stage 10: A acquires while no replica follows, and the master dies.
pub(super) fn failover(it: &mut Experiment) -> Outcome {
    let mut a = it.client("A")?;
    let group = it.servers.failover()?;
    REPLICAS.for_each(|replica| group.pause(replica, true));
    let before = group.master_port();
    it.fault("the replicas are stopped");
    a.order("acquire");
    a.until(PATIENCE, |what| matches!(what, What::Holds | What::Refused(_)));
    let group = it.servers.failover()?;
    group.servers[0].kill();
    REPLICAS.for_each(|replica| group.pause(replica, false));
    it.fault("the master is killed, the replicas go on");
    promoted(it, before)?;
    it.fault("a replica is the master");
    let mut b = it.client("B")?;
    // The other replica needs a moment to follow the new master.
    for _ in 0..10 {
        b.order("acquire");
        let answer = b.until(PATIENCE, |what| matches!(what, What::Holds | What::Refused(_)));
        if !matches!(answer, Some(What::Refused(_))) {
            break;
        }
    }
    let_pass(400);
    a.releases_if_it_holds();
    b.releases_if_it_holds();
    Ok(())
}

/// Waits until the Sentinels name another master.
fn promoted(it: &mut Experiment, before: Option<u16>) -> Outcome {
    let group = it.servers.failover()?;
    let rounds = FAILOVER.as_millis() / 20;
    for _ in 0..rounds {
        if group.master_port().is_some_and(|port| Some(port) != before) {
            return Ok(());
        }
        let_pass(20);
    }
    Err("the Sentinels promoted no replica".to_owned())
}

/// Stage 11: the majority that A has shares one node with the majority that B gets, and the clock of that node is set.
pub(super) fn clock_jumps(it: &mut Experiment) -> Outcome {
    let (a, b) = acquired_at_two(it)?;
    let (_, clocks) = it.servers.nodes()?;
    clocks[1].set_ahead(Duration::from_secs(60));
    it.fault("the clock of the second server is set forward by a minute");
    contend(a, b)
}

/// Stage 12: the same, and that node restarts without its data.
pub(super) fn restart_without_data(it: &mut Experiment) -> Outcome {
    let (a, b) = acquired_at_two(it)?;
    let (nodes, _) = it.servers.nodes()?;
    nodes[1].kill();
    nodes[1].restart();
    it.fault("the second server was killed, and restarted empty");
    contend(a, b)
}

/// A is cut off from the third server, and holds the lock at the first two.
fn acquired_at_two(it: &mut Experiment) -> Outcome<(Client, Client)> {
    let (mut a, b) = (it.client_behind_proxy("A")?, it.client("B")?);
    it.servers.cut();
    it.fault("A is cut off from the third server");
    a.acquires()?;
    let_pass(200);
    Ok((a, b))
}

/// B asks while A holds the lock, and gets it when A has released it.
fn contend(mut a: Client, mut b: Client) -> Outcome {
    b.order("acquire");
    b.until_it_holds(millis(1_500));
    let_pass(300);
    a.releases_if_it_holds();
    b.until_it_holds(millis(6_000));
    let_pass(200);
    b.releases_if_it_holds();
    Ok(())
}
