//! Commands that contend for one lock.

use crate::fixture::{Fixture, Gate, Holder};

on_every_store! { two_that_fight_never_overlap }

/// I1, R1, R32: two processes contend for one lock, a thousand times in all, and none overlaps another: each reads,
/// adds one and writes, and no addition is lost.
fn two_that_fight_never_overlap(fixture: &Fixture) {
    const ROUNDS: usize = 500;
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    std::fs::write(&count, "0").unwrap();
    let script = format!("read n < {0}; echo $((n + 1)) > {0}", count.display());
    let fight = || {
        for _ in 0..ROUNDS {
            let output = fixture.output(&["run", "-w", "20s", "x", "--", "sh", "-c", &script]);
            assert!(output.status.success(), "{output:?}");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(fight);
        scope.spawn(fight);
    });
    assert_eq!(std::fs::read_to_string(&count).unwrap().trim(), (2 * ROUNDS).to_string());
}

/// I1, I9: many commands, each with a lock of its own, start at once in one folder. Each runs, and holders of locks with
/// short leases beside it lose none.
#[test]
fn a_herd_costs_no_holder_its_lock() {
    const HERD: usize = 150;
    let fixture = Fixture::local();
    let gate = Gate::new();
    let script = gate.script("exit 0");
    let holders = ["5s", "10s"].map(|lease| {
        Holder::start(&fixture, &["run", "--lease", lease, lease, "--", "sh", "-c", &script])
    });
    let herd: Vec<_> = (0..HERD)
        .map(|n| fixture.tenure(&["run", "-n", &format!("h{n}"), "--", "true"]).spawn().unwrap())
        .collect();
    let codes: Vec<_> = herd.into_iter().map(|mut one| one.wait().unwrap().code()).collect();
    assert_eq!(codes, [Some(0); HERD]);
    gate.open();
    for holder in holders {
        assert_eq!(holder.end(), (0, String::new()));
    }
}
