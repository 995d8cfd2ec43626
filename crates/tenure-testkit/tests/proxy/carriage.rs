//! Without a fault the proxy is transparent.

use tenure_testkit::resp::Reply;
use tenure_testkit::{Flavor, Proxy, Server};

use super::fixture::{ask, assert_closed, ok, pong, send, start, text};

#[test]
fn it_carries_both_kinds_of_server_on_sockets_and_ports() {
    for flavor in Flavor::wanted() {
        for builder in [Server::builder(), Server::builder().on_port()] {
            let server = builder.flavor(flavor).start();
            let proxy = Proxy::start(&server);
            assert!(proxy.url().starts_with("redis://127.0.0.1:"), "{}", proxy.url());
            let mut client = proxy.connect().unwrap();
            assert_eq!(ask(&mut client, "SET key value"), ok());
            assert_eq!(ask(&mut client, "GET key"), text("value"));
        }
    }
}

#[test]
fn large_and_binary_values_arrive_as_they_were() {
    let (_server, proxy) = start();
    let mut client = proxy.connect().unwrap();
    // Every byte, and so every mark of the protocol, over a MiB.
    let large: Vec<u8> = (0..1 << 20).map(|index: u32| (index * 31 % 256) as u8).collect();
    for value in [&large[..], b"", b"\r\n", b"*1\r\n$4\r\nPING\r\n", b"\0\xff"] {
        assert_eq!(client.command(&[b"SET", &b"k\0\r\n"[..], value]).unwrap(), ok());
        let answer = client.command(&[&b"GET"[..], b"k\0\r\n"]).unwrap();
        assert!(answer == Reply::Bulk(Some(value.to_vec())), "{} bytes", value.len());
    }
}

#[test]
fn pipelined_commands_are_answered_in_order() {
    let (_server, proxy) = start();
    let mut client = proxy.connect().unwrap();
    for _ in 0..1000 {
        send(&mut client, "INCR n");
    }
    for n in 1..=1000 {
        assert_eq!(client.read().unwrap(), Reply::Integer(n));
    }
}

#[test]
fn many_clients_share_it() {
    let (_server, proxy) = start();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = proxy.connect().unwrap();
                (0..100).for_each(|_| drop(ask(&mut client, "INCR n")));
            });
        }
    });
    assert_eq!(ask(&mut proxy.connect().unwrap(), "GET n"), text("800"));
}

#[test]
fn refusals_transactions_and_nested_replies_pass() {
    let (_server, proxy) = start();
    let mut client = proxy.connect().unwrap();
    let refusal = ask(&mut client, "NONSENSE");
    assert!(matches!(&refusal, Reply::Error(text) if text.contains("unknown command")));
    assert_eq!(ask(&mut client, "MULTI"), ok());
    assert_eq!(ask(&mut client, "RPUSH list a b"), Reply::Simple("QUEUED".into()));
    assert_eq!(ask(&mut client, "LRANGE list 0 9"), Reply::Simple("QUEUED".into()));
    let list = Reply::Array(Some(vec![text("a"), text("b")]));
    let results = Reply::Array(Some(vec![Reply::Integer(2), list]));
    assert_eq!(ask(&mut client, "EXEC"), results);
    // The largest and deepest reply there is.
    let commands = ask(&mut client, "COMMAND");
    assert!(matches!(commands, Reply::Array(Some(list)) if list.len() > 200));
    assert_eq!(ask(&mut client, "PING"), pong());
}

#[test]
fn a_resp_3_connection_works() {
    let (_server, proxy) = start();
    let mut client = proxy.connect().unwrap();
    let Reply::Map(greeting) = ask(&mut client, "HELLO 3") else {
        panic!("RESP 3 greets with a map");
    };
    assert!(greeting.contains(&(text("proto"), Reply::Integer(3))));
    assert_eq!(ask(&mut client, "HSET hash field value"), Reply::Integer(1));
    let hash = Reply::Map(vec![(text("field"), text("value"))]);
    assert_eq!(ask(&mut client, "HGETALL hash"), hash);
    assert!(ask(&mut client, "GET nothing").is_nil());
    let truth = ask(&mut client, "EVAL redis.setresp(3);return{double=1.5} 0");
    assert_eq!(truth, Reply::Number("1.5".into()));
}

#[test]
fn what_it_does_not_understand_it_ends() {
    let (_server, proxy) = start();
    for words in ["MONITOR", "CLIENT REPLY OFF"] {
        let mut client = proxy.connect().unwrap();
        send(&mut client, words);
        assert_closed(&mut client);
    }
    assert_eq!(ask(&mut proxy.connect().unwrap(), "PING"), pong());
}
