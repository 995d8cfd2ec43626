//! A store, a server of it, and a plain HTTP client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;
use tenure::Tenure;
use tenure::blocking::block_on;
use tenure_serve::{Access, Connect, Hosts, Limits, Server};
use tokio::sync::oneshot;

/// A server in a thread of its own, and the store that it serves.
pub(crate) struct Fixture {
    pub(crate) address: SocketAddr,
    /// Another client of the same store.
    pub(crate) tenure: Tenure,
    pub(crate) redis: Option<tenure_testkit::Server>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// What a test changes of a server.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) access: Access,
    pub(crate) hosts: Vec<String>,
    pub(crate) limits: Limits,
}

impl Fixture {
    /// On a store inside this process.
    pub(crate) fn memory() -> Self {
        Self::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> Self {
        let tenure = Tenure::memory().unwrap();
        let shared = tenure.clone();
        let connect: Connect = Box::new(move |_| {
            let tenure = shared.clone();
            Box::pin(async move { Ok(tenure) })
        });
        Self::start(connect, tenure, None, options)
    }

    /// On a real server.
    pub(crate) fn redis() -> Self {
        let redis = tenure_testkit::Server::builder().on_port().start();
        Self::of(redis, Options::default())
    }

    pub(crate) fn of(redis: tenure_testkit::Server, options: Options) -> Self {
        let url = redis.url();
        let tenure = block_on(Tenure::connect(&url)).unwrap();
        Self::start(connect_to(url), tenure, Some(redis), options)
    }

    pub(crate) fn start(
        connect: Connect,
        tenure: Tenure,
        redis: Option<tenure_testkit::Server>,
        options: Options,
    ) -> Self {
        let (address, stop, thread) = serve(connect, options);
        Self { address, tenure, redis, stop: Some(stop), thread: Some(thread) }
    }

    /// Stops the server, and waits until it has ended.
    pub(crate) fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    /// Asks the server to stop, and does not wait.
    pub(crate) fn begin_to_stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    /// A second server of the same store.
    pub(crate) fn other(&self, options: Options) -> Self {
        let shared = self.tenure.clone();
        let connect: Connect = Box::new(move |_| {
            let tenure = shared.clone();
            Box::pin(async move { Ok(tenure) })
        });
        Self::start(connect, self.tenure.clone(), None, options)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, &[], &body.to_string())
    }

    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut stream = self.send(method, path, headers, body);
        Answer::read(&mut BufReader::new(&mut stream))
    }

    /// Sends a request, and returns its connection.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let request = request(&self.address.to_string(), method, path, headers, body);
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    /// The number of waiters of a lock.
    pub(crate) fn waiting(&self, name: &str) -> usize {
        block_on(self.tenure.lock(name).inspect()).unwrap().waiting
    }

    pub(crate) fn holders(&self, name: &str) -> usize {
        block_on(self.tenure.lock(name).inspect()).unwrap().holding
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }
}

pub(crate) fn connect_to(url: String) -> Connect {
    Box::new(move |_| {
        let url = url.clone();
        Box::pin(async move { Tenure::connect(&url).await })
    })
}

fn serve(
    connect: Connect,
    options: Options,
) -> (SocketAddr, oneshot::Sender<()>, std::thread::JoinHandle<()>) {
    let (stop, stopped) = oneshot::channel::<()>();
    let (said, address) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            said.send(listener.local_addr().unwrap()).unwrap();
            let hosts = Hosts::new(&options.hosts);
            let server = Server::new(connect, options.access, hosts, options.limits, |_| {});
            server.run(listener, None, async move { drop(stopped.await) }).await;
        });
    });
    (address.recv().unwrap(), stop, thread)
}

pub(crate) fn request(
    host: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> String {
    let has_host = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
    let host = if has_host { String::new() } else { format!("Host: {host}\r\n") };
    let headers: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    format!("{method} {path} HTTP/1.1\r\n{host}{headers}Content-Length: {length}\r\n\r\n{body}")
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// Reads one answer with a known length.
    pub(crate) fn read(stream: &mut impl BufRead) -> Self {
        let (status, head) = Self::head(stream);
        let length = value(&head, "content-length").map_or(0, |value| value.parse().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        Self { status, head, body: String::from_utf8(body).unwrap() }
    }

    /// Reads the head alone.
    pub(crate) fn head(stream: &mut impl BufRead) -> (u16, String) {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let read = stream.read_line(&mut head).unwrap();
            assert!(read > 0, "the connection ended: {head:?}");
        }
        (head.split(' ').nth(1).unwrap().parse().unwrap(), head)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        value(&self.head, name)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// The body of a request that must succeed.
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()
    }

    /// The word of a refusal, which must be a problem document.
    pub(crate) fn refused(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let body = self.json();
        assert_eq!(body["status"], status);
        assert!(!body["detail"].as_str().unwrap().is_empty());
        body["title"].as_str().unwrap().to_owned()
    }
}

fn value<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.into_iter().find(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// An event stream.
pub(crate) struct Stream(BufReader<TcpStream>);

impl Stream {
    pub(crate) fn open(stream: TcpStream) -> Self {
        let mut reader = BufReader::new(stream);
        let (status, head) = Answer::head(&mut reader);
        assert_eq!(status, 200, "{head}");
        assert_eq!(value(&head, "content-type"), Some("text/event-stream"));
        Self(reader)
    }

    /// Waits for the comment by which a stream of events says that it follows the store.
    pub(crate) fn follows(mut self) -> Self {
        let mut line = String::new();
        while line != ":\n" {
            line.clear();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream has ended");
        }
        self
    }

    /// The next event, and its data. The chunks' own lines are not part of it.
    pub(crate) fn next(&mut self) -> Option<(String, Value)> {
        let mut event = String::new();
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap_or(0) == 0 || line == "0\r\n" {
                return None;
            }
            if let Some(name) = line.trim_end().strip_prefix("event: ") {
                event = name.to_owned();
            }
            if let Some(data) = line.trim_end().strip_prefix("data: ") {
                return Some((event, serde_json::from_str(data).unwrap()));
            }
        }
    }

    /// Reads until a viewer knows a lock: by a change, or by all locks, if it was behind.
    pub(crate) fn until_lock(&mut self, name: &str) {
        loop {
            let (_, data) = self.next().expect("the stream has not ended");
            let all = [&data["set"], &data["locks"]].into_iter().filter_map(Value::as_array);
            if all.flatten().any(|lock| lock["name"] == name) {
                return;
            }
        }
    }

    /// The data of the next event of this name.
    pub(crate) fn until(&mut self, wanted: &str) -> Value {
        loop {
            let (event, data) = self.next().unwrap_or_else(|| panic!("no {wanted}"));
            if event == wanted {
                return data;
            }
        }
    }
}

/// Waits until a condition holds.
#[expect(clippy::disallowed_methods, reason = "the test polls, by its own clock")]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(20), "never {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[expect(clippy::disallowed_methods, reason = "the test judges by its own clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Reads until the connection ends.
pub(crate) fn rest(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[expect(clippy::disallowed_methods, reason = "the store shows calendar times")]
pub(crate) fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}
