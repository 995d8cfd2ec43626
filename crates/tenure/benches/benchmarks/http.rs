//! `tenure serve`: a pair over HTTP, and a thousand viewers.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tenure_testkit::Server;

use super::command::program;
use super::memory::{now, pause};
use super::redis::{client, is_verbose, median, server, verbose};

const ROUNDS: usize = 9;
const IN_A_ROW: usize = 100;
const TURNS: usize = 10;

/// How many bytes a request and an answer have.
const REQUEST: usize = 120;
const ANSWER: usize = 320;

/// How many viewers there are, and for how long they are measured.
const VIEWERS: usize = 1000;
const MEASURED: Duration = Duration::from_secs(5);

/// Acquire and release over HTTP on one connection, over the same by one thread with the library.
pub(crate) fn pair() -> Vec<f64> {
    let server = server();
    let serving = Serving::start(&server);
    let (tenure, mut http) = (client(&server), serving.connect());
    let lock = tenure.lock("orders/42").blocking();
    let mut round = || {
        let (mut ours, mut over_http) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            for _ in 0..IN_A_ROW {
                let started = now();
                lock.acquire().expect("a free lock").release().expect("a release");
                ours.push(started.elapsed().as_secs_f64() * 1e6);
            }
            for _ in 0..IN_A_ROW {
                let started = now();
                http.pair();
                over_http.push(started.elapsed().as_secs_f64() * 1e6);
            }
        }
        let (ours, over_http) = (median(ours), median(over_http));
        verbose(&format!("library {ours:.1} µs, HTTP {over_http:.1} µs"));
        over_http / ours
    };
    round();
    if is_verbose() {
        floor(&server);
    }
    (0..ROUNDS).map(|_| round()).collect()
}

/// What any server between a client and the store pays on this machine: a thread that sends a PING for each request, and answers
/// when it has the pong. A server without any code of its own cannot be faster.
fn floor(server: &Server) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let mut store = server.connect().expect("a connection");
    let relay = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        client.set_nodelay(true).expect("a socket");
        let mut request = [0; REQUEST];
        while client.read_exact(&mut request).is_ok() {
            store.send(&["PING"]).and_then(|()| store.read()).expect("a pong");
            client.write_all(&[0; ANSWER]).expect("it reads");
        }
    });
    let mut client = TcpStream::connect(address).expect("it listens");
    client.set_nodelay(true).expect("a socket");
    let mut ask = || {
        client.write_all(&[0; REQUEST]).expect("it reads");
        client.read_exact(&mut [0; ANSWER]).expect("an answer");
    };
    let pairs = (0..TURNS * IN_A_ROW).map(|_| {
        let started = now();
        (0..2).for_each(|_| ask());
        started.elapsed().as_secs_f64() * 1e6
    });
    verbose(&format!("two PINGs through a bare relay {:.1} µs", median(pairs)));
    drop(client);
    let _ = relay.join();
}

/// Percent of a core, with a thousand viewers of a store in which a lock changes hands all the time.
pub(crate) fn streams_cpu() -> Vec<f64> {
    with_viewers(|serving, http| {
        let before = serving.cpu();
        let started = now();
        while started.elapsed() < MEASURED {
            http.pair();
            pause(Duration::from_millis(20));
        }
        (serving.cpu() - before) / started.elapsed().as_secs_f64() * 100.0
    })
}

/// Megabytes of the server with a thousand viewers.
pub(crate) fn streams_memory() -> Vec<f64> {
    with_viewers(|serving, http| {
        let started = now();
        while started.elapsed() < MEASURED {
            http.pair();
            pause(Duration::from_millis(20));
        }
        serving.megabytes()
    })
}

fn with_viewers(measure: impl FnOnce(&Serving, &mut Http) -> f64) -> Vec<f64> {
    let server = server();
    let serving = Serving::start(&server);
    let mut http = serving.connect();
    let viewers: Vec<_> = (0..VIEWERS)
        .map(|_| {
            let mut viewer = serving.connect();
            viewer.send("GET", "/v1/state", "");
            viewer
        })
        .collect();
    // They read, as browsers do.
    let streams: Vec<_> =
        viewers.iter().map(|it| it.0.get_ref().try_clone().expect("a socket")).collect();
    let reading = std::thread::spawn(move || read_all(&streams));
    pause(Duration::from_secs(2));
    let measured = measure(&serving, &mut http);
    drop(serving);
    let _ = reading.join();
    vec![measured]
}

/// Reads whatever arrives, until the server is gone.
fn read_all(streams: &[TcpStream]) {
    for stream in streams {
        stream.set_nonblocking(true).expect("a socket");
    }
    let mut some = vec![0; 1 << 16];
    loop {
        for mut stream in streams {
            match stream.read(&mut some) {
                Ok(0) => return,
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return,
                _ => {}
            }
        }
        pause(Duration::from_millis(50));
    }
}

/// A server that ends with its benchmark.
struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    fn start(server: &Server) -> Self {
        let mut command = Command::new(program());
        command.args(["serve", "--listen", "127.0.0.1:0", "--url", &server.url()]);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the command starts");
        let mut line = String::new();
        let said = child.stderr.take().expect("it is piped");
        BufReader::new(said).read_line(&mut line).expect("it says where it listens");
        let address = line.trim().trim_end_matches('/').rsplit_once('/').expect("an address").1;
        Self { address: address.to_owned(), child }
    }

    fn connect(&self) -> Http {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        Http(BufReader::new(stream), self.address.clone())
    }

    /// Its CPU time so far, in seconds.
    fn cpu(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it lives");
        let fields: Vec<_> = stat.rsplit_once(')').expect("stat").1.split_whitespace().collect();
        let ticks: f64 = fields[11..13].iter().map(|it| it.parse::<f64>().expect("ticks")).sum();
        ticks / 100.0
    }

    fn megabytes(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number") / 1e3
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection to the server.
struct Http(BufReader<TcpStream>, String);

impl Http {
    /// Acquires and releases a lock.
    fn pair(&mut self) {
        let granted = self.ask("/v1/locks/orders/43/acquire", r#"{"wait_ms":1000}"#);
        let handle = granted.split("\"handle\":\"").nth(1).and_then(|rest| rest.split('"').next());
        let handle = handle.unwrap_or_else(|| panic!("not acquired: {granted}"));
        let body = format!("{{\"handle\":\"{handle}\"}}");
        let released = self.ask("/v1/locks/orders/43/release", &body);
        assert!(released.contains("released"), "{released}");
    }

    fn ask(&mut self, path: &str, body: &str) -> String {
        self.send("POST", path, body);
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("an answer");
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().expect("a length");
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).expect("a body");
        String::from_utf8(body).expect("UTF-8")
    }

    fn send(&mut self, method: &str, path: &str, body: &str) {
        let (host, length) = (&self.1, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        self.0.get_mut().write_all(request.as_bytes()).expect("it reads");
    }
}
