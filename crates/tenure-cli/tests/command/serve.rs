//! `tenure serve`, as an operator starts it.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, ChildStderr, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tenure_testkit::{Server, Tls};

use crate::fixture::{Fixture, tenure, until};

const TOKEN: &str = "0123456789abcdef-full";

/// A server that ends with its test.
struct Serving {
    child: Child,
    address: String,
    talk: BufReader<ChildStderr>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(mut command: Command) -> Serving {
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut talk = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    talk.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("tenure: serving ").expect(&line);
    let (_, address) = address.split_once("://").unwrap();
    let address = address.trim_end_matches('/').to_owned();
    Serving { child, address, talk }
}

fn ask(address: &str, method: &str, path: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_lock_of_a_http_client_is_one_of_the_command_too() {
    for fixture in [Fixture::local(), Fixture::redis()] {
        let serving = serve(fixture.tenure(&["serve", "--listen", "127.0.0.1:0"]));
        let answer = ask(&serving.address, "POST", "/v1/locks/deploy/acquire", "", "");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let shown = fixture.json(&["show", "--json", "deploy"]);
        assert_eq!(shown["holders"][0]["about"]["program"], "tenure serve");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let granted: serde_json::Value = serde_json::from_str(body).unwrap();
        // The handle is one of the command, too.
        fixture.said(&["release", granted["handle"].as_str().unwrap()]);
        assert_eq!(fixture.json(&["show", "--json", "deploy"])["holding"], 0);
    }
}

/// What a server says that does not start because it is called in a wrong way.
fn refused(command: &mut Command) -> String {
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut line = BufReader::new(child.stderr.take().unwrap());
    // One that does start says so in one line, and would go on.
    line.read_line(&mut said).unwrap();
    if said.contains("serving") {
        child.kill().unwrap();
    }
    line.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(64), "{said}");
    said
}

#[test]
fn other_machines_need_a_token_and_tls() {
    let refused = |arguments: &[&str]| refused(tenure(arguments).env("TENURE_URL", "memory:"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, TOKEN).unwrap();
    let file = file.to_str().unwrap();
    let open = ["serve", "--listen", "0.0.0.0:0"];
    assert!(refused(&open).contains("--token-file"));
    // The proxy makes this machine's address one that others reach.
    let behind = refused(&["serve", "--listen", "127.0.0.1:0", "--behind-proxy"]);
    assert!(behind.contains("--token-file"), "{behind}");
    let with_token = [&open[..], &["--token-file", file]].concat();
    assert!(refused(&with_token).contains("--behind-proxy"));
    std::fs::write(file, "short").unwrap();
    let short = refused(&with_token);
    assert!(short.contains("16 printable") && !short.contains("short\n"), "{short}");
    std::fs::write(file, TOKEN).unwrap();
    let mut command = tenure(&[&with_token[..], &["--behind-proxy"]].concat());
    command.env("TENURE_URL", "memory:");
    let serving = serve(command);
    let port = serving.address.rsplit_once(':').unwrap().1;
    let address = format!("127.0.0.1:{port}");
    assert!(ask(&address, "GET", "/v1/locks", "", "").starts_with("HTTP/1.1 401"));
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    assert!(ask(&address, "GET", "/v1/locks", &token, "").starts_with("HTTP/1.1 200"));
}

#[test]
fn a_token_comes_from_a_variable_and_is_in_no_process_list() {
    let mut command = tenure(&["serve", "--listen", "127.0.0.1:0", "--url", "memory:"]);
    command.env("TENURE_SERVE_TOKEN", TOKEN).env("TENURE_SERVE_READ_TOKEN", "fedcba9876543210");
    let serving = serve(command);
    let with = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let acquire = |token: &str| ask(&serving.address, "POST", "/v1/locks/x/acquire", token, "");
    assert!(acquire("").starts_with("HTTP/1.1 401"));
    assert!(acquire(&with("fedcba9876543210")).starts_with("HTTP/1.1 403"));
    assert!(acquire(&with(TOKEN)).starts_with("HTTP/1.1 200"));
    let line = std::fs::read(format!("/proc/{}/cmdline", serving.child.id())).unwrap();
    assert!(!String::from_utf8_lossy(&line).contains(TOKEN));
}

/// Such a variable is not the same as none: without a token, every client may do everything.
#[test]
fn a_token_that_is_no_text_is_refused() {
    for variable in ["TENURE_SERVE_TOKEN", "TENURE_SERVE_READ_TOKEN"] {
        let mut command = tenure(&["serve", "--listen", "127.0.0.1:0", "--url", "memory:"]);
        let said = refused(command.env(variable, OsStr::from_bytes(b"0123456789abcdef\xff")));
        assert!(said.contains(variable) && said.contains("16 printable"), "{said}");
    }
}

#[test]
fn a_store_that_cannot_be_named_so_is_refused_at_once() {
    for url in ["nonsense://host", "redis://host?nonsense=1", "host:6379", "local:?x"] {
        let said = refused(&mut tenure(&["serve", "--listen", "127.0.0.1:0", "--url", url]));
        assert!(said.starts_with("tenure: "), "{said}");
    }
}

#[test]
fn a_certificate_is_used() {
    let folder = tempfile::tempdir().unwrap();
    Tls::default().write(folder.path());
    let file = |name| folder.path().join(name);
    let mut command = tenure(&["serve", "--listen", "127.0.0.1:0", "--url", "memory:"]);
    command.arg("--tls-cert").arg(file("server.pem")).arg("--tls-key").arg(file("server.key"));
    let serving = serve(command);
    let url = format!("https://{}/healthz", serving.address);
    let mut curl = Command::new("curl");
    let output = curl.arg("-sS").arg("--cacert").arg(file("ca.pem")).arg(url).output();
    assert_eq!(output.unwrap().stdout, b"ok\n");
}

#[test]
fn a_server_that_is_stopped_leaves_no_waiter() {
    let fixture = Fixture::of(Server::builder().on_port().start());
    let mut serving = serve(fixture.tenure(&["serve", "--listen", "127.0.0.1:0"]));
    fixture.said(&["acquire", "deploy"]);
    let mut waiting = TcpStream::connect(&serving.address).unwrap();
    let host = &serving.address;
    write!(waiting, "POST /v1/locks/deploy/acquire HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    fixture.until_waiting("deploy", 1);
    kill_process(Pid::from_child(&serving.child), Signal::TERM).unwrap();
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("503") && answer.contains("\"stopping\""), "{answer}");
    assert_eq!(serving.child.wait().unwrap().code(), Some(128 + 15));
    fixture.until_waiting("deploy", 0);
    let mut said = String::new();
    serving.talk.read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
}

#[test]
fn a_store_that_is_down_at_first_is_served_later() {
    let mut server = Server::builder().on_port().start();
    server.kill();
    let mut command = tenure(&["serve", "--listen", "127.0.0.1:0", "--url", &server.url()]);
    command.env_remove("TENURE_SERVE_TOKEN");
    let serving = serve(command);
    let get = || ask(&serving.address, "GET", "/v1/locks", "", "");
    assert!(get().contains("\"unavailable\""));
    server.restart();
    until("it is served", || get().starts_with("HTTP/1.1 200"));
}
