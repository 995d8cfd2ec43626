//! `tenure acquire`, `renew` and `release`: locks that outlive the command, and forced releases.

use serde_json::{Value, json};

use crate::fixture::Fixture;

on_every_store! {
    a_handle_renews_and_releases,
    programs_get_objects,
    a_lock_is_held_for_its_lease_and_no_longer,
    a_forced_release_is_confirmed_and_recorded,
    a_renewal_may_have_another_lease,
}

/// R4: counted from the renewal, and never shorter than it was.
fn a_renewal_may_have_another_lease(fixture: &Fixture) {
    let handle = fixture.said(&["acquire", "--lease", "20s", "x"]);
    let handle = handle.trim();
    let left = || {
        let lock = fixture.json(&["show", "--json", "x"]);
        lock["holders"][0]["lease_left_ms"].as_u64().unwrap()
    };
    assert_eq!(fixture.json(&["renew", "--json", "--lease", "1h", handle])["lease_ms"], 3_600_000);
    for shorter in [&["renew", "--lease", "40s", handle][..], &["renew", handle]] {
        assert_eq!(fixture.said(shorter), "");
        assert!((3_500_000..=3_600_000).contains(&left()), "{}", left());
    }
    assert!(fixture.refused(64, &["renew", "--lease", "25h", handle]).contains("24 h at most"));
    assert_eq!(fixture.said(&["release", handle]), "");
}

/// R28: a lock that outlives the command, by its handle.
fn a_handle_renews_and_releases(fixture: &Fixture) {
    let handle = fixture.said(&["acquire", "--lease", "20s", "x"]);
    let handle = handle.trim();
    assert_eq!(fixture.code(&["acquire", "-n", "x"]), 75);
    assert_eq!(fixture.said(&["renew", handle]), "");
    assert_eq!(fixture.said(&["release", handle]), "");
    let again = fixture.refused(76, &["release", handle]);
    assert_eq!(again, "tenure: `x` was not held any more\n");
    let lost = fixture.refused(76, &["renew", handle]);
    assert_eq!(lost, "tenure: `x` was lost: the store says that this owner no longer holds it\n");
    for command in ["renew", "release"] {
        let wrong = fixture.refused(64, &[command, "no handle"]);
        assert!(wrong.contains("this is not a handle that Tenure has printed"), "{wrong}");
        assert!(fixture.refused(64, &[command]).contains("required"), "{command}");
    }
}

/// R14: all fields, which stay.
fn programs_get_objects(fixture: &Fixture) {
    let acquired = fixture.json(&["acquire", "--json", "--lease", "20s", "--note", "job 7", "a b"]);
    let handle = acquired["handle"].as_str().unwrap();
    let holder = &fixture.json(&["show", "--json", "a b"])["holders"][0];
    assert_eq!(
        acquired,
        json!({
            "handle": handle,
            "name": "a b",
            "owner": holder["owner"],
            "fence": holder["fence"],
            "lease_ms": 20_000,
        })
    );
    assert_eq!(fixture.json(&["renew", "--json", handle]), acquired);
    let released = fixture.json(&["release", "--json", handle]);
    assert_eq!(released, json!({ "name": "a b", "released": [acquired["owner"]] }));
    assert!(!fixture.refused(76, &["release", "--json", handle]).is_empty());

    let owners = ["-s", "-s"].map(|share| {
        let acquired = fixture.json(&["acquire", "--json", share, "shared"]);
        acquired["owner"].as_str().unwrap().to_owned()
    });
    let forced = ["release", "--json", "--force", "shared", "--reason", "a test", "--yes"];
    let mut forced = fixture.json(&forced)["released"].clone();
    let mut owners: Vec<Value> = owners.into_iter().map(Value::from).collect();
    owners.sort_by_key(Value::to_string);
    forced.as_array_mut().unwrap().sort_by_key(Value::to_string);
    assert_eq!(forced, Value::from(owners));
}

/// R4: it is not renewed.
fn a_lock_is_held_for_its_lease_and_no_longer(fixture: &Fixture) {
    let handle = fixture.said(&["acquire", "--lease", "1s", "x"]);
    assert_eq!(fixture.code(&["acquire", "-n", "x"]), 75);
    assert_eq!(fixture.code(&["run", "-w", "10s", "x", "--", "true"]), 0);
    assert_eq!(fixture.code(&["release", handle.trim()]), 76);
}

/// R13: another client's lock is taken away with a reason, by name, and on record.
fn a_forced_release_is_confirmed_and_recorded(fixture: &Fixture) {
    let handle = fixture.said(&["acquire", "x"]);
    let owner = fixture.owner("x");
    assert!(fixture.refused(64, &["release", "--force", "x"]).contains("--reason <TEXT>"));
    let both = ["release", handle.trim(), "--force", "x", "--reason", "it hung"];
    assert!(fixture.refused(64, &both).contains("cannot be used with"));
    let force = ["release", "--force", "x", "--reason", "it hung"];
    let unsure = "tenure: nothing was done: the name was not confirmed (or use --yes)\n";
    assert_eq!(fixture.refused(64, &force), unsure);
    let other = "0".repeat(32);
    let wrong = [&force[..], &["--yes", "--owner", &other]].concat();
    let not_by = format!("tenure: `x` is not held by {other}: nothing was done\n");
    assert_eq!(fixture.refused(75, &wrong), not_by);
    assert_eq!(fixture.code(&["renew", handle.trim()]), 0, "nothing was done so far");

    let taken = fixture.said(&[&force[..], &["--yes", "--owner", &owner]].concat());
    assert_eq!(taken.trim(), owner);
    let by = format!("its release was forced by {}", forced_by(fixture));
    let lost = fixture.refused(76, &["renew", handle.trim()]);
    assert_eq!(lost, format!("tenure: `x` was lost: {by}: it hung\n"));
    let lost = fixture.refused(76, &["release", handle.trim()]);
    assert_eq!(lost, format!("tenure: `x` was not held any more: {by}: it hung\n"));
    let free = "tenure: `x` is not held: nothing was done\n";
    assert_eq!(fixture.refused(75, &[&force[..], &["--yes"]].concat()), free);
    let forced = fixture.json(&["show", "--json", "x"])["forced"].clone();
    assert_eq!((&forced["reason"], &forced["owners"]), (&"it hung".into(), &json!([owner])));
    assert!(forced["by"]["program"].is_string() && forced["by"]["pid"].is_null(), "{forced}");
    assert!(forced["at_ms"].as_u64().unwrap() > 1_700_000_000_000);
    let shown = fixture.said(&["show", "x"]);
    assert!(shown.contains("  release forced ") && shown.contains(": it hung\n"), "{shown}");
}

/// The client that forced the release of `x`, as users read it.
fn forced_by(fixture: &Fixture) -> String {
    let by = fixture.json(&["show", "--json", "x"])["forced"]["by"].take();
    format!("{}@{}", by["program"].as_str().unwrap(), by["host"].as_str().unwrap())
}
