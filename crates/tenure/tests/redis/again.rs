//! Calls that the engine has to send again must not undo calls that were sent since.

use tenure_testkit::Server;
use tenure_testkit::proxy::{Command, Direction, Proxy};
use tenure_testkit::resp::Reply;

use super::fixture::{LONG, command, connect, ms, pass, until};

fn is_call(command: &Command) -> bool {
    command.name() == "EVALSHA" || command.name() == "EVAL"
}

/// Rule 13, I8: a waiter's poll is in flight when the server loses its scripts. The lock is handed over to the
/// waiter, which releases it, and only then the engine learns that the poll was not performed. Sent again, it would
/// take a lock that no client releases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poll_that_comes_too_late_is_not_sent_again() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let slow = connect(&proxy.url()).await;
    let (holder, direct) = (connect(&server.url()).await, connect(&server.url()).await);
    // Far longer than the rest takes, and at most a second at the end.
    proxy.delay(is_call, Direction::Replies, ms(500));
    let held = holder.lock("x").acquire().await.unwrap();
    let lock = slow.lock("x");
    let waiter =
        tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() });
    until(&direct, "x", |info| info.waiting == 1).await;
    // The acquire is answered: the next call is the poll.
    pass(ms(700)).await;
    command(&server, &["SCRIPT", "FLUSH"]);
    provoke_poll(&server).await;
    pass(ms(100)).await;
    held.release().await.unwrap();
    waiter.await.unwrap();
    pass(ms(1_200)).await;
    let info = direct.lock("x").inspect().await.unwrap();
    assert!(info.is_free() && info.waiting == 0, "held without a holder: {info:?}");
    drop(direct.lock("x").acquire_within(LONG).await.unwrap());
}

/// Makes the only waiter poll, as a script does.
async fn provoke_poll(server: &Server) {
    let Reply::Array(Some(fields)) = command(server, &["HVALS", "tenure:{x}"]) else { panic!() };
    let fields: Vec<_> = fields.iter().filter_map(Reply::text).collect();
    let words: Vec<_> = fields.iter().flat_map(|field| field.split(' ')).collect();
    // Its client precedes its entry.
    let entry = words.iter().position(|word| is_entry(word)).expect("an entry");
    let (client, entry) = (words[entry - 1], words[entry]);
    let message = format!("sooner {entry} tenure:{{x}}");
    let receivers = command(server, &["PUBLISH", &format!("tenure:wake:{client}"), &message]);
    assert!(matches!(receivers, Reply::Integer(1)), "not subscribed: {words:?}");
}

fn is_entry(word: &str) -> bool {
    word.split_once(':').is_some_and(|(owner, _)| owner.len() == 32)
}
