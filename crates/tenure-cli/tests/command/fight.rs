//! Commands that fight for one lock.

use crate::place::Place;

on_every_store! { two_that_fight_never_overlap }

/// I1, R1, R32: of two that fight for one lock, a thousand times in all, none overlaps another:
/// each reads, adds one and writes, and no addition is lost.
fn two_that_fight_never_overlap(place: &Place) {
    const ROUNDS: usize = 500;
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    std::fs::write(&count, "0").unwrap();
    let script = format!("read n < {0}; echo $((n + 1)) > {0}", count.display());
    let fight = || {
        for _ in 0..ROUNDS {
            let output = place.output(&["run", "-w", "20s", "x", "--", "sh", "-c", &script]);
            assert!(output.status.success(), "{output:?}");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(fight);
        scope.spawn(fight);
    });
    assert_eq!(std::fs::read_to_string(&count).unwrap().trim(), (2 * ROUNDS).to_string());
}
