//! The testkit's server is real, exclusive to its test, and ends with it.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tenure_testkit::resp::{Connection, Reply};
use tenure_testkit::{Flavor, Server, Tls};

fn ask(server: &Server, words: &[&str]) -> Reply {
    let mut connection = server.connect().expect("the server listens");
    connection.command(words).expect("the server answers")
}

fn ok() -> Reply {
    Reply::Simple("OK".into())
}

fn process(pid: u32) -> Pid {
    i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id is positive")
}

fn exists(pid: u32) -> bool {
    test_kill_process(process(pid)).is_ok()
}

#[test]
fn it_answers_on_a_socket() {
    let server = Server::start();
    assert_eq!(ask(&server, &["PING"]), Reply::Simple("PONG".into()));
    let socket = server.socket_path().unwrap();
    assert!(socket.starts_with(server.folder()) && socket.exists());
    assert_eq!(server.url(), format!("unix://{}", socket.display()));
    assert_eq!(server.port(), None);
}

#[test]
fn it_answers_on_a_port() {
    let server = Server::builder().on_port().start();
    assert_eq!(ask(&server, &["PING"]), Reply::Simple("PONG".into()));
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port().unwrap()));
    assert_eq!(server.socket_path(), None);
}

#[test]
fn it_speaks_tls_and_is_inspected_without() {
    let server = Server::builder().flavor(Flavor::Redis).tls(Tls::default()).start();
    assert_eq!(ask(&server, &["PING"]), Reply::Simple("PONG".into()));
    let (port, folder) = (server.port().unwrap(), server.folder().display());
    assert_eq!(server.url(), format!("rediss://127.0.0.1:{port}?ca={folder}/ca.pem"));
    let mut plain = Connection::tcp(([127, 0, 0, 1], port).into()).unwrap();
    assert!(plain.command(&["PING"]).is_err(), "its port speaks TLS alone");
}

#[test]
fn it_reports_its_version() {
    let version = Server::start().version();
    assert!(version.number >= (6, 2, 0), "{version}");
}

#[test]
fn it_is_of_the_kind_that_was_asked_for() {
    for flavor in Flavor::wanted() {
        let version = Server::builder().flavor(flavor).start().version().to_string();
        assert!(version.starts_with(&flavor.to_string()), "{version} instead of {flavor}");
    }
}

#[test]
fn it_is_redis_by_default() {
    if !Flavor::Redis.is_left_out() {
        assert_eq!(Server::start().version().flavor, Flavor::Redis);
    }
}

#[test]
fn two_servers_share_no_data() {
    let (one, two) = (Server::start(), Server::start());
    assert_ne!(one.pid(), two.pid());
    assert_eq!(ask(&one, &["SET", "name", "one"]), ok());
    assert!(ask(&two, &["GET", "name"]).is_nil());
    assert_eq!(ask(&one, &["GET", "name"]).text().as_deref(), Some("one"));
}

#[test]
fn many_servers_on_ports_start_at_once() {
    let threads: Vec<_> =
        (0..8).map(|_| std::thread::spawn(|| Server::builder().on_port().start())).collect();
    let servers: Vec<Server> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    for server in &servers {
        let info = ask(server, &["INFO", "server"]).text().unwrap();
        assert!(info.contains(&format!("process_id:{}\r\n", server.pid())));
    }
}

#[test]
fn it_outlives_the_thread_that_started_it() {
    let server = std::thread::spawn(Server::start).join().unwrap();
    assert_eq!(ask(&server, &["PING"]), Reply::Simple("PONG".into()));
}

#[test]
fn a_killed_server_forgets_and_starts_again_at_the_same_address() {
    for builder in [Server::builder(), Server::builder().on_port()] {
        let mut server = builder.start();
        let (url, pid) = (server.url(), server.pid());
        assert_eq!(ask(&server, &["SET", "name", "x"]), ok());
        server.kill();
        assert!(!exists(pid) && server.connect().is_err());
        server.restart();
        assert_eq!(server.url(), url);
        assert!(ask(&server, &["GET", "name"]).is_nil());
    }
}

#[test]
fn settings_are_passed_on_and_a_stopped_server_keeps_its_folder() {
    let mut server = Server::builder().persistent().start();
    assert_eq!(ask(&server, &["SET", "name", "x"]), ok());
    server.stop();
    assert!(server.log().contains("SIGTERM"), "it was asked to end: {}", server.log());
    server.restart();
    assert_eq!(ask(&server, &["GET", "name"]).text().as_deref(), Some("x"));
}

#[test]
fn a_server_that_does_not_listen_to_reason_is_killed_by_stop() {
    let mut server = Server::start();
    let pid = server.pid();
    // A frozen process does not act on SIGTERM.
    kill_process(process(pid), Signal::STOP).unwrap();
    server.stop();
    assert!(!exists(pid));
    assert!(!server.log().contains("SIGTERM"), "{}", server.log());
}

#[test]
fn a_dropped_server_leaves_no_process_and_no_folder() {
    let server = Server::start();
    let (pid, folder) = (server.pid(), server.folder().to_path_buf());
    assert!(exists(pid) && folder.exists());
    drop(server);
    assert!(!exists(pid) && !folder.exists());
}

#[test]
fn a_panicking_test_leaves_no_process_and_no_folder() {
    let (send, receive) = std::sync::mpsc::channel();
    let test = std::thread::spawn(move || {
        let server = Server::start();
        send.send((server.pid(), server.folder().to_path_buf())).unwrap();
        panic!("as a failing test would");
    });
    assert!(test.join().is_err());
    let (pid, folder): (u32, PathBuf) = receive.recv().unwrap();
    assert!(!exists(pid) && !folder.exists());
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let start = || Server::builder().arg("--no-such-setting", "1").start();
    let panic = std::thread::spawn(start).join().unwrap_err();
    let sentence = panic.downcast_ref::<String>().unwrap();
    assert!(sentence.contains("ended at its start"), "{sentence}");
    assert!(sentence.contains("no-such-setting"), "{sentence}");
}

#[test]
fn a_server_does_not_outlive_a_killed_test_process() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "holds_a_server_until_its_input_ends", "--ignored", "--nocapture"]);
    let mut test = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(test.stdout.take().unwrap()).lines();
    let socket = lines
        .map_while(Result::ok)
        .find_map(|line| line.split_once("listens on ").map(|(_, socket)| PathBuf::from(socket)));
    let socket = socket.expect("the other process prints its socket");
    let mut connection = Connection::unix(&socket).unwrap();
    test.kill().unwrap();
    test.wait().unwrap();
    // Its end closes the connection; a server that lived on would leave the read to time out.
    let end = connection.read().unwrap_err().kind();
    assert!(matches!(end, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{end}");
    wait_until_removed(socket.parent().unwrap());
}

#[test]
#[ignore = "the other half of a_server_does_not_outlive_a_killed_test_process, which runs it"]
fn holds_a_server_until_its_input_ends() {
    let server = Server::start();
    println!("listens on {}", server.socket_path().unwrap().display());
    let _ = std::io::stdin().read(&mut [0]);
}

#[expect(clippy::disallowed_methods, reason = "a folder that goes away sends no event")]
fn wait_until_removed(folder: &Path) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while folder.exists() {
        assert!(std::time::Instant::now() < end, "the folder was left behind");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}
