//! Replies are read by a thread that waits, a task on the callers' runtime, or the I/O thread: in each case, every
//! caller is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tenure::blocking::block_on;
use tenure::{Error, Released, Tenure};
use tenure_testkit::Server;
use tenure_testkit::proxy::{Direction, Proxy};

use super::fixture::{LONG, command, connect, ms, pass};

fn client(server: &Server) -> Tenure {
    block_on(connect(&server.url()))
}

/// I7: threads with locks of their own, and threads that contend for one; one of them reads, and which one
/// changes all the time.
#[test]
fn many_threads_are_all_answered() {
    let server = Server::start();
    let tenure = client(&server);
    let shared = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..12)
        .map(|number| {
            let (tenure, shared) = (tenure.clone(), shared.clone());
            thread::spawn(move || {
                let name = if number % 3 == 0 { "shared".to_owned() } else { number.to_string() };
                let lock = tenure.lock(name).blocking();
                for _ in 0..150 {
                    let guard = lock.acquire_within(LONG).unwrap();
                    if number % 3 == 0 {
                        let seen = shared.load(Ordering::Relaxed);
                        thread::yield_now();
                        shared.store(seen + 1, Ordering::Relaxed);
                    }
                    // Some threads wait for the answer, some do not.
                    if number % 2 == 0 {
                        assert_eq!(guard.release().unwrap(), Released::Now);
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(shared.load(Ordering::Relaxed), 4 * 150);
    assert!(block_on(tenure.flush(LONG)));
}

/// R8: a thread that reads times out, and one that does not read is served meanwhile.
#[test]
fn a_thread_that_reads_times_out() {
    let server = Server::start();
    let (tenure, other) = (client(&server), client(&server));
    let held = other.lock("x").blocking().acquire().unwrap();
    let waiting = thread::spawn({
        let lock = tenure.lock("x").blocking();
        move || lock.acquire_within(ms(1_000))
    });
    until_waiting(&other);
    for _ in 0..50 {
        assert_eq!(
            tenure.lock("y").blocking().acquire().unwrap().release().unwrap(),
            Released::Now
        );
    }
    let error = waiting.join().unwrap().unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
    held.release().unwrap();
}

/// I9: a thread that waits for a wake-up also reads messages for other threads: a loss is reported at once.
#[test]
fn a_thread_that_reads_delivers_messages_for_others() {
    let server = Server::start();
    let (tenure, other) = (client(&server), client(&server));
    let kept = other.lock("x").blocking().acquire().unwrap();
    let held = tenure.lock("y").blocking().acquire().unwrap();
    let waiting = thread::spawn({
        let lock = tenure.lock("x").blocking();
        move || lock.acquire_within(LONG).unwrap()
    });
    until_waiting(&other);
    block_on(other.lock("y").force_release("a test")).unwrap();
    // Long before its next renewal, after ten seconds.
    let signal = held.lost_signal();
    let notified = thread::spawn(move || block_on(signal.lost()));
    for _ in 0..50 {
        pause(ms(100));
        if notified.is_finished() {
            break;
        }
    }
    assert!(notified.is_finished(), "not notified");
    kept.release().unwrap();
    drop(waiting.join().unwrap());
}

fn until_waiting(tenure: &Tenure) {
    while tenure.lock("x").blocking().inspect().unwrap().waiting == 0 {
        pause(ms(2));
    }
}

/// A pause of a thread, without a runtime.
fn pause(time: Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(pass(time));
}

/// I6: the connection is cut while a thread reads from it. Its call fails, and the next call succeeds.
#[test]
fn a_thread_that_reads_is_told_of_a_lost_connection() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let tenure = block_on(connect(&proxy.url()));
    let lock = tenure.lock("x").blocking();
    for _ in 0..5 {
        let guard = lock.acquire_within(LONG).unwrap();
        // It waits for an answer that never arrives, until the connection ends.
        let hold = proxy.hold(|command| command.name() == "EVALSHA", Direction::Replies);
        let releasing = thread::spawn(move || guard.release());
        proxy.wait_until("the release is held", |proxy| proxy.strikes(hold) > 0);
        proxy.cut();
        proxy.remove(hold);
        let released = releasing.join().unwrap();
        assert!(matches!(released, Ok(_) | Err(Error::Unknown { .. })), "{released:?}");
    }
    let held = lock.acquire_within(LONG).unwrap();
    command(&server, &["CLIENT", "KILL", "TYPE", "normal"]);
    command(&server, &["CLIENT", "KILL", "TYPE", "pubsub"]);
    let released = held.release();
    assert!(matches!(released, Ok(Released::Now) | Err(_)), "{released:?}");
    drop(lock.acquire_within(LONG).unwrap());
}

/// The reply to a call that no thread waits for is read all the same, and later calls are sent.
#[test]
fn a_reply_that_no_thread_waits_for_is_read() {
    let server = Server::start();
    let (tenure, other) = (client(&server), client(&server));
    for round in 0..20 {
        let names: Vec<_> = (0..40).map(|number| format!("{round}/{number}")).collect();
        let locks = names.iter().map(|name| tenure.lock(name).blocking());
        let guards: Vec<_> = locks.map(|lock| lock.acquire().unwrap()).collect();
        drop(guards);
        for name in &names {
            drop(other.lock(name).blocking().acquire_within(LONG).unwrap());
        }
    }
}

fn runtime(workers: usize) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(workers).enable_all().build().unwrap()
}

async fn connect_here(server: &Server) -> Tenure {
    Tenure::builder().read_on_this_runtime().connect(&server.url()).await.unwrap()
}

/// R25: tasks are served on their own runtime; a thread without a runtime is served as well.
#[test]
fn replies_are_read_on_the_callers_runtime() {
    let server = Server::start();
    let runtime = runtime(2);
    let tenure = runtime.block_on(connect_here(&server));
    let tasks: Vec<_> = (0..32)
        .map(|number| {
            let lock = tenure.lock((number % 8).to_string());
            runtime.spawn(async move {
                for _ in 0..50 {
                    lock.acquire_within(LONG).await.unwrap().release().await.unwrap();
                }
            })
        })
        .collect();
    for _ in 0..200 {
        drop(tenure.lock("7").blocking().acquire_within(LONG).unwrap());
    }
    tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
}

/// I9: the runtime that reads is blocked, and then dropped. Leases are renewed, losses reported, and threads and
/// other runtimes served.
#[test]
fn a_runtime_that_does_not_run_delays_no_caller_for_long() {
    let server = Server::start();
    let runtime = runtime(1);
    let tenure = runtime.block_on(connect_here(&server));
    let held = tenure.lock("held").lease(ms(1_500)).blocking().acquire().unwrap();
    let (go_on, blocked) = std::sync::mpsc::channel::<()>();
    let blocking = runtime.spawn(async move { blocked.recv().unwrap_err() });
    for number in 0..10 {
        let lock = tenure.lock(number.to_string());
        block_on(async { lock.acquire_within(LONG).await.unwrap().release().await.unwrap() });
        drop(lock.blocking().acquire_within(LONG).unwrap());
    }
    pause(ms(3_000));
    assert!(!held.is_lost(), "renewed all the same");
    drop(go_on);
    let _over = runtime.block_on(blocking).unwrap();
    drop(runtime);
    for number in 0..10 {
        let lock = tenure.lock(number.to_string());
        block_on(async { lock.acquire_within(LONG).await.unwrap().release().await.unwrap() });
    }
    assert_eq!(held.release().unwrap(), Released::Now);
}

/// The error names the remedy.
#[test]
fn a_runtime_without_io_is_refused() {
    let server = Server::start();
    let url = server.url();
    let connect = || Tenure::builder().read_on_this_runtime().connect(&url);
    let none = block_on(connect()).unwrap_err().to_string();
    assert!(none.contains("on a tokio runtime"), "{none}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let without = runtime.block_on(connect()).unwrap_err().to_string();
    assert!(without.contains("call `enable_io` or `enable_all`"), "{without}");
}
