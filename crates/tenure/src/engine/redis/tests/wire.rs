//! The end of a connection, and the outcome of the commands on it.

use std::future::pending;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};

use rustix::process::{Pid, Signal, kill_process};
use tenure_testkit::Server;

use super::super::address::Address;
use super::super::resp::{Command, Reply};
use super::super::stream;
use super::super::trip::RESPONSE_TIME;
use super::super::wire::Wire;
use super::*;

/// A connection to a listener of the test, and its other end.
async fn connect() -> (Address, Arc<Wire>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = Address::parse(&format!("redis://127.0.0.1:{port}")).unwrap();
    let wire = Arc::new(Wire::new(
        stream::open(&address.master.locate(&Default::default()).await.unwrap()).await.unwrap(),
        Arc::default(),
    ));
    (address, wire, listener.accept().unwrap().0)
}

fn send(wire: &Arc<Wire>, command: &Command) -> Receiver<Result<Reply, StoreError>> {
    let (done, answer) = channel();
    wire.send(command, Box::new(move |result| drop(done.send(result))));
    answer
}

/// Reads until the end; returns how many bytes, and how it ended.
fn drain(mut peer: TcpStream) -> (usize, Result<usize, ErrorKind>) {
    let (mut bytes, mut count) = (vec![0; 65_536], 0);
    peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    loop {
        match peer.read(&mut bytes) {
            Ok(0) => return (count, Ok(0)),
            Ok(read) => count += read,
            Err(error) => return (count, Err(error.kind())),
        }
    }
}

/// I6: a server reads nothing, and its answer is overdue. The bytes that it has not read must not reach it later, when
/// their caller has been answered.
#[tokio::test]
async fn unsent_bytes_are_discarded_when_an_answer_is_overdue() {
    let (address, wire, peer) = connect().await;
    let much = vec![b'x'; 32 * 1024 * 1024];
    let answer = send(&wire, &Command::new("SET").arg("key").arg(&much));
    let loss = tokio::time::timeout(
        RESPONSE_TIME * 5,
        wire.carry(&address.master.locate(&Default::default()).await.unwrap(), pending()),
    )
    .await;
    assert!(loss.expect("the connection is closed").why.starts_with("no answer from"));
    assert!(answer.recv().unwrap().unwrap_err().is_unknown());
    let late = send(&wire, &Command::new("GET"));
    assert!(!late.recv().unwrap().unwrap_err().is_unknown(), "never sent: the outcome is known");
    drop(wire);
    let (count, end) = drain(peer);
    assert!(count < much.len(), "all of it was received");
    assert_eq!(end, Err(ErrorKind::ConnectionReset));
}

/// A client that is closed ends its connection regularly, and the server reads the last commands.
#[tokio::test]
async fn a_connection_that_is_closed_regularly_is_not_reset() {
    let (_, wire, peer) = connect().await;
    let answer = send(&wire, &Command::new("DEL").arg("key"));
    drop(wire);
    assert!(answer.recv().unwrap().unwrap_err().is_unknown(), "I6: its effect is unknown");
    assert_eq!(drain(peer), (22, Ok(0)));
}

/// A reply without a request means that requests and replies are out of step.
#[tokio::test]
async fn a_reply_without_a_request_ends_the_connection() {
    let (address, wire, mut peer) = connect().await;
    peer.write_all(b"-ERR max number of clients reached\r\n").unwrap();
    let loss =
        wire.carry(&address.master.locate(&Default::default()).await.unwrap(), pending()).await;
    let expected = "the server sent an error without a request: ERR max number of clients reached";
    assert_eq!(loss.why, expected);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn request(name: &str) -> AcquireRequest {
    super::answers::acquire(name, Owner::new())
}

/// I6: when the I/O thread ends, the outcome of calls in flight is unknown, later calls are refused at once, and the
/// health reports it. (They used to hang, and the health reported no error.)
#[test]
fn an_io_thread_that_has_ended_answers_everything() {
    let server = Server::start();
    let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap()).unwrap();
    let runtime = runtime();
    let mut engine = runtime.block_on(RedisEngine::connect(&server.url())).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    // More than one call carries: the rest is gathered, and must be answered as well.
    let in_flight: Vec<_> = (0..300).map(|it| engine.acquire(request(&format!("{it}")))).collect();
    engine._running = Some(oneshot::channel().0);
    for (number, answer) in in_flight.into_iter().enumerate() {
        let answered = async { tokio::time::timeout(Duration::from_secs(20), answer).await };
        let error = runtime.block_on(answered).expect("it is answered").unwrap_err();
        assert!(number > 0 || error.is_unknown(), "{error}");
    }
    kill_process(pid, Signal::CONT).unwrap();
    // Its tasks end one after the other: until then, the outcome of calls on their connections is unknown.
    while engine.health().links.iter().any(|link| link.is_up) {
        std::thread::yield_now();
    }
    let refused = runtime.block_on(engine.acquire(request("x"))).unwrap_err();
    assert!(!refused.is_unknown(), "{refused}");
    let renewal = Renewal {
        name: LockName::new("x").unwrap(),
        entry: Entry { owner: Owner::new(), number: 0 },
        lease: Lease::DEFAULT,
        commit: None,
    };
    let renewed = runtime.block_on(engine.renew(vec![renewal])).unwrap();
    assert!(!renewed[0].as_ref().unwrap_err().is_unknown(), "{renewed:?}");
    for link in engine.health().links {
        assert!(!link.is_up && link.error.unwrap().contains("thread has ended"), "{}", link.link);
    }
}

#[test]
fn a_task_of_the_io_thread_that_panics_is_started_again() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    runtime().block_on(thread::lasting(move || {
        let run = counted.fetch_add(1, SeqCst);
        async move { assert!(run >= 2, "the panic of this test") }
    }));
    assert_eq!(count.load(SeqCst), 3);
}
