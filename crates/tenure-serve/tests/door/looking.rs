//! Lists, single locks, health, forced releases, and the description of the interface.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tenure::blocking::block_on;

use crate::fixture::{Fixture, Stream};

#[test]
fn locks_are_listed_and_shown_as_the_command_does() {
    let fixture = Fixture::redis();
    let _a = block_on(fixture.tenure.lock("orders/1").note("Ann").acquire()).unwrap();
    let _b = block_on(fixture.tenure.lock("orders/2").acquire()).unwrap();
    let _c = block_on(fixture.tenure.lock("other").acquire()).unwrap();
    let list = fixture.get("/v1/locks?prefix=orders%2F").ok();
    assert_eq!(list["locks"].as_array().unwrap().len(), 2);
    assert_eq!(list["more"], false);
    let list = fixture.get("/v1/locks?limit=1").ok();
    assert_eq!((list["locks"].as_array().unwrap().len(), &list["more"]), (1, &json!(true)));
    let lock = fixture.get("/v1/locks/orders/1").ok();
    let fields: Vec<_> = lock.as_object().unwrap().keys().cloned().collect();
    assert_eq!(
        fields,
        [
            "disagreement",
            "forced",
            "holders",
            "holding",
            "kind",
            "limit",
            "name",
            "trouble",
            "waiters",
            "waiting"
        ]
    );
    assert_eq!(lock["holders"][0]["about"]["note"], "Ann");
    assert_eq!(fixture.get("/v1/locks/free").ok()["holding"], 0);
    assert_eq!(fixture.get("/v1/locks?limt=1").refused(400), "usage");
    assert_eq!(fixture.get("/v1/locks?limit=99999").refused(400), "usage");
}

#[test]
fn a_forced_release_needs_a_reason_and_the_name_and_is_recorded() {
    let fixture = Fixture::redis();
    let guard = block_on(fixture.tenure.lock("stuck").acquire()).unwrap();
    let force = |body: Value| fixture.post("/v1/locks/stuck/force-release", &body);
    assert_eq!(force(json!({ "reason": "x" })).refused(400), "usage");
    assert_eq!(force(json!({ "reason": "x", "confirm": "stick" })).refused(400), "usage");
    assert_eq!(force(json!({ "reason": " ", "confirm": "stuck" })).refused(400), "usage");
    let unseen = "\u{200b}\u{2060}\u{34f}\u{fe0f}\u{3164}\u{a0}\n";
    assert_eq!(force(json!({ "reason": unseen, "confirm": "stuck" })).refused(400), "usage");
    let other = tenure::Owner::new().to_string();
    let wrong = json!({ "reason": "x", "confirm": "stuck", "owner": other });
    assert_eq!(force(wrong).refused(409), "not-acquired");
    assert!(!guard.is_lost());
    let owner = guard.owner().to_string();
    let right = json!({ "reason": "crashed <b>", "confirm": "stuck", "owner": owner });
    assert_eq!(force(right).ok()["released"], json!([owner]));
    block_on(guard.lost());
    let shown = fixture.get("/v1/locks/stuck").ok();
    assert_eq!(shown["forced"]["reason"], "crashed <b>");
    assert_eq!(shown["forced"]["owners"], json!([owner]));
}

#[test]
fn a_method_that_is_not_possible_is_answered_with_those_that_are() {
    let fixture = Fixture::memory();
    for (method, path, allowed) in [
        ("POST", "/", "GET, HEAD"),
        ("DELETE", "/v1/locks", "GET, HEAD"),
        ("DELETE", "/v1/locks/x", "GET, HEAD, POST"),
        ("GET", "/v1/terraform/x", "LOCK, UNLOCK, PUT, DELETE"),
    ] {
        let refused = fixture.ask(method, path, &[], "");
        assert_eq!(refused.refused(405), "usage");
        assert_eq!(refused.header("allow"), Some(allowed), "{method} {path}");
    }
}

#[test]
fn events_report_losses_and_continue_where_they_ended() {
    let fixture = Fixture::redis();
    let mut events = Stream::open(fixture.send("GET", "/v1/events?prefix=job/", &[], "")).follows();
    let guard = block_on(fixture.tenure.lock("job/1").acquire()).unwrap();
    let _other = block_on(fixture.tenure.lock("elsewhere").acquire()).unwrap();
    let acquired = events.until("lock");
    assert_eq!((&acquired["event"], &acquired["name"]), (&json!("acquired"), &json!("job/1")));
    let name = tenure::LockName::new("job/1").unwrap();
    block_on(fixture.tenure.force_release(name, None, "a test")).unwrap();
    let forced = events.until("lock");
    assert_eq!((&forced["event"], &forced["reason"]), (&json!("forced"), &json!("a test")));
    assert_eq!(forced["owner"], guard.owner().to_string());
    drop(events);
    // A client that has got the first event, and not the second.
    let last = acquired["id"].to_string();
    let again = fixture.send("GET", "/v1/events?prefix=job/", &[("Last-Event-ID", &last)], "");
    assert_eq!(Stream::open(again).until("lock")["id"], forced["id"]);
}

#[test]
fn a_lease_that_ends_is_reported_as_such() {
    let fixture = Fixture::redis();
    let mut events = Stream::open(fixture.send("GET", "/v1/events", &[], "")).follows();
    fixture.post("/v1/locks/short/acquire", &json!({ "lease_ms": 1200 })).ok();
    assert_eq!(events.until("lock")["event"], "acquired");
    assert_eq!(events.until("lock")["event"], "lease-ended");
}

/// Every operation of the description exists, answers with a described status, and has the described members; and every
/// operation of the server is described.
#[test]
fn the_description_of_the_interface_is_true() {
    let fixture = Fixture::memory();
    let description = fixture.get("/v1/openapi.json").ok();
    assert_eq!(description["openapi"], "3.1.0");
    let mut described = BTreeSet::new();
    for (path, methods) in description["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            if method == "parameters" {
                continue;
            }
            described.insert(format!("{method} {path}"));
            check(&fixture, &description, (method, path), operation);
        }
    }
    let served: BTreeSet<_> = [
        "get /v1/locks",
        "get /v1/locks/{name}",
        "post /v1/locks/{name}/acquire",
        "post /v1/locks/{name}/renew",
        "post /v1/locks/{name}/release",
        "post /v1/locks/{name}/force-release",
        "get /v1/events",
        "get /v1/state",
        "get /v1/health",
    ]
    .map(str::to_owned)
    .into();
    assert_eq!(described, served);
}

/// Performs an operation with the example of its request, on a lock of its own.
fn check(fixture: &Fixture, description: &Value, operation: (&str, &str), described: &Value) {
    let (method, template) = operation;
    let name = format!("described-by-{}", described["operationId"].as_str().unwrap());
    let path = template.replace("{name}", &name);
    let responses = described["responses"].as_object().unwrap();
    let example = &described["requestBody"]["content"]["application/json"]["example"];
    let mut body = example.clone();
    if !body.is_null() {
        let schema = &described["requestBody"]["content"]["application/json"]["schema"];
        let known = resolve(description, schema)["properties"].as_object().unwrap().clone();
        for field in body.as_object().unwrap().keys() {
            assert!(known.contains_key(field), "{operation:?}: {field}");
        }
        if body.get("handle").is_some() || body.get("confirm").is_some() {
            let granted = fixture.post(&format!("/v1/locks/{name}/acquire"), &json!({})).ok();
            if body.get("handle").is_some() {
                body["handle"] = granted["handle"].clone();
            } else {
                body["confirm"] = name.clone().into();
            }
        }
    }
    let ok = &responses["200"]["content"];
    if ok.get("application/json").is_none() {
        let accept = [("Accept", "text/event-stream")];
        let stream = fixture.send(&method.to_uppercase(), &path, &accept, "");
        return drop(Stream::open(stream));
    }
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = fixture.ask(&method.to_uppercase(), &path, &[], &body).ok();
    let schema = resolve(description, &ok["application/json"]["schema"]);
    for required in schema["required"].as_array().unwrap() {
        assert!(answer.get(required.as_str().unwrap()).is_some(), "{operation:?}: {required}");
    }
    for field in answer.as_object().unwrap().keys() {
        assert!(schema["properties"].get(field).is_some(), "{operation:?}: {field}");
    }
    let wrong = fixture.ask(&method.to_uppercase(), &path, &[("Host", "evil.example")], &body);
    assert!(responses.contains_key(&wrong.status.to_string()), "{operation:?}: {}", wrong.status);
}

fn resolve<'a>(description: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => description.pointer(reference.strip_prefix('#').unwrap()).unwrap(),
        None => schema,
    }
}
