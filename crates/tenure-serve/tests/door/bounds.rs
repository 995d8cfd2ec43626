//! Attacks on the server's bounds: its connections, memory and time.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::blocking::block_on;
use tenure_serve::Limits;
use tenure_serve::listener::Bounds;

use crate::fixture::{Fixture, Options, Stream, now, rest, until};

fn limited(limits: Limits) -> Fixture {
    Fixture::with(Options { limits, ..Options::default() })
}

fn bounds(change: impl FnOnce(&mut Bounds)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits.bounds);
    limits
}

/// Slow-loris: heads that never end, and connections that say nothing.
#[test]
fn clients_that_never_finish_a_request_are_disconnected() {
    let head = Duration::from_millis(300);
    let fixture = limited(bounds(|bounds| (bounds.head, bounds.connections) = (head, 8)));
    let slow: Vec<_> = (0..8)
        .map(|number| {
            let mut stream = TcpStream::connect(fixture.address).unwrap();
            if number % 2 == 0 {
                stream.write_all(b"POST /v1/locks/x/acquire HTTP/1.1\r\nHost: a").unwrap();
            }
            stream
        })
        .collect();
    let started = now();
    // All places are taken; this one is answered as soon as they have been ended.
    assert_eq!(fixture.get("/v1/locks").status, 200);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    for mut stream in slow {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut text = Vec::new();
        stream.read_to_end(&mut text).unwrap();
    }
}

#[test]
fn a_body_that_does_not_arrive_blocks_no_other_client() {
    let fixture = Fixture::memory();
    let mut stream = TcpStream::connect(fixture.address).unwrap();
    let host = fixture.address;
    write!(
        stream,
        "POST /v1/locks/x/acquire HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9\r\n\r\n"
    )
    .unwrap();
    assert_eq!(fixture.get("/v1/locks").status, 200);
    assert_eq!(fixture.holders("x"), 0);
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert!(rest(stream).contains(" 408 "));
}

#[test]
fn a_huge_body_is_refused_without_being_kept() {
    let fixture = Fixture::memory();
    let huge = "x".repeat(70_000);
    let refused = fixture.ask("POST", "/v1/locks/x/acquire", &[], &huge);
    assert_eq!(refused.refused(413), "too-large");
    let mut stream = TcpStream::connect(fixture.address).unwrap();
    let host = fixture.address;
    write!(
        stream,
        "POST /v1/locks/x/acquire HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    .unwrap();
    let chunk = format!("8000\r\n{}\r\n", "x".repeat(0x8000));
    // Refused after the third; the connection may be reset before all are written.
    let written = (0..1000).take_while(|_| stream.write_all(chunk.as_bytes()).is_ok()).count();
    assert!(written < 1000, "the connection was ended");
    let mut stream = TcpStream::connect(fixture.address).unwrap();
    let _ = write!(stream, "GET /{} HTTP/1.1\r\nHost: {host}\r\n\r\n", "x".repeat(40_000));
    let answer = rest(stream);
    assert!(answer.contains(" 431 ") || answer.contains(" 414 ") || answer.is_empty(), "{answer}");
    assert_eq!(fixture.get("/v1/locks").status, 200);
}

#[test]
fn too_many_waiting_requests_and_streams_are_refused() {
    let fixture = limited(Limits { waiting: 2, streams: 2, ..Limits::default() });
    let guard = block_on(fixture.tenure.lock("busy").acquire()).unwrap();
    let first: Vec<_> =
        (0..2).map(|_| fixture.send("POST", "/v1/locks/busy/acquire", &[], "")).collect();
    until("they wait", || fixture.waiting("busy") == 2);
    let refused = fixture.post("/v1/locks/busy/acquire", &json!({}));
    assert_eq!(refused.refused(503), "overloaded");
    assert_eq!(refused.header("retry-after"), Some("1"));
    drop(first);
    until("they have left", || fixture.waiting("busy") == 0);
    let streams: Vec<_> =
        (0..2).map(|_| Stream::open(fixture.send("GET", "/v1/state", &[], ""))).collect();
    assert_eq!(fixture.get("/v1/events").refused(503), "overloaded");
    drop(streams);
    until("there is room", || {
        let mut stream = fixture.send("GET", "/v1/state", &[], "");
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        &start == b"HTTP/1.1 200"
    });
    drop(guard);
}

/// A viewer that does not read is ended, and costs neither other viewers nor memory.
#[test]
fn a_viewer_that_does_not_read_is_disconnected() {
    let stalled = Duration::from_millis(500);
    let fixture = limited(bounds(|bounds| bounds.stalled = stalled));
    // More than the buffers of the kernel have room for.
    let note = "n".repeat(1000);
    let guards: Vec<_> = (0..5000)
        .map(|number| {
            let lock = fixture.tenure.lock(format!("lock/{number}").as_str()).note(&*note);
            block_on(lock.acquire()).unwrap()
        })
        .collect();
    let mut deaf = fixture.send("GET", "/v1/state", &[], "");
    // Otherwise the kernel might keep all of it.
    rustix::net::sockopt::set_socket_recv_buffer_size(&deaf, 4096).unwrap();
    let mut viewer = Stream::open(fixture.send("GET", "/v1/state", &[], ""));
    viewer.until_lock(guards.last().unwrap().name().as_str());
    let _last = block_on(fixture.tenure.lock("last").acquire()).unwrap();
    viewer.until_lock("last");
    // Longer than it may take to read something.
    until("time has passed", {
        let started = now();
        move || started.elapsed() > 3 * stalled
    });
    // What the kernel had taken for it arrives, and no more: all of it would be twice as much as this at least.
    rustix::net::sockopt::set_socket_recv_buffer_size(&deaf, 1 << 20).unwrap();
    deaf.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (mut some, mut received) = (vec![0; 1 << 16], 0);
    loop {
        match deaf.read(&mut some) {
            Ok(0) => break,
            Ok(count) => received += count,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("it is still connected: {error}"),
        }
        assert!(received < 2 << 20, "it still gets everything");
    }
}

/// A list is in memory until its client has read it.
#[test]
fn large_lists_that_are_not_read_are_bounded() {
    let fixture = limited(Limits { list_bytes: 3 << 20, ..Limits::default() });
    let note = "n".repeat(1000);
    let _guards: Vec<_> = (0..2000)
        .map(|number| {
            let lock = fixture.tenure.lock(format!("lock/{number}").as_str()).note(&*note);
            block_on(lock.acquire()).unwrap()
        })
        .collect();
    let path = "/v1/locks?limit=2000";
    let mut deaf = fixture.send("GET", path, &[], "");
    // Otherwise the kernel might keep all of it.
    rustix::net::sockopt::set_socket_recv_buffer_size(&deaf, 4096).unwrap();
    deaf.read_exact(&mut [0; 12]).unwrap();
    assert_eq!(fixture.get(path).refused(503), "overloaded");
    assert_eq!(fixture.get("/v1/locks?limit=10").status, 200, "a small one needs no room");
    drop(deaf);
    until("there is room", || fixture.get(path).status == 200);
}

/// So are all locks as a viewer gets them first: those that come at different moments get different ones.
#[test]
fn snapshots_that_are_not_read_are_bounded() {
    // The one that does not read stays, however long the others take.
    let patient = bounds(|bounds| bounds.stalled = Duration::from_secs(600));
    let fixture = limited(Limits { list_bytes: 3 << 20, ..patient });
    let note = "n".repeat(1000);
    let _guards: Vec<_> = (0..2000)
        .map(|number| {
            let lock = fixture.tenure.lock(format!("lock/{number}").as_str()).note(&*note);
            block_on(lock.acquire()).unwrap()
        })
        .collect();
    let first = || {
        let mut viewer = Stream::open(fixture.send("GET", "/v1/state", &[], ""));
        assert_eq!(viewer.next().unwrap().0, "hello");
        viewer.next()
    };
    let is_all = |data: &Value| data["locks"].as_array().is_some_and(|locks| locks.len() == 2000);
    until("all locks were read", || first().is_some_and(|(_, data)| is_all(&data)));
    let mut deaf = fixture.send("GET", "/v1/state", &[], "");
    // Otherwise the kernel might keep all of it.
    rustix::net::sockopt::set_socket_recv_buffer_size(&deaf, 4096).unwrap();
    // It has all locks, before another one asks.
    let mut read = Vec::new();
    while !read.ends_with(b"event: snapshot") {
        let mut byte = [0];
        deaf.read_exact(&mut byte).unwrap();
        read.extend(byte);
    }
    // Viewers of the same reading share what the first one has.
    until("there is no room for that of a later reading", || {
        let (event, data) = first().unwrap();
        assert!(event == "snapshot" || data["title"] == "overloaded", "{event}");
        event == "refused"
    });
    drop(deaf);
    until("there is room", || first().is_some_and(|(event, _)| event == "snapshot"));
}

/// A thousand viewers share what is read and written for them.
#[test]
fn a_thousand_streams_share_one_reading() {
    let fixture = Fixture::redis();
    let mut streams: Vec<_> =
        (0..1000).map(|_| Stream::open(fixture.send("GET", "/v1/state", &[], ""))).collect();
    for stream in &mut streams {
        stream.until("snapshot");
    }
    let started = now();
    let _guard = block_on(fixture.tenure.lock("seen").acquire()).unwrap();
    for stream in &mut streams {
        stream.until_lock("seen");
    }
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}
