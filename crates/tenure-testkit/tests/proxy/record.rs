//! What the proxy remembers of the commands it saw.

use super::fixture::{ask, is_set, send, start};

#[test]
fn commands_are_kept_in_order_with_their_words() {
    let (_server, proxy) = start();
    let mut client = proxy.connect().unwrap();
    ask(&mut client, "set key value");
    ask(&mut client, "GET key");
    let requests = proxy.requests();
    assert_eq!(requests.iter().map(|command| command.name()).collect::<Vec<_>>(), ["SET", "GET"]);
    assert_eq!(requests[0].args(), [b"key".to_vec(), b"value".to_vec()]);
    assert_eq!((proxy.seen(is_set), proxy.seen(|command| command.has("key"))), (1, 2));
    proxy.forget();
    assert_eq!((proxy.requests().len(), proxy.seen(is_set)), (0, 0));
}

#[test]
fn scripts_are_counted_by_their_own_names() {
    let (_server, proxy) = start();
    let mut client = proxy.connect().unwrap();
    client.command(&["EVAL", "-- One.\nreturn 1", "0"]).unwrap();
    let digest = client.command(&["SCRIPT", "LOAD", "return 2"]).unwrap().text().unwrap();
    ask(&mut client, &format!("EVALSHA {digest} 0"));
    ask(&mut client, &format!("evalsha {digest} 0"));
    let counts = proxy.counts();
    assert_eq!(counts["EVAL -- One."], 1);
    assert_eq!(counts[&format!("EVALSHA {digest}")], 2);
    assert_eq!(counts["SCRIPT"], 1);
    assert_eq!(proxy.seen(|command| command.script() == Some(digest.as_bytes())), 2);
}

#[test]
fn a_request_is_seen_even_if_it_gets_nowhere() {
    let (_server, proxy) = start();
    proxy.black_hole();
    let mut client = proxy.connect().unwrap();
    send(&mut client, "SET key value");
    proxy.wait_until("it was seen", |proxy| proxy.seen(is_set) == 1);
}
