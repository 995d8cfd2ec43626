//! Streams of what happens to the locks of a store.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tenure::blocking::block_on;
use tenure::{Guard, Tenure};

use crate::fixture::{Fixture, Options, Stream};

fn follow(fixture: &Fixture, last: Option<&Value>) -> Stream {
    let last = last.map(Value::to_string);
    let headers: Vec<_> = last.iter().map(|id| ("Last-Event-ID", &**id)).collect();
    Stream::open(fixture.send("GET", "/v1/events", &headers, ""))
}

fn acquire(tenure: &Tenure, name: &str) -> Guard {
    block_on(tenure.lock(name).acquire()).unwrap()
}

/// More events in one reading than the channel has room for: the rest comes out of the history.
#[test]
fn a_burst_of_events_is_reported_completely_and_once() {
    let fixture = Fixture::memory();
    let mut events = follow(&fixture, None).follows();
    let _burst: Vec<_> =
        (0..300).map(|number| acquire(&fixture.tenure, &format!("burst/{number}"))).collect();
    let mut seen = Vec::new();
    while seen.len() < 300 {
        let event = events.until("lock");
        assert_eq!(event["event"], "acquired");
        seen.push(event["name"].to_string());
    }
    let _last = acquire(&fixture.tenure, "last");
    assert_eq!(events.until("lock")["name"], "last", "none is repeated");
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 300);
}

/// 10,000 locks are read, in the order of their names: one that moves over the end is neither released nor acquired.
#[test]
fn a_lock_behind_the_end_of_the_list_is_not_reported_as_released() {
    let fixture = Fixture::memory();
    let _many: Vec<_> =
        (0..10_000).map(|number| acquire(&fixture.tenure, &format!("lock/{number:05}"))).collect();
    // It finds them at its start.
    let fixture = fixture.other(Options::default());
    let mut events = follow(&fixture, None).follows();
    let mut next = || {
        let event = events.until("lock");
        format!("{} {}", event["event"].as_str().unwrap(), event["name"].as_str().unwrap())
    };
    let first = acquire(&fixture.tenure, "first");
    assert_eq!(next(), "acquired first");
    let _second = acquire(&fixture.tenure, "a second");
    assert_eq!(next(), "acquired a second");
    block_on(first.release()).unwrap();
    assert_eq!(next(), "released first");
    let _third = acquire(&fixture.tenure, "a third");
    assert_eq!(next(), "acquired a third");
}

/// A client keeps the number of its last event while the server is replaced.
#[test]
fn events_of_a_new_server_are_new_to_a_client_of_an_earlier_one() {
    let mut first = Fixture::redis();
    let mut events = follow(&first, None).follows();
    let guards: Vec<_> =
        (0..3).map(|number| acquire(&first.tenure, &format!("early/{number}"))).collect();
    let last = guards.iter().map(|_| events.until("lock")["id"].clone()).next_back().unwrap();
    let second = first.other(Options::default());
    first.stop();
    let mut other = follow(&second, None).follows();
    let _late = acquire(&second.tenure, "late");
    assert_eq!(other.until("lock")["name"], "late");
    assert_eq!(follow(&second, Some(&last)).until("lock")["name"], "late");
    // A number that no server has reached is unknown.
    assert_eq!(follow(&second, Some(&json!(u64::MAX))).until("lock")["name"], "late");
}

/// Very many locks are released between two readings, and one of them was forced, whatever its name is.
#[test]
fn a_forced_release_is_reported_as_one_among_many_releases() {
    let fixture = Fixture::redis();
    let guards: Vec<_> =
        (0..400).map(|number| acquire(&fixture.tenure, &format!("lock/{number:03}"))).collect();
    // It finds them at its start.
    let fixture = fixture.other(Options::default());
    let mut events = follow(&fixture, None).follows();
    let forced = &guards[390];
    let forcing = block_on(fixture.tenure.lock(forced.name().clone()).force_release("a test"));
    forcing.unwrap();
    let forced = forced.name().to_string();
    drop(guards);
    for _ in 0..400 {
        let event = events.until("lock");
        let expected = if event["name"] == *forced { "forced" } else { "released" };
        assert_eq!(event["event"], expected, "{event}");
    }
}

/// A comment every 15 s shows that a stream is alive, whatever happens to locks that its client does not ask for.
#[test]
fn a_stream_without_events_is_not_silent() {
    let fixture = Fixture::memory();
    let path = "/v1/events?prefix=quiet/";
    let events = Stream::open(fixture.send("GET", path, &[], "")).follows();
    let is_over = AtomicBool::new(false);
    let mut events = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                let _guard = acquire(&fixture.tenure, "busy");
                crate::fixture::until("seen", || {
                    fixture.get("/v1/locks/busy").ok()["holding"] == 1
                });
            }
        });
        let events = events.follows();
        is_over.store(true, Ordering::SeqCst);
        events
    });
    let _last = acquire(&fixture.tenure, "quiet/last");
    assert_eq!(events.until("lock")["name"], "quiet/last");
}
