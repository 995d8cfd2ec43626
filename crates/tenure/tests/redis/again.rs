//! Calls that the engine has to send again: what was sent since must not be undone by them.

use tenure_testkit::Server;
use tenure_testkit::proxy::{Command, Direction, Proxy};
use tenure_testkit::resp::Reply;

use super::fixture::{LONG, connect, ms, pass, say, until};

fn is_call(command: &Command) -> bool {
    command.name() == "EVALSHA" || command.name() == "EVAL"
}

/// Rule 13, I8: a waiter's question is on its way when the server forgets its scripts. The lock is handed over
/// to the waiter, which releases it, and only then the engine hears that the question was not performed. Sent
/// again, it would take the lock for nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_comes_too_late_is_not_sent_again() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let slow = connect(&proxy.url()).await;
    let (holder, calm) = (connect(&server.url()).await, connect(&server.url()).await);
    // Far longer than the rest takes, and no more than a second at the end.
    proxy.delay(is_call, Direction::Replies, ms(500));
    let held = holder.lock("x").acquire().await.unwrap();
    let lock = slow.lock("x");
    let waiter =
        tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() });
    until(&calm, "x", |info| info.waiting == 1).await;
    // The answer to the acquire is there: the next call is the question.
    pass(ms(700)).await;
    say(&server, &["SCRIPT", "FLUSH"]);
    ask(&server).await;
    pass(ms(100)).await;
    held.release().await.unwrap();
    waiter.await.unwrap();
    pass(ms(1_200)).await;
    let info = calm.lock("x").inspect().await.unwrap();
    assert!(info.is_free() && info.waiting == 0, "held for nobody: {info:?}");
    drop(calm.lock("x").acquire_within(LONG).await.unwrap());
}

/// Makes the only waiter ask, as a script does.
async fn ask(server: &Server) {
    let Reply::Array(Some(fields)) = say(server, &["HVALS", "tenure:{x}"]) else { panic!() };
    let fields: Vec<_> = fields.iter().filter_map(Reply::text).collect();
    let words: Vec<_> = fields.iter().flat_map(|field| field.split(' ')).collect();
    // Its client and its entry stand beside each other.
    let entry = words.iter().position(|word| is_entry(word)).expect("an entry");
    let (client, entry) = (words[entry - 1], words[entry]);
    let message = format!("sooner {entry} tenure:{{x}}");
    let heard = say(server, &["PUBLISH", &format!("tenure:wake:{client}"), &message]);
    assert!(matches!(heard, Reply::Integer(1)), "nobody listens: {words:?}");
}

fn is_entry(word: &str) -> bool {
    word.split_once(':').is_some_and(|(owner, _)| owner.len() == 32)
}
