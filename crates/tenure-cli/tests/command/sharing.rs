//! Locks with several holders at once.

use crate::fixture::{Fixture, Holder, WAITS};

on_every_store! {
    some_share_and_some_are_alone,
    a_limit_lets_so_many_in,
    one_name_is_one_kind,
}

/// R27.
fn some_share_and_some_are_alone(fixture: &Fixture) {
    let reader = Holder::start(fixture, &["run", "--shared", "x", "--", "sh", "-c", WAITS]);
    assert_eq!(fixture.code(&["run", "-s", "-n", "x", "--", "true"]), 0);
    assert_eq!(fixture.code(&["run", "-x", "-n", "x", "--", "true"]), 75);
    reader.stop();
    let writer = Holder::start(fixture, &["run", "--exclusive", "x", "--", "sh", "-c", WAITS]);
    assert_eq!(fixture.code(&["run", "-s", "-n", "x", "--", "true"]), 75);
    writer.stop();
}

/// R27.
fn a_limit_lets_so_many_in(fixture: &Fixture) {
    let two = ["run", "--limit", "2", "x", "--", "sh", "-c", WAITS];
    let holders = [Holder::start(fixture, &two), Holder::start(fixture, &two)];
    assert!(fixture.said(&["ls"]).contains(" and 1 more"));
    assert_eq!(fixture.code(&["run", "--limit", "2", "-n", "x", "--", "true"]), 75);
    assert_eq!(
        fixture.code(&["run", "--limit", "3", "-n", "x", "--", "true"]),
        0,
        "a higher limit"
    );
    holders.into_iter().for_each(Holder::stop);
}

fn one_name_is_one_kind(fixture: &Fixture) {
    fixture.said(&["acquire", "-s", "x"]);
    fixture.said(&["acquire", "--limit", "3", "y"]);
    let reader = fixture.refused(64, &["run", "-n", "x", "--", "true"]);
    assert!(
        reader.starts_with("tenure: `x` is in use as a read-write lock with limit"),
        "{reader}"
    );
    let permit = fixture.refused(64, &["acquire", "-n", "y"]);
    let sentence = "tenure: `y` is in use as a semaphore with limit 3: use another name\n";
    assert_eq!(permit, sentence);
}
