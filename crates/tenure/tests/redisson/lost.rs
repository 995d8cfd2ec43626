//! Lost requests, replies and messages: what Redisson's own client does not survive (R31).

use std::time::{Duration, Instant};

use tenure::blocking::block_on;
use tenure_testkit::proxy::ReplyLost;
use tenure_testkit::resp::Reply;
use tenure_testkit::{Proxy, Server};

use super::shared::{LONG, connect, pass};

fn entries(server: &Server, name: &str) -> Reply {
    server.connect().unwrap().command(&["HVALS", name]).unwrap()
}

/// I5: an acquire whose reply is lost is sent again, and counted once; one release frees the lock.
#[test]
fn an_acquire_whose_reply_is_lost_counts_once_for_redisson() {
    let server = Server::builder().on_port().start();
    let proxy = Proxy::start(&server);
    let tenure = connect(&proxy.url());
    drop(block_on(tenure.lock("warm").acquire()).unwrap());
    let rule = proxy.drop_reply(|command| command.has("x"), 1, ReplyLost::Cut);
    let guard = block_on(tenure.lock("x").acquire()).unwrap();
    assert_eq!(proxy.strikes(rule), 1, "a reply was lost");
    let Reply::Array(Some(values)) = entries(&server, "x") else { panic!("it is not held") };
    assert_eq!(values, [Reply::Bulk(Some(b"1".to_vec()))], "Redisson's own client would count 2");
    block_on(guard.release()).unwrap();
    assert!(matches!(entries(&server, "x"), Reply::Array(Some(left)) if left.is_empty()));
}

/// I7: a subscription that is lost is made again, and the waiters ask; scripts that are lost are sent again.
#[test]
fn lost_subscriptions_and_scripts_are_made_good() {
    let server = Server::builder().on_port().start();
    let (holder, waiter) = (connect(&server.url()), connect(&server.url()));
    let mut redis = server.connect().unwrap();
    for round in 0..3 {
        let guard = block_on(holder.lock("x").acquire()).unwrap();
        let lock = waiter.lock("x");
        let waiting = std::thread::spawn(move || block_on(lock.acquire_within(LONG)).unwrap());
        let mut until_heard = |is_heard: &str| {
            while redis.command(&["PUBSUB", "NUMSUB", "redisson_lock__channel:{x}"]).unwrap()
                != Reply::Array(Some(vec![
                    Reply::Bulk(Some(b"redisson_lock__channel:{x}".to_vec())),
                    Reply::Integer(is_heard.parse().unwrap()),
                ]))
            {
                pass(Duration::from_millis(5));
            }
        };
        until_heard("1");
        let mut other = server.connect().unwrap();
        other.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
        other.command(&["SCRIPT", "FLUSH"]).unwrap();
        until_heard("1");
        let begin = Instant::now();
        block_on(guard.release()).unwrap();
        drop(waiting.join().unwrap());
        let waited = begin.elapsed();
        assert!(waited < Duration::from_secs(1), "round {round}: {waited:?}");
    }
}

/// I7: a lost message costs bounded time, and not the rest of the lease.
#[test]
fn a_lost_message_costs_bounded_time() {
    let server = Server::builder().on_port().start();
    let tenure = connect(&server.url());
    let owner = "0f0f0f0f-0f0f-0f0f-0f0f-0f0f0f0f0f0f:77";
    let mut redis = server.connect().unwrap();
    redis.command(&["HSET", "x", owner, "1"]).unwrap();
    redis.command(&["PEXPIRE", "x", "60000"]).unwrap();
    let lock = tenure.lock("x");
    let waiter = std::thread::spawn(move || block_on(lock.acquire_within(LONG)).unwrap());
    pass(Duration::from_millis(500));
    let begin = Instant::now();
    // Without the message that Redisson publishes.
    redis.command(&["DEL", "x"]).unwrap();
    drop(waiter.join().unwrap());
    assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());
}
