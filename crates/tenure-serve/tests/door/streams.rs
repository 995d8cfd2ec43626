//! Event streams that wait for a lock, and hold it.

use serde_json::json;
use tenure::blocking::block_on;

use crate::fixture::{Fixture, Stream, until};

const ACCEPT: [(&str, &str); 1] = [("Accept", "text/event-stream")];

#[test]
fn a_stream_holds_its_lock_until_the_client_hangs_up() {
    let fixture = Fixture::redis();
    let body = json!({ "lease_ms": 1000 }).to_string();
    let mut stream = Stream::open(fixture.send("POST", "/v1/locks/job/acquire", &ACCEPT, &body));
    let granted = stream.until("granted");
    assert_eq!(granted["name"], "job");
    // It is renewed: three leases later it is still held, with the same fence.
    let first = fixture.get("/v1/locks/job").ok();
    assert_eq!(first["holders"][0]["fence"], granted["fence"]);
    let since = first["holders"][0]["since_ms"].as_u64().unwrap();
    until("three leases have passed", || {
        let lock = fixture.get("/v1/locks/job").ok();
        assert_eq!(lock["holders"][0]["fence"], granted["fence"]);
        crate::fixture::now_ms() > since + 3000
    });
    drop(stream);
    until("it is released", || fixture.holders("job") == 0);
}

#[test]
fn a_stream_reports_the_queue_the_grant_and_the_loss() {
    let fixture = Fixture::redis();
    let guard = block_on(fixture.tenure.lock("job").acquire()).unwrap();
    let mut stream = Stream::open(fixture.send("POST", "/v1/locks/job/acquire", &ACCEPT, ""));
    assert_eq!(stream.until("waiting")["waiting"], 1);
    block_on(guard.release()).unwrap();
    let granted = stream.until("granted");
    let name = tenure::LockName::new("job").unwrap();
    block_on(fixture.tenure.force_release(name, None, "a test")).unwrap();
    let lost = stream.until("lost");
    assert_eq!((&lost["title"], &lost["exit"]), (&json!("lost"), &json!(76)));
    assert!(stream.next().is_none(), "the stream ends");
    let owner = json!({ "owner": granted["owner"] });
    assert_eq!(fixture.post("/v1/locks/job/release", &owner).refused(410), "lost");
}

#[test]
fn the_lock_of_a_stream_can_be_released_by_its_owner() {
    let fixture = Fixture::memory();
    let mut stream = Stream::open(fixture.send("POST", "/v1/locks/job/acquire", &ACCEPT, ""));
    let owner = stream.until("granted")["owner"].clone();
    // The owner is right, and the name is another one.
    let other = fixture.post("/v1/locks/other/release", &json!({ "owner": owner }));
    assert_eq!(other.refused(410), "lost");
    assert_eq!(fixture.holders("job"), 1);
    let released = fixture.post("/v1/locks/job/release", &json!({ "owner": owner })).ok();
    assert_eq!(released["released"], json!([owner]));
    assert_eq!(stream.until("released")["owner"], owner);
    assert!(stream.next().is_none());
    assert_eq!(fixture.holders("job"), 0);
}

#[test]
fn a_client_that_refuses_event_streams_gets_none() {
    let fixture = Fixture::memory();
    for (number, accept) in
        ["text/event-stream;q=0", "*/*, text/event-stream; Q=0.0", "text/event-streams"]
            .iter()
            .enumerate()
    {
        let path = format!("/v1/locks/job-{number}/acquire");
        fixture.ask("POST", &path, &[("Accept", accept)], "").ok();
    }
    let accept = [("Accept", "application/json;q=0.5, Text/Event-Stream; q=0.9")];
    Stream::open(fixture.send("POST", "/v1/locks/job/acquire", &accept, "")).until("granted");
}

#[test]
fn a_stream_that_may_not_wait_forever_is_refused_in_time() {
    let fixture = Fixture::memory();
    let _guard = block_on(fixture.tenure.lock("job").acquire()).unwrap();
    let body = json!({ "wait_ms": 50 }).to_string();
    let mut stream = Stream::open(fixture.send("POST", "/v1/locks/job/acquire", &ACCEPT, &body));
    let refused = stream.until("refused");
    assert_eq!(refused["title"], "not-acquired");
    assert_eq!(refused["lock"]["holding"], 1);
    assert!(stream.next().is_none());
}

#[test]
fn a_waiting_stream_that_hangs_up_leaves_the_queue() {
    let fixture = Fixture::redis();
    let _guard = block_on(fixture.tenure.lock("job").acquire()).unwrap();
    let stream = Stream::open(fixture.send("POST", "/v1/locks/job/acquire", &ACCEPT, ""));
    until("it waits", || fixture.waiting("job") == 1);
    drop(stream);
    until("it has left", || fixture.waiting("job") == 0);
}
