//! Locks in Redisson's format, which has no queue, no notes, and fences only if it is told so.

use serde_json::{Value, json};
use tenure::Tenure;
use tenure::blocking::block_on;

use crate::fixture::{Fixture, Options, Stream, connect_to};

fn redisson() -> Fixture {
    let redis = tenure_testkit::Server::builder().on_port().start();
    let url = format!("{}?protocol=redisson", redis.url());
    let tenure = block_on(Tenure::connect(&url)).unwrap();
    Fixture::start(connect_to(url), tenure, Some(redis), Options::default())
}

#[test]
fn a_lock_of_redissons_is_acquired_renewed_and_released() {
    let fixture = redisson();
    let granted = fixture.post("/v1/locks/job/acquire", &json!({})).ok();
    assert_eq!(granted["fence"], Value::Null);
    let shown = fixture.get("/v1/locks/job").ok();
    assert_eq!((&shown["holding"], &shown["holders"][0]["since_ms"]), (&json!(1), &Value::Null));
    let busy = fixture.post("/v1/locks/job/acquire", &json!({ "wait_ms": 0 }));
    assert_eq!(busy.refused(423), "not-acquired");
    let handle = json!({ "handle": granted["handle"] });
    fixture.post("/v1/locks/job/renew", &handle).ok();
    fixture.post("/v1/locks/job/release", &handle).ok();
    assert_eq!(fixture.holders("job"), 0);
}

#[test]
fn a_stream_and_its_events_have_no_fence_there() {
    let fixture = redisson();
    let mut events = Stream::open(fixture.send("GET", "/v1/events", &[], "")).follows();
    let accept = [("Accept", "text/event-stream")];
    let mut stream = Stream::open(fixture.send("POST", "/v1/locks/job/acquire", &accept, ""));
    assert_eq!(stream.until("granted")["fence"], Value::Null);
    let acquired = events.until("lock");
    assert_eq!((&acquired["event"], &acquired["fence"]), (&json!("acquired"), &Value::Null));
    assert_eq!(acquired["since_ms"], Value::Null);
    assert!(acquired["at_ms"].as_u64().unwrap() > 1_600_000_000_000, "{acquired}");
}

#[test]
fn what_the_format_cannot_keep_is_refused_with_a_sentence() {
    let fixture = redisson();
    let noted = fixture.post("/v1/locks/job/acquire", &json!({ "note": "nightly" }));
    assert_eq!(noted.refused(400), "usage");
    assert!(noted.json()["detail"].as_str().unwrap().contains("cannot keep a note"), "{noted:?}");
    let object = json!({ "ID": "8f3c2a54-7a41-11ef-9a35-0242ac120002" }).to_string();
    let locked = fixture.ask("LOCK", "/v1/terraform/infra", &[], &object);
    assert_eq!(locked.refused(400), "usage");
    assert!(locked.json()["detail"].as_str().unwrap().contains("cannot lock here"), "{locked:?}");
}
