//! Delayed and held messages.

use std::time::Duration;

use tenure_testkit::proxy::Direction::{Replies, Requests};
use tenure_testkit::proxy::ReplyLost;
use tenure_testkit::resp::Reply;

use super::fixture::{
    ask, assert_closed, assert_silent, is_set, ok, pong, send, start, timed, value,
};

const DELAY: Duration = Duration::from_millis(300);

#[test]
fn a_delayed_request_arrives_late_and_nothing_overtakes_it() {
    let (server, proxy) = start();
    let rule = proxy.delay(is_set, Requests, DELAY);
    let mut client = proxy.connect().unwrap();
    let ((), late) = timed(|| {
        send(&mut client, "SET key value");
        send(&mut client, "PING");
        proxy.wait_until("the request is delayed", |proxy| proxy.strikes(rule) == 1);
        assert_eq!(value(&server, "key"), None);
        assert_eq!([client.read().unwrap(), client.read().unwrap()], [ok(), pong()]);
    });
    assert!(late >= DELAY, "{late:?}");
    assert_eq!(value(&server, "key").as_deref(), Some("value"));
}

#[test]
fn a_delayed_reply_arrives_late_but_its_command_was_executed_at_once() {
    let (server, proxy) = start();
    let rule = proxy.delay(is_set, Replies, DELAY);
    let mut client = proxy.connect().unwrap();
    let ((), late) = timed(|| {
        send(&mut client, "SET key value");
        send(&mut client, "PING");
        proxy.wait_until("the reply is delayed", |proxy| proxy.strikes(rule) == 1);
        assert_eq!(value(&server, "key").as_deref(), Some("value"));
        assert_eq!([client.read().unwrap(), client.read().unwrap()], [ok(), pong()]);
    });
    assert!(late >= DELAY, "{late:?}");
}

#[test]
fn a_delay_is_that_of_a_wire_not_of_a_queue() {
    let (_server, proxy) = start();
    let _ = proxy.delay(is_set, Requests, DELAY);
    let mut client = proxy.connect().unwrap();
    let ((), all) = timed(|| {
        (0..50).for_each(|n| send(&mut client, &format!("SET key {n}")));
        (0..50).for_each(|_| assert_eq!(client.read().unwrap(), ok()));
    });
    assert!(all >= DELAY && all < 20 * DELAY, "one after the other it would be 15 s: {all:?}");
}

#[test]
fn a_delay_of_one_connection_is_no_delay_of_another() {
    let (server, proxy) = start();
    let rule = proxy.delay(is_set, Requests, Duration::from_secs(3600));
    let mut client = proxy.connect().unwrap();
    send(&mut client, "SET key value");
    proxy.wait_until("the request is delayed", |proxy| proxy.strikes(rule) == 1);
    assert_eq!(ask(&mut proxy.connect().unwrap(), "PING"), pong());
    assert_eq!(value(&server, "key"), None);
}

#[test]
fn a_held_request_waits_for_its_release_and_so_does_what_follows() {
    let (server, proxy) = start();
    let rule = proxy.hold(is_set, Requests);
    let mut client = proxy.connect().unwrap();
    for words in ["PING", "SET key value", "PING"] {
        send(&mut client, words);
    }
    assert_eq!(client.read().unwrap(), pong());
    proxy.wait_until("the request is held", |proxy| proxy.strikes(rule) == 1);
    assert_silent(&mut client);
    assert_eq!(value(&server, "key"), None);
    assert_eq!(ask(&mut proxy.connect().unwrap(), "PING"), pong(), "others go on");
    proxy.release();
    assert_eq!([client.read().unwrap(), client.read().unwrap()], [ok(), pong()]);
    assert_eq!(ask(&mut client, "SET key again"), ok(), "no longer held");
}

#[test]
fn a_held_reply_waits_while_its_command_was_executed() {
    let (server, proxy) = start();
    let rule = proxy.hold(is_set, Replies);
    let mut client = proxy.connect().unwrap();
    send(&mut client, "SET key value");
    proxy.wait_until("the reply is held", |proxy| proxy.strikes(rule) == 1);
    assert_eq!(value(&server, "key").as_deref(), Some("value"));
    assert_silent(&mut client);
    proxy.remove(rule);
    assert_eq!(client.read().unwrap(), ok());
}

#[test]
fn a_held_request_is_executed_even_if_its_client_has_left() {
    let (server, proxy) = start();
    let rule = proxy.hold(is_set, Requests);
    let mut client = proxy.connect().unwrap();
    send(&mut client, "SET key value");
    proxy.wait_until("the request is held", |proxy| proxy.strikes(rule) == 1);
    drop(client);
    proxy.wait_until("the client has left", |proxy| proxy.connections() == 0);
    assert_eq!(value(&server, "key"), None);
    proxy.release();
    proxy.wait_until("the request has arrived", |_| value(&server, "key").is_some());
}

#[test]
fn what_is_held_on_a_cut_connection_is_lost() {
    let (server, proxy) = start();
    let rule = proxy.hold(is_set, Requests);
    let mut client = proxy.connect().unwrap();
    send(&mut client, "SET key value");
    proxy.wait_until("the request is held", |proxy| proxy.strikes(rule) == 1);
    proxy.cut();
    assert_closed(&mut client);
    proxy.release();
    assert_eq!(ask(&mut proxy.connect().unwrap(), "GET key"), Reply::Bulk(None));
    assert_eq!(value(&server, "key"), None);
}

#[test]
fn a_reply_can_be_held_and_then_lost() {
    let (server, proxy) = start();
    let held = proxy.hold(is_set, Replies);
    let _ = proxy.drop_reply(is_set, 1, ReplyLost::Cut);
    let mut client = proxy.connect().unwrap();
    send(&mut client, "SET key value");
    proxy.wait_until("the reply is held", |proxy| proxy.strikes(held) == 1);
    assert_silent(&mut client);
    proxy.release();
    assert_closed(&mut client);
    assert_eq!(value(&server, "key").as_deref(), Some("value"));
}
