//! Lost replies and lost requests.

use tenure_testkit::proxy::ReplyLost;

use super::fixture::{ask, assert_closed, assert_silent, is_set, ok, pong, send, start, value};

#[test]
fn a_lost_reply_cuts_the_connection_but_the_command_was_executed() {
    let (server, proxy) = start();
    let rule = proxy.drop_reply(is_set, 1, ReplyLost::Cut);
    let mut client = proxy.connect().unwrap();
    assert_eq!(ask(&mut client, "PING"), pong());
    send(&mut client, "SET key value");
    assert_closed(&mut client);
    assert_eq!(value(&server, "key").as_deref(), Some("value"));
    assert_eq!(proxy.strikes(rule), 1);
    assert_eq!(ask(&mut proxy.connect().unwrap(), "SET key again"), ok());
}

#[test]
fn a_lost_reply_can_leave_the_connection_open_and_silent() {
    let (server, proxy) = start();
    let mut other = proxy.connect().unwrap();
    assert_eq!(ask(&mut other, "PING"), pong());
    let _ = proxy.drop_reply(is_set, 1, ReplyLost::Silence);
    let mut client = proxy.connect().unwrap();
    send(&mut client, "SET key value");
    assert_silent(&mut client);
    assert_eq!(value(&server, "key").as_deref(), Some("value"));
    send(&mut client, "SET key later");
    assert_silent(&mut client);
    assert_eq!(value(&server, "key").as_deref(), Some("value"), "nothing passes any more");
    assert_eq!(ask(&mut other, "SET key other"), ok());
}

#[test]
fn the_nth_matching_reply_is_lost_counted_from_now_over_all_connections() {
    let (server, proxy) = start();
    let (mut one, mut two) = (proxy.connect().unwrap(), proxy.connect().unwrap());
    assert_eq!(ask(&mut one, "SET key 0"), ok());
    let rule = proxy.drop_reply(|command| command.has("key"), 3, ReplyLost::Cut);
    assert_eq!(ask(&mut one, "SET key 1"), ok());
    assert_eq!(ask(&mut one, "SET other x"), ok());
    assert_eq!(ask(&mut two, "SET key 2"), ok());
    assert_eq!(proxy.strikes(rule), 0);
    send(&mut one, "SET key 3");
    assert_closed(&mut one);
    assert_eq!(ask(&mut two, "SET key 4"), ok());
    assert_eq!((proxy.strikes(rule), value(&server, "key").as_deref()), (1, Some("4")));
}

#[test]
fn replies_before_a_lost_one_arrive() {
    for how in [ReplyLost::Cut, ReplyLost::Silence] {
        let (_server, proxy) = start();
        let _ = proxy.drop_reply(is_set, 2, how);
        let mut client = proxy.connect().unwrap();
        let large = format!("SET c {}", "3".repeat(1 << 24));
        for words in ["PING", "SET a 1", "PING", "SET b 2", &large] {
            send(&mut client, words);
        }
        let replies: Vec<_> = (0..3).map(|_| client.read().unwrap()).collect();
        assert_eq!(replies, [pong(), ok(), pong()]);
        match how {
            ReplyLost::Cut => assert_closed(&mut client),
            ReplyLost::Silence => assert_silent(&mut client),
        }
    }
}

#[test]
fn a_lost_request_never_reaches_the_server() {
    let (server, proxy) = start();
    let rule = proxy.drop_request(is_set, 1);
    let mut client = proxy.connect().unwrap();
    assert_eq!(ask(&mut client, "PING"), pong());
    send(&mut client, "SET key value");
    assert_closed(&mut client);
    assert_eq!(value(&server, "key"), None);
    assert_eq!((proxy.strikes(rule), proxy.seen(is_set)), (1, 1));
    assert_eq!(ask(&mut proxy.connect().unwrap(), "SET key again"), ok());
}

#[test]
fn requests_before_a_lost_one_are_answered_and_those_after_it_are_lost_too() {
    let (server, proxy) = start();
    let _ = proxy.drop_request(is_set, 3);
    let mut client = proxy.connect().unwrap();
    // The last is larger than any buffer on the way.
    let large = format!("SET d {}", "4".repeat(1 << 24));
    for words in ["SET a 1", "SET b 2", "SET c 3", &large] {
        send(&mut client, words);
    }
    assert_eq!([client.read().unwrap(), client.read().unwrap()], [ok(), ok()]);
    assert_closed(&mut client);
    let values = ["a", "b", "c", "d"].map(|key| value(&server, key));
    assert_eq!(values, [Some("1".into()), Some("2".into()), None, None]);
}

#[test]
fn an_ended_rule_strikes_no_more() {
    let (_server, proxy) = start();
    let mut client = proxy.connect().unwrap();
    let reply = proxy.drop_reply(is_set, 1, ReplyLost::Cut);
    let request = proxy.drop_request(is_set, 2);
    proxy.remove(reply);
    assert_eq!(ask(&mut client, "SET key 1"), ok());
    proxy.remove_all();
    assert_eq!(ask(&mut client, "SET key 2"), ok());
    assert_eq!((proxy.strikes(reply), proxy.strikes(request)), (0, 0));
}

#[test]
fn several_rules_count_on_their_own() {
    let (server, proxy) = start();
    let _ = proxy.drop_reply(|command| command.has("a"), 1, ReplyLost::Cut);
    let _ = proxy.drop_request(|command| command.has("b"), 1);
    for (words, is_there) in [("SET a 1", true), ("SET b 2", false)] {
        let mut client = proxy.connect().unwrap();
        send(&mut client, words);
        assert_closed(&mut client);
        assert_eq!(value(&server, &words[4..5]).is_some(), is_there, "{words}");
    }
}
