//! Locks that several hold at once.

use crate::place::{Holder, Place, WAITS};

on_every_store! {
    some_share_and_some_are_alone,
    a_limit_lets_so_many_in,
    one_name_is_one_kind,
}

/// R27.
fn some_share_and_some_are_alone(place: &Place) {
    let reader = Holder::start(place, &["run", "--shared", "x", "--", "sh", "-c", WAITS]);
    assert_eq!(place.code(&["run", "-s", "-n", "x", "--", "true"]), 0);
    assert_eq!(place.code(&["run", "-x", "-n", "x", "--", "true"]), 75);
    reader.stop();
    let writer = Holder::start(place, &["run", "--exclusive", "x", "--", "sh", "-c", WAITS]);
    assert_eq!(place.code(&["run", "-s", "-n", "x", "--", "true"]), 75);
    writer.stop();
}

/// R27.
fn a_limit_lets_so_many_in(place: &Place) {
    let two = ["run", "--limit", "2", "x", "--", "sh", "-c", WAITS];
    let holders = [Holder::start(place, &two), Holder::start(place, &two)];
    assert!(place.said(&["ls"]).contains(" and 1 more"));
    assert_eq!(place.code(&["run", "--limit", "2", "-n", "x", "--", "true"]), 75);
    assert_eq!(place.code(&["run", "--limit", "3", "-n", "x", "--", "true"]), 0, "a higher limit");
    holders.into_iter().for_each(Holder::stop);
}

fn one_name_is_one_kind(place: &Place) {
    place.said(&["acquire", "-s", "x"]);
    place.said(&["acquire", "--limit", "3", "y"]);
    let reader = place.refused(64, &["run", "-n", "x", "--", "true"]);
    assert!(
        reader.starts_with("tenure: `x` is in use as a read-write lock with limit"),
        "{reader}"
    );
    let permit = place.refused(64, &["acquire", "-n", "y"]);
    let sentence = "tenure: `y` is in use as a semaphore with limit 3: use another name\n";
    assert_eq!(permit, sentence);
}
