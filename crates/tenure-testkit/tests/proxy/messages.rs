//! Messages to subscribers are unsolicited, so they are no replies.

use tenure_testkit::proxy::ReplyLost;
use tenure_testkit::resp::{Connection, Reply};
use tenure_testkit::{Proxy, Server};

use super::fixture::{ask, assert_closed, ok, pong, send, start, text};

fn message(channel: &str, body: &str) -> Vec<Reply> {
    vec![text("message"), text(channel), text(body)]
}

fn publish(server: &Server, channel: &str, body: &str) -> Reply {
    server.connect().unwrap().command(&["PUBLISH", channel, body]).unwrap()
}

/// A subscriber to the channel `news`, in RESP 2.
fn subscriber(proxy: &Proxy) -> Connection {
    let mut client = proxy.connect().unwrap();
    let confirmation = ask(&mut client, "SUBSCRIBE news");
    let expected = vec![text("subscribe"), text("news"), Reply::Integer(1)];
    assert_eq!(confirmation, Reply::Array(Some(expected)));
    client
}

#[test]
fn messages_pass_and_are_counted_apart() {
    let (server, proxy) = start();
    let (mut one, mut two) = (subscriber(&proxy), subscriber(&proxy));
    assert_eq!(publish(&server, "news", "first"), Reply::Integer(2));
    assert_eq!(publish(&server, "news", "second"), Reply::Integer(2));
    for client in [&mut one, &mut two] {
        assert_eq!(client.read().unwrap(), Reply::Array(Some(message("news", "first"))));
        assert_eq!(client.read().unwrap(), Reply::Array(Some(message("news", "second"))));
    }
    assert_eq!((proxy.messages(), proxy.requests().len()), (4, 2));
}

#[test]
fn lost_messages_are_lost_and_later_ones_pass() {
    let (server, proxy) = start();
    let mut client = subscriber(&proxy);
    proxy.drop_messages(true);
    publish(&server, "news", "lost");
    proxy.wait_until("it is lost", |proxy| proxy.messages() == 1);
    let pong = Reply::Array(Some(vec![text("pong"), text("")]));
    assert_eq!(ask(&mut client, "PING"), pong, "replies are no messages");
    proxy.drop_messages(false);
    publish(&server, "news", "heard");
    assert_eq!(client.read().unwrap(), Reply::Array(Some(message("news", "heard"))));
}

#[test]
fn messages_do_not_shift_the_replies() {
    let (server, proxy) = start();
    let _ = proxy.drop_reply(|command| command.name() == "UNSUBSCRIBE", 1, ReplyLost::Cut);
    let mut client = subscriber(&proxy);
    send(&mut client, "PSUBSCRIBE a* b*");
    (0..2).for_each(|_| drop(client.read().unwrap()));
    publish(&server, "news", "heard");
    publish(&server, "apple", "heard");
    assert_eq!(client.read().unwrap(), Reply::Array(Some(message("news", "heard"))));
    let by_pattern = vec![text("pmessage"), text("a*"), text("apple"), text("heard")];
    assert_eq!(client.read().unwrap(), Reply::Array(Some(by_pattern)));
    send(&mut client, "PUNSUBSCRIBE");
    (0..2).for_each(|_| drop(client.read().unwrap()));
    send(&mut client, "UNSUBSCRIBE");
    assert_closed(&mut client);
}

#[test]
fn after_its_last_subscription_a_connection_is_like_any_other() {
    let (_server, proxy) = start();
    let mut client = subscriber(&proxy);
    drop(ask(&mut client, "UNSUBSCRIBE"));
    assert_eq!(ask(&mut client, "RPUSH list message news x"), Reply::Integer(3));
    proxy.drop_messages(true);
    let list = Reply::Array(Some(message("news", "x")));
    assert_eq!(ask(&mut client, "LRANGE list 0 9"), list);
    assert_eq!(proxy.messages(), 0);
}

#[test]
fn a_lost_confirmation_cuts_the_subscriber() {
    let (_server, proxy) = start();
    let _ = proxy.drop_reply(|command| command.name() == "SSUBSCRIBE", 1, ReplyLost::Cut);
    let mut client = proxy.connect().unwrap();
    assert_eq!(ask(&mut client, "PING"), pong());
    send(&mut client, "SSUBSCRIBE news");
    assert_closed(&mut client);
}

#[test]
fn resp_3_pushes_are_messages_and_commands_go_on_beside_them() {
    let (server, proxy) = start();
    let _ = proxy.drop_reply(|command| command.has("lost"), 1, ReplyLost::Cut);
    let mut client = proxy.connect().unwrap();
    assert!(matches!(ask(&mut client, "HELLO 3"), Reply::Map(_)));
    let confirmation = vec![text("subscribe"), text("news"), Reply::Integer(1)];
    assert_eq!(ask(&mut client, "SUBSCRIBE news"), Reply::Push(confirmation));
    assert_eq!(ask(&mut client, "SET key value"), ok());
    publish(&server, "news", "heard");
    assert_eq!(client.read().unwrap(), Reply::Push(message("news", "heard")));
    proxy.drop_messages(true);
    publish(&server, "news", "lost");
    proxy.wait_until("it is lost", |proxy| proxy.messages() == 2);
    assert_eq!(ask(&mut client, "GET key"), text("value"));
    send(&mut client, "SET lost value");
    assert_closed(&mut client);
}
