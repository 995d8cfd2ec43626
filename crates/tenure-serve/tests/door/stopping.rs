//! What happens to clients when the server is stopped.

use std::io::BufReader;
use std::time::Duration;

use serde_json::json;
use tenure::blocking::block_on;
use tenure_serve::Limits;

use crate::fixture::{Answer, Fixture, Options, Stream, now, until};

#[test]
fn a_stopped_server_refuses_those_that_wait_and_releases_what_it_holds() {
    let mut fixture = Fixture::redis();
    let accept = [("Accept", "text/event-stream")];
    let guard = block_on(fixture.tenure.lock("busy").acquire()).unwrap();
    let waiting = fixture.send("POST", "/v1/locks/busy/acquire", &[], "");
    let mut queued = Stream::open(fixture.send("POST", "/v1/locks/busy/acquire", &accept, ""));
    let mut held = Stream::open(fixture.send("POST", "/v1/locks/held/acquire", &accept, ""));
    held.until("granted");
    let mut page = Stream::open(fixture.send("GET", "/v1/state", &[], ""));
    page.until("snapshot");
    let handle = fixture.post("/v1/locks/detached/acquire", &json!({})).ok();
    until("both wait", || fixture.waiting("busy") == 2);
    let started = now();
    fixture.begin_to_stop();
    assert_eq!(Answer::read(&mut BufReader::new(waiting)).refused(503), "stopping");
    assert_eq!(queued.until("refused")["title"], "stopping");
    let released = held.until("released");
    assert_eq!(released["title"], "stopping");
    assert!(released["detail"].as_str().unwrap().ends_with("`held` was released"), "{released}");
    while page.next().is_some() {}
    fixture.stop();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert_eq!((fixture.waiting("busy"), fixture.holders("held")), (0, 0));
    assert!(!guard.is_lost());
    // A client that has a handle keeps its lock, and uses it at another server.
    assert_eq!(fixture.holders("detached"), 1);
    let other = fixture.other(Options::default());
    other.post("/v1/locks/detached/release", &json!({ "handle": handle["handle"] })).ok();
    assert_eq!(fixture.holders("detached"), 0);
}

/// The store does not answer, so that neither the stream nor what is sent after it can end in time.
#[test]
fn a_server_stops_within_its_grace_and_claims_no_release_that_is_not_confirmed() {
    let grace = Duration::from_secs(2);
    let mut limits = Limits::default();
    limits.bounds.grace = grace;
    let redis = tenure_testkit::Server::builder().on_port().start();
    let mut fixture = Fixture::of(redis, Options { limits, ..Options::default() });
    let accept = [("Accept", "text/event-stream")];
    let mut held = Stream::open(fixture.send("POST", "/v1/locks/held/acquire", &accept, ""));
    held.until("granted");
    let mut gone = Stream::open(fixture.send("POST", "/v1/locks/gone/acquire", &accept, ""));
    gone.until("granted");
    fixture.redis.as_ref().unwrap().pause(true);
    // Its lock is released in the background, which ends as little as the other stream does.
    drop(gone);
    assert_eq!(fixture.get("/healthz").status, 200);
    let started = now();
    fixture.stop();
    assert!(started.elapsed() < grace * 3 / 2, "{:?}", started.elapsed());
    while let Some((event, data)) = held.next() {
        assert_ne!(event, "released", "{data}");
    }
}

#[test]
fn a_release_that_failed_is_not_reported_as_one() {
    let mut fixture = Fixture::redis();
    let accept = [("Accept", "text/event-stream")];
    let mut held = Stream::open(fixture.send("POST", "/v1/locks/held/acquire", &accept, ""));
    held.until("granted");
    fixture.redis.as_mut().unwrap().kill();
    fixture.begin_to_stop();
    while let Some((event, data)) = held.next() {
        assert_ne!(event, "released", "{data}");
    }
}
