//! A server that forgets its scripts, between calls and in the middle of them.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tenure::Released;
use tenure_testkit::proxy::{Command, Direction};

use super::fixture::{LONG, behind_proxy, calls, say, until_free};

fn is_call(command: &Command) -> bool {
    command.name() == "EVALSHA"
}

fn is_text(command: &Command) -> bool {
    command.name() == "EVAL"
}

fn is_load(command: &Command) -> bool {
    command.name() == "SCRIPT"
}

/// A hundred locks are taken and released: a first call, and what gathers behind it as a batch. Each
/// call finds the scripts gone when it arrives; it is told them, and acts once (I5).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_script_was_forgotten_on_the_way_acts_once() {
    let (server, proxy, troubled, calm) = behind_proxy().await;
    let acquires = calls(&server, "acquire");
    let rule = proxy.hold(is_call, Direction::Requests);
    let names: Vec<_> = (0..100).map(|number| format!("batch/{number}")).collect();
    let tasks: Vec<_> = names
        .iter()
        .map(|name| {
            let lock = troubled.lock(name);
            tokio::spawn(async move { lock.try_acquire().await })
        })
        .collect();
    proxy.wait_until("the first call is on its way", |proxy| proxy.strikes(rule) >= 1);
    say(&server, &["SCRIPT", "FLUSH"]);
    proxy.forget();
    proxy.release();
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(task.await.unwrap().expect("no trouble").expect("nobody else holds it"));
    }
    assert_eq!(proxy.seen(is_text), 1, "told once");
    assert!(proxy.seen(&acquires) < names.len(), "they travel together");
    for (guard, name) in guards.iter().zip(&names) {
        let info = calm.lock(name).inspect().await.unwrap();
        assert_eq!((info.holders[0].entries, info.holders[0].fence), (1, guard.fence()), "{name}");
    }
    say(&server, &["SCRIPT", "FLUSH"]);
    drop(guards);
    assert!(troubled.flush(LONG).await);
    for name in &names {
        until_free(&calm, name).await;
    }
}

/// Forgotten again before it is called again: it comes with its text, and runs all the same. A release
/// reports no trouble. (It used to report NOSCRIPT.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_forgotten_twice_runs_all_the_same() {
    let (server, proxy, troubled, calm) = behind_proxy().await;
    let guard = troubled.lock("x").acquire().await.unwrap();
    let rule = proxy.hold(is_call, Direction::Requests);
    let task = tokio::spawn(guard.release());
    proxy.wait_until("it is called", |proxy| proxy.strikes(rule) == 1);
    say(&server, &["SCRIPT", "FLUSH"]);
    let again = proxy.hold(|it| is_call(it) || is_text(it), Direction::Requests);
    proxy.remove(rule);
    proxy.wait_until("it is called again", |proxy| proxy.strikes(again) == 1);
    say(&server, &["SCRIPT", "FLUSH"]);
    proxy.release();
    assert_eq!(task.await.unwrap().expect("no trouble"), Released::Now);
    until_free(&calm, "x").await;
}

/// The same for a user who may not send scripts: it is loaded as often as it takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_forgotten_twice_is_loaded_twice_where_it_cannot_be_sent() {
    let (server, proxy, troubled, calm) = behind_proxy().await;
    say(&server, &["ACL", "SETUSER", "default", "-eval"]);
    let acquires = calls(&server, "acquire");
    say(&server, &["SCRIPT", "FLUSH"]);
    proxy.forget();
    let calls = AtomicUsize::new(0);
    let is_second = move |it: &Command| acquires(it) && calls.fetch_add(1, SeqCst) == 1;
    let rule = proxy.hold(is_second, Direction::Requests);
    let lock = troubled.lock("x");
    let task = tokio::spawn(async move { lock.try_acquire().await });
    proxy.wait_until("it is called again", |proxy| proxy.strikes(rule) == 1);
    say(&server, &["SCRIPT", "FLUSH"]);
    proxy.release();
    let guard = task.await.unwrap().expect("no trouble").expect("nobody else holds it");
    assert_eq!(proxy.seen(is_load), 2, "told twice");
    assert_eq!(calm.lock("x").inspect().await.unwrap().holders[0].fence, guard.fence());
}
