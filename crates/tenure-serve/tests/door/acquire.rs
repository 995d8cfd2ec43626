//! Acquiring, renewing and releasing.

use std::io::{BufReader, Write};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::blocking::block_on;

use crate::fixture::{Answer, Fixture, Options, connect_to, now, now_ms, until};

#[test]
fn a_lock_is_acquired_renewed_and_released_over_http() {
    let fixture = Fixture::redis();
    let granted = fixture.post("/v1/locks/orders/42/acquire", &json!({ "note": "by a test" })).ok();
    assert_eq!(granted["name"], "orders/42");
    assert_eq!(granted["lease_ms"], 30_000);
    assert!(granted["fence"].as_u64().unwrap() > 0);
    assert!(granted["expires_at_ms"].as_u64().unwrap() > 1_600_000_000_000);
    let info = block_on(fixture.tenure.lock("orders/42").inspect()).unwrap();
    assert_eq!(info.holders[0].about.note.as_deref(), Some("by a test"));
    assert_eq!(info.holders[0].fence.value(), granted["fence"].as_u64().unwrap());
    let handle = &granted["handle"];
    let renewed =
        fixture.post("/v1/locks/orders/42/renew", &json!({ "handle": handle, "lease_ms": 60_000 }));
    assert_eq!(renewed.ok()["lease_ms"], 60_000);
    let left = renewed.ok()["left_ms"].as_u64().unwrap();
    assert!((40_000..=60_000).contains(&left), "{left}");
    let released = fixture.post("/v1/locks/orders/42/release", &json!({ "handle": handle })).ok();
    assert_eq!(released, json!({ "name": "orders/42", "released": [granted["owner"]] }));
    assert_eq!(fixture.holders("orders/42"), 0);
    for operation in ["renew", "release"] {
        let path = format!("/v1/locks/orders/42/{operation}");
        let again = fixture.post(&path, &json!({ "handle": handle }));
        assert_eq!(again.refused(410), "lost");
        assert_eq!(again.json()["exit"], 76);
    }
}

#[test]
fn a_busy_lock_is_refused_with_its_holder() {
    let fixture = Fixture::memory();
    let _guard = block_on(fixture.tenure.lock("deploy").note("Ann").acquire()).unwrap();
    let started = now();
    let refused = fixture.post("/v1/locks/deploy/acquire", &json!({ "wait_ms": 0 }));
    assert_eq!(refused.refused(423), "not-acquired");
    assert!(started.elapsed() < Duration::from_secs(5));
    let body = refused.json();
    assert_eq!(body["exit"], 75);
    assert_eq!(body["lock"]["holders"][0]["about"]["note"], "Ann");
    let refused = fixture.post("/v1/locks/deploy/acquire", &json!({ "wait_ms": 50 }));
    assert_eq!(refused.refused(423), "not-acquired");
    assert_eq!(fixture.waiting("deploy"), 0);
}

#[test]
fn a_waiting_request_gets_the_lock_when_it_is_released() {
    let fixture = Fixture::redis();
    let guard = block_on(fixture.tenure.lock("deploy").acquire()).unwrap();
    let waiting = fixture.send("POST", "/v1/locks/deploy/acquire", &[], "");
    until("it waits", || fixture.waiting("deploy") == 1);
    block_on(guard.release()).unwrap();
    let granted = Answer::read(&mut BufReader::new(waiting)).ok();
    assert_eq!(fixture.holders("deploy"), 1);
    // Nearly the whole lease is left, although a hand-over is valid for a few seconds only at first.
    let info = block_on(fixture.tenure.lock("deploy").inspect()).unwrap();
    assert!(info.holders[0].lease_left > Duration::from_secs(20), "{info:?}");
    assert_eq!(info.holders[0].owner.to_string(), granted["owner"].as_str().unwrap());
}

#[test]
fn a_client_that_hangs_up_leaves_the_queue() {
    let fixture = Fixture::redis();
    let guard = block_on(fixture.tenure.lock("deploy").acquire()).unwrap();
    let clients: Vec<_> =
        (0..5).map(|_| fixture.send("POST", "/v1/locks/deploy/acquire", &[], "")).collect();
    until("they wait", || fixture.waiting("deploy") == 5);
    drop(clients);
    until("they have left", || fixture.waiting("deploy") == 0);
    block_on(guard.release()).unwrap();
    assert_eq!(fixture.holders("deploy"), 0, "nothing is left behind");
}

/// A byte that follows the request keeps the HTTP implementation from noticing the end of the connection.
#[test]
fn a_client_that_sends_more_and_hangs_up_leaves_the_queue() {
    let fixture = Fixture::redis();
    let guard = block_on(fixture.tenure.lock("deploy").acquire()).unwrap();
    let clients: Vec<_> = ["\r\n", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"]
        .map(|more| {
            let mut client = fixture.send("POST", "/v1/locks/deploy/acquire", &[], "");
            client.write_all(more.as_bytes()).unwrap();
            client
        })
        .into();
    until("they wait", || fixture.waiting("deploy") == 2);
    drop(clients);
    until("they have left", || fixture.waiting("deploy") == 0);
    block_on(guard.release()).unwrap();
    assert_eq!(fixture.holders("deploy"), 0, "nothing is left behind");
}

/// It is granted the lock in the moment in which that is not noticed yet, and would never release it.
#[test]
fn a_client_that_has_just_hung_up_does_not_hold_the_lock() {
    let fixture = Fixture::redis();
    let body = json!({ "lease_ms": 600_000 }).to_string();
    for _ in 0..5 {
        let guard = block_on(fixture.tenure.lock("deploy").acquire()).unwrap();
        let mut client = fixture.send("POST", "/v1/locks/deploy/acquire", &[], &body);
        client.write_all(b"\r\n").unwrap();
        until("it waits", || fixture.waiting("deploy") == 1);
        drop(client);
        block_on(guard.release()).unwrap();
        until("it is free", || fixture.holders("deploy") == 0);
    }
}

#[test]
fn a_key_of_another_request_is_refused() {
    let fixture = Fixture::redis();
    let body = json!({ "idempotency_key": "k1", "lease_ms": 5000 });
    fixture.post("/v1/locks/job/acquire", &body).ok();
    for other in [
        json!({ "idempotency_key": "k1", "lease_ms": 20_000 }),
        json!({ "idempotency_key": "k1", "lease_ms": 5000, "kind": "semaphore", "limit": 5 }),
    ] {
        assert_eq!(fixture.post("/v1/locks/job/acquire", &other).refused(400), "usage");
    }
    fixture.post("/v1/locks/job/acquire", &body).ok();
}

/// The time of the answer's way through a slow network belongs to the lease, too.
#[test]
fn the_end_of_a_lease_is_not_later_than_in_the_store() {
    let redis = tenure_testkit::Server::start();
    let slow = tenure_testkit::Distance::start(&redis, Duration::from_millis(200));
    let near = block_on(tenure::Tenure::connect(&redis.url())).unwrap();
    let fixture = Fixture::start(connect_to(slow.url()), near.clone(), None, Options::default());
    let check = |answer: &Value| {
        let left = block_on(near.lock("job").inspect()).unwrap().holders[0].lease_left;
        let ends = now_ms() + u64::try_from(left.as_millis()).unwrap();
        // The two clocks are read one after the other.
        assert!(answer["expires_at_ms"].as_u64().unwrap() <= ends + 5, "{answer}: {left:?} left");
    };
    let granted = fixture.post("/v1/locks/job/acquire", &json!({ "lease_ms": 20_000 })).ok();
    check(&granted);
    let renewal = json!({ "handle": granted["handle"], "lease_ms": 25_000 });
    check(&fixture.post("/v1/locks/job/renew", &renewal).ok());
}

#[test]
fn a_request_that_is_sent_again_gets_the_same_lock() {
    let fixture = Fixture::redis();
    let body = json!({ "idempotency_key": "k1", "wait_ms": 2000 });
    let first = fixture.post("/v1/locks/job/acquire", &body).ok();
    let again = fixture.post("/v1/locks/job/acquire", &body).ok();
    assert_eq!((&first["handle"], &first["fence"]), (&again["handle"], &again["fence"]));
    let by_header = fixture.ask(
        "POST",
        "/v1/locks/job/acquire",
        &[("Idempotency-Key", "k1")],
        r#"{"wait_ms":0}"#,
    );
    assert_eq!(by_header.ok()["handle"], first["handle"]);
    let info = block_on(fixture.tenure.lock("job").inspect()).unwrap();
    assert_eq!((info.holding, info.holders[0].entries), (1, 1), "it counts once");
    let other = json!({ "idempotency_key": "k2", "wait_ms": 0 });
    assert_eq!(fixture.post("/v1/locks/job/acquire", &other).refused(423), "not-acquired");
    fixture.post("/v1/locks/job/release", &json!({ "handle": first["handle"] })).ok();
    let next = fixture.post("/v1/locks/job/acquire", &body).ok();
    assert_ne!(next["handle"], first["handle"], "the first one was released");
}

#[test]
fn two_requests_with_one_key_at_once_get_one_lock() {
    let fixture = Fixture::memory();
    let guard = block_on(fixture.tenure.lock("job").acquire()).unwrap();
    let body = json!({ "idempotency_key": "k", "wait_ms": 20_000 });
    let handles: Vec<_> = thread::scope(|scope| {
        let ask = || fixture.post("/v1/locks/job/acquire", &body).ok()["handle"].clone();
        let both = [scope.spawn(ask), scope.spawn(ask)];
        until("one waits", || fixture.waiting("job") == 1);
        block_on(guard.release()).unwrap();
        both.map(|it| it.join().unwrap()).into()
    });
    assert_eq!(handles[0], handles[1]);
}

#[test]
fn every_kind_can_be_acquired() {
    let fixture = Fixture::memory();
    let acquire = |name: &str, body| fixture.post(&format!("/v1/locks/{name}/acquire"), &body);
    for _ in 0..2 {
        acquire("slots", json!({ "limit": 2, "wait_ms": 0 })).ok();
        acquire("table", json!({ "kind": "read", "wait_ms": 0 })).ok();
    }
    let full = acquire("slots", json!({ "kind": "semaphore", "limit": 2, "wait_ms": 0 }));
    assert_eq!(full.refused(423), "not-acquired");
    let writer = acquire("table", json!({ "kind": "write", "wait_ms": 0 }));
    assert_eq!(writer.refused(423), "not-acquired");
    let other = acquire("table", json!({ "wait_ms": 0 }));
    assert_eq!(other.refused(409), "usage");
    assert_eq!(other.json()["kind"], "read-write lock");
    acquire("many", json!({ "limit": 5, "permits": 5, "wait_ms": 0 })).ok();
}

#[test]
fn wrong_requests_are_refused_with_a_sentence() {
    let fixture = Fixture::memory();
    let detail = |body: &str| {
        let answer = fixture.ask("POST", "/v1/locks/x/acquire", &[], body);
        assert_eq!(answer.refused(400), "usage", "{body}");
        assert_eq!(answer.json()["exit"], 64);
        answer.json()["detail"].as_str().unwrap().to_owned()
    };
    assert!(detail("{").contains("is no JSON"));
    assert!(detail("[]").contains("must be a JSON object"));
    assert!(detail(r#"{"lease":"30s"}"#).contains("no member `lease`"));
    assert!(detail(r#"{"wait_ms":"1"}"#).contains("`wait_ms` must be a whole number"));
    assert!(detail(r#"{"wait_ms":-1}"#).contains("whole number"));
    assert!(detail(r#"{"wait_ms":999999999}"#).contains("at most"));
    assert!(detail(r#"{"kind":"latch"}"#).contains("one of mutex"));
    assert!(detail(r#"{"kind":"semaphore"}"#).contains("needs a `limit`"));
    assert!(detail(r#"{"kind":"mutex","limit":2}"#).contains("belong to the kind"));
    assert!(detail(r#"{"lease_ms":1}"#).contains("lease"));
    let note = "n".repeat(1025);
    assert!(detail(&format!(r#"{{"note":"{note}"}}"#)).contains("1024 bytes"));
    let release = |body| fixture.post("/v1/locks/x/release", &body);
    assert_eq!(release(json!({})).refused(400), "usage");
    assert_eq!(release(json!({ "handle": "nonsense" })).refused(400), "usage");
    let granted = fixture.post("/v1/locks/y/acquire", &json!({})).ok();
    let wrong = release(json!({ "handle": granted["handle"] }));
    assert!(wrong.json()["detail"].as_str().unwrap().contains("is not one of `x`"));
}

#[test]
fn a_store_that_is_down_is_unavailable_and_comes_back() {
    let mut fixture = Fixture::redis();
    fixture.post("/v1/locks/a/acquire", &json!({})).ok();
    fixture.redis.as_mut().unwrap().kill();
    let refused = fixture.post("/v1/locks/b/acquire", &json!({ "wait_ms": 100 }));
    assert_eq!(refused.refused(503), "unavailable");
    assert_eq!(refused.json()["exit"], 69);
    fixture.redis.as_mut().unwrap().restart();
    until("it works again", || {
        fixture.post("/v1/locks/c/acquire", &json!({ "wait_ms": 100 })).status == 200
    });
}
