//! `tenure acquire`, `renew` and `release`: locks that outlive the command, and the release of
//! others'.

use serde_json::{Value, json};

use crate::place::Place;

on_every_store! {
    a_handle_renews_and_releases,
    programs_get_objects,
    a_lock_is_held_for_its_lease_and_no_longer,
    a_forced_release_is_confirmed_and_recorded,
}

/// R28: a lock that outlives the command, by its handle.
fn a_handle_renews_and_releases(place: &Place) {
    let handle = place.said(&["acquire", "--lease", "20s", "x"]);
    let handle = handle.trim();
    assert_eq!(place.code(&["acquire", "-n", "x"]), 75);
    assert_eq!(place.said(&["renew", handle]), "");
    assert_eq!(place.said(&["release", handle]), "");
    let gone = place.refused(76, &["release", handle]);
    assert_eq!(gone, "tenure: `x` was not held any more\n");
    let lost = place.refused(76, &["renew", handle]);
    assert_eq!(lost, "tenure: `x` was lost: the store says that this owner no longer holds it\n");
    for command in ["renew", "release"] {
        let wrong = place.refused(64, &[command, "no handle"]);
        assert!(wrong.contains("this is not a handle that Tenure has printed"), "{wrong}");
        assert!(place.refused(64, &[command]).contains("required"), "{command}");
    }
}

/// R14: what there is to know, in fields that stay.
fn programs_get_objects(place: &Place) {
    let acquired = place.json(&["acquire", "--json", "--lease", "20s", "--note", "job 7", "a b"]);
    let handle = acquired["handle"].as_str().unwrap();
    let holder = &place.json(&["show", "--json", "a b"])["holders"][0];
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
    assert_eq!(place.json(&["renew", "--json", handle]), acquired);
    let released = place.json(&["release", "--json", handle]);
    assert_eq!(released, json!({ "name": "a b", "released": [acquired["owner"]] }));
    assert!(!place.refused(76, &["release", "--json", handle]).is_empty());

    let owners = ["-s", "-s"].map(|share| {
        let acquired = place.json(&["acquire", "--json", share, "shared"]);
        acquired["owner"].as_str().unwrap().to_owned()
    });
    let forced = ["release", "--json", "--force", "shared", "--reason", "a test", "--yes"];
    let mut forced = place.json(&forced)["released"].clone();
    let mut owners: Vec<Value> = owners.into_iter().map(Value::from).collect();
    owners.sort_by_key(Value::to_string);
    forced.as_array_mut().unwrap().sort_by_key(Value::to_string);
    assert_eq!(forced, Value::from(owners));
}

/// R4: nobody renews it.
fn a_lock_is_held_for_its_lease_and_no_longer(place: &Place) {
    let handle = place.said(&["acquire", "--lease", "1s", "x"]);
    assert_eq!(place.code(&["acquire", "-n", "x"]), 75);
    assert_eq!(place.code(&["run", "-w", "10s", "x", "--", "true"]), 0);
    assert_eq!(place.code(&["release", handle.trim()]), 76);
}

/// R13: somebody else's lock is taken away with a reason, by name, and on record.
fn a_forced_release_is_confirmed_and_recorded(place: &Place) {
    let handle = place.said(&["acquire", "x"]);
    let owner = place.owner("x");
    assert!(place.refused(64, &["release", "--force", "x"]).contains("--reason <TEXT>"));
    let both = ["release", handle.trim(), "--force", "x", "--reason", "it hung"];
    assert!(place.refused(64, &both).contains("cannot be used with"));
    let force = ["release", "--force", "x", "--reason", "it hung"];
    let unsure = "tenure: nothing was done: the name was not confirmed (or use --yes)\n";
    assert_eq!(place.refused(64, &force), unsure);
    let other = "0".repeat(32);
    let wrong = [&force[..], &["--yes", "--owner", &other]].concat();
    let not_by = format!("tenure: `x` is not held by {other}: nothing was done\n");
    assert_eq!(place.refused(75, &wrong), not_by);
    assert_eq!(place.code(&["renew", handle.trim()]), 0, "nothing was done so far");

    let taken = place.said(&[&force[..], &["--yes", "--owner", &owner]].concat());
    assert_eq!(taken.trim(), owner);
    let by = format!("its release was forced by {}", forced_by(place));
    let lost = place.refused(76, &["renew", handle.trim()]);
    assert_eq!(lost, format!("tenure: `x` was lost: {by}: it hung\n"));
    let lost = place.refused(76, &["release", handle.trim()]);
    assert_eq!(lost, format!("tenure: `x` was not held any more: {by}: it hung\n"));
    let nobody = "tenure: `x` is not held: nothing was done\n";
    assert_eq!(place.refused(75, &[&force[..], &["--yes"]].concat()), nobody);
    let forced = place.json(&["show", "--json", "x"])["forced"].clone();
    assert_eq!((&forced["reason"], &forced["owners"]), (&"it hung".into(), &json!([owner])));
    assert!(forced["by"]["program"].is_string() && forced["by"]["pid"].is_null(), "{forced}");
    assert!(forced["at_ms"].as_u64().unwrap() > 1_700_000_000_000);
    let shown = place.said(&["show", "x"]);
    assert!(shown.contains("  release forced ") && shown.contains(": it hung\n"), "{shown}");
}

/// Who forced the release of `x`, as people read it.
fn forced_by(place: &Place) -> String {
    let by = place.json(&["show", "--json", "x"])["forced"]["by"].take();
    format!("{}@{}", by["program"].as_str().unwrap(), by["host"].as_str().unwrap())
}
