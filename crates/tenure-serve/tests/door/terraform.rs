//! The locking of the HTTP backend of Terraform and OpenTofu, with the requests that these tools send.

use serde_json::{Value, json};
use tenure::blocking::block_on;

use crate::fixture::{Answer, Fixture, Options};

/// What the tools send, with the headers of their client.
fn send(fixture: &Fixture, method: &str, body: &str) -> Answer {
    let headers = [
        ("User-Agent", "Go-http-client/1.1"),
        ("Content-Type", "application/json"),
        ("Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg=="),
        ("Accept-Encoding", "gzip"),
    ];
    fixture.ask(method, "/v1/terraform/infra/prod", &headers, body)
}

fn info(id: &str, who: &str) -> Value {
    json!({
        "ID": id,
        "Operation": "OperationTypeApply",
        "Info": "",
        "Who": who,
        "Version": "1.9.5",
        "Created": "2024-11-20T10:11:12.123456789Z",
        "Path": "",
    })
}

const ANN: &str = "8f3c2a54-7a41-11ef-9a35-0242ac120002";
const BOB: &str = "9a35ffff-7a41-11ef-9a35-0242ac120003";

#[test]
fn a_state_is_locked_refused_with_its_holder_and_unlocked() {
    let fixture = Fixture::redis();
    let (ann, bob) = (info(ANN, "ann@laptop"), info(BOB, "bob@ci"));
    assert_eq!(send(&fixture, "LOCK", &ann.to_string()).status, 200);
    let refused = send(&fixture, "LOCK", &bob.to_string());
    assert_eq!((refused.status, refused.json()), (423, ann.clone()));
    // Sent again, because its answer was lost.
    assert_eq!(send(&fixture, "LOCK", &ann.to_string()).status, 200);
    let held = block_on(fixture.tenure.lock("infra/prod").inspect()).unwrap();
    assert_eq!((held.holding, held.holders[0].entries), (1, 1));
    let wrong = send(&fixture, "UNLOCK", &bob.to_string());
    assert_eq!((wrong.status, wrong.json()), (423, ann.clone()));
    assert_eq!(send(&fixture, "UNLOCK", &ann.to_string()).status, 200);
    let free = block_on(fixture.tenure.lock("infra/prod").inspect()).unwrap();
    assert!(free.is_free() && free.forced.is_none(), "{free:?}");
    assert_eq!(send(&fixture, "UNLOCK", &ann.to_string()).refused(410), "lost");
    assert_eq!(send(&fixture, "LOCK", &bob.to_string()).status, 200);
}

#[test]
fn another_server_of_the_store_knows_the_lock() {
    let fixture = Fixture::redis();
    let ann = info(ANN, "ann@laptop").to_string();
    assert_eq!(send(&fixture, "LOCK", &ann).status, 200);
    let other = fixture.other(Options::default());
    assert_eq!(send(&other, "LOCK", &ann).status, 200, "it is the same request");
    assert_eq!(send(&other, "LOCK", &info(BOB, "bob").to_string()).status, 423);
    assert_eq!(send(&other, "UNLOCK", &ann).status, 200);
    assert_eq!(fixture.holders("infra/prod"), 0);
}

/// `terraform force-unlock` sends an empty body, and asks its user before.
#[test]
fn a_forced_unlock_is_recorded_and_takes_only_locks_of_these_tools() {
    let fixture = Fixture::redis();
    assert_eq!(send(&fixture, "LOCK", &info(ANN, "ann").to_string()).status, 200);
    assert_eq!(send(&fixture, "UNLOCK", "").status, 200);
    let free = block_on(fixture.tenure.lock("infra/prod").inspect()).unwrap();
    assert!(free.is_free());
    assert!(free.forced.unwrap().reason.contains("force-unlock"));
    // Notes of others that look like those of the tools.
    let other = format!("terraform {}", info(BOB, "bob"));
    for note in ["terraform apply", "terraform 5", "terraform null", &*other] {
        let lock = fixture.tenure.lock("infra/prod").note(note);
        let guard = block_on(lock.acquire()).unwrap();
        assert_eq!(send(&fixture, "UNLOCK", "").refused(409), "not-acquired");
        let refused = send(&fixture, "LOCK", &info(ANN, "ann").to_string());
        assert_eq!(
            (refused.status, &refused.json()["ID"]),
            (423, &json!(guard.owner().to_string()))
        );
        block_on(guard.release()).unwrap();
    }
    let guard = block_on(fixture.tenure.lock("infra/prod").acquire()).unwrap();
    assert_eq!(send(&fixture, "UNLOCK", "").refused(409), "not-acquired");
    // The owner of a lock is shown to all: it is no right to end the hold.
    let of_other = info(&guard.owner().to_string(), "eve").to_string();
    assert_eq!(send(&fixture, "UNLOCK", &of_other).refused(409), "not-acquired");
    assert_eq!(send(&fixture, "LOCK", &of_other).status, 423);
    assert!(!guard.is_lost() && fixture.holders("infra/prod") == 1);
    let refused = send(&fixture, "LOCK", &info(BOB, "bob").to_string());
    assert_eq!(refused.status, 423);
    let created = refused.json()["Created"].as_str().unwrap().to_owned();
    assert!(
        created.starts_with("20") && created.ends_with('Z'),
        "the tools must be able to read it"
    );
}

#[test]
fn what_is_no_lock_of_these_tools_is_refused() {
    let fixture = Fixture::memory();
    for bad in ["", "{}", "[]", "x", r#"{"ID":"not a uuid"}"#] {
        assert_eq!(send(&fixture, "LOCK", bad).refused(400), "usage", "{bad}");
    }
    assert_eq!(send(&fixture, "GET", "").refused(405), "usage");
    // The server answers one request at a time: an ID that never fits into the note must not keep it busy.
    let digits = ANN.replace('-', "");
    let long_id = format!("{digits}{}", "-".repeat(1000));
    for bad in [long_id, format!("-{digits}"), format!("{}-", &ANN[..35]), ANN.replacen('-', "", 1)]
    {
        assert_eq!(send(&fixture, "LOCK", &info(&bad, "eve").to_string()).refused(400), "usage");
    }
    let mut long = info(ANN, "ann@laptop");
    long["Info"] = "i".repeat(3000).into();
    assert_eq!(send(&fixture, "LOCK", &long.to_string()).status, 200, "a long one is shortened");
    let refused = send(&fixture, "LOCK", &info(BOB, "bob").to_string());
    assert_eq!((refused.status, &refused.json()["ID"]), (423, &json!(ANN)));
    assert_eq!(refused.json()["Who"], "ann@laptop");
}

#[test]
fn an_id_without_dashes_and_members_that_are_too_long_are_accepted() {
    let fixture = Fixture::memory();
    let mut huge = info(&ANN.replace('-', ""), "ann");
    for member in ["Info", "Operation", "Another"] {
        huge[member] = "i".repeat(5000).into();
    }
    assert_eq!(send(&fixture, "LOCK", &huge.to_string()).status, 200);
    let refused = send(&fixture, "LOCK", &info(BOB, "bob").to_string());
    assert_eq!((refused.status, refused.json()), (423, json!({ "ID": ANN.replace('-', "") })));
}
