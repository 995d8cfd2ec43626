//! A server that loses its scripts, between calls and during them.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tenure::{Owner, Released};
use tenure_testkit::Server;
use tenure_testkit::proxy::{Command, Direction};

use super::fixture::{LONG, behind_proxy, calls, command, connect, until_free};

fn is_call(command: &Command) -> bool {
    command.name() == "EVALSHA"
}

fn is_text(command: &Command) -> bool {
    command.name() == "EVAL"
}

fn is_load(command: &Command) -> bool {
    command.name() == "SCRIPT"
}

/// A hundred locks are taken and released: by a first call, and a batch of those gathered meanwhile. Each
/// call finds the scripts lost when it arrives; it is sent with the text, and acts once (I5).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_script_was_lost_meanwhile_acts_once() {
    let (server, proxy, proxied, direct) = behind_proxy().await;
    let acquires = calls(&server, "acquire");
    let rule = proxy.hold(is_call, Direction::Requests);
    let names: Vec<_> = (0..100).map(|number| format!("batch/{number}")).collect();
    let tasks: Vec<_> = names
        .iter()
        .map(|name| {
            let lock = proxied.lock(name);
            tokio::spawn(async move { lock.try_acquire().await })
        })
        .collect();
    proxy.wait_until("the first call is in flight", |proxy| proxy.strikes(rule) >= 1);
    command(&server, &["SCRIPT", "FLUSH"]);
    proxy.forget();
    proxy.release();
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(task.await.unwrap().expect("no error").expect("it is free"));
    }
    assert_eq!(proxy.seen(is_text), 1, "sent once");
    assert!(proxy.seen(&acquires) < names.len(), "they are batched");
    for (guard, name) in guards.iter().zip(&names) {
        let info = direct.lock(name).inspect().await.unwrap();
        assert_eq!((info.holders[0].entries, info.holders[0].fence), (1, guard.fence()), "{name}");
    }
    command(&server, &["SCRIPT", "FLUSH"]);
    drop(guards);
    assert!(proxied.flush(LONG).await);
    for name in &names {
        until_free(&direct, name).await;
    }
}

/// Lost again before it is called again: it is sent with its text, and runs all the same. A release
/// reports no error. (It used to report NOSCRIPT.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_lost_twice_runs_all_the_same() {
    let (server, proxy, proxied, direct) = behind_proxy().await;
    let guard = proxied.lock("x").acquire().await.unwrap();
    let rule = proxy.hold(is_call, Direction::Requests);
    let task = tokio::spawn(guard.release());
    proxy.wait_until("it is called", |proxy| proxy.strikes(rule) == 1);
    command(&server, &["SCRIPT", "FLUSH"]);
    let again = proxy.hold(|it| is_call(it) || is_text(it), Direction::Requests);
    proxy.remove(rule);
    proxy.wait_until("it is called again", |proxy| proxy.strikes(again) == 1);
    command(&server, &["SCRIPT", "FLUSH"]);
    proxy.release();
    assert_eq!(task.await.unwrap().expect("no error"), Released::Now);
    until_free(&direct, "x").await;
}

/// The same for a user who may not run EVAL: it is loaded again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_lost_twice_is_loaded_twice_for_a_user_without_eval() {
    let (server, proxy, proxied, direct) = behind_proxy().await;
    command(&server, &["ACL", "SETUSER", "default", "-eval"]);
    let acquires = calls(&server, "acquire");
    command(&server, &["SCRIPT", "FLUSH"]);
    proxy.forget();
    let calls = AtomicUsize::new(0);
    let is_second = move |it: &Command| acquires(it) && calls.fetch_add(1, SeqCst) == 1;
    let rule = proxy.hold(is_second, Direction::Requests);
    let lock = proxied.lock("x");
    let task = tokio::spawn(async move { lock.try_acquire().await });
    proxy.wait_until("it is called again", |proxy| proxy.strikes(rule) == 1);
    command(&server, &["SCRIPT", "FLUSH"]);
    proxy.release();
    let guard = task.await.unwrap().expect("no error").expect("it is free");
    assert_eq!(proxy.seen(is_load), 2, "loaded twice");
    assert_eq!(direct.lock("x").inspect().await.unwrap().holders[0].fence, guard.fence());
}

/// Rule 13: the server has lost all its scripts. A client still finds free what it released before, whichever of its
/// scripts it sends first.
#[tokio::test]
async fn a_released_lock_is_free_though_the_scripts_were_lost() {
    let server = Server::start();
    let tenure = connect(&server.url()).await;
    for another_is_first in [false, true, false, true] {
        let guard = tenure.lock("x").acquire().await.unwrap();
        command(&server, &["SCRIPT", "FLUSH"]);
        let another = match another_is_first {
            true => Some(tenure.lock("y").acquire().await.unwrap()),
            false => None,
        };
        drop(guard);
        let again = tenure.lock("x").try_acquire().await.unwrap();
        assert!(again.is_some(), "{another_is_first}");
        drop((again, another));
        assert!(tenure.flush(LONG).await);
    }
}

/// The same for one owner: a reader that has released may write.
#[tokio::test]
async fn a_reader_that_released_may_write_though_the_scripts_were_lost() {
    let server = Server::start();
    let tenure = connect(&server.url()).await;
    let (lock, owner) = (tenure.rwlock("z"), Owner::new());
    owner
        .scope(async {
            let reader = lock.read().await.unwrap();
            command(&server, &["SCRIPT", "FLUSH"]);
            let another = tenure.lock("y").acquire().await.unwrap();
            drop(reader);
            drop(lock.write().await.unwrap());
            drop(another);
        })
        .await;
}
