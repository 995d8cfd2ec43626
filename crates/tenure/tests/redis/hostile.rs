//! A faulty or malicious server, which sends endless data.
//!
//! It is a real server behind a proxy: up to a certain word of the client all traffic is
//! forwarded, and from then on the client gets the flood.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tenure::{Error, Tenure};
use tenure_testkit::Server;
use tokio::task::JoinSet;

use super::fixture::{LONG, connect, ms, pass};

/// Far more than the four seconds for connecting, or the two for an answer, on a busy machine; far less
/// than the minute and more that a flood used to take.
const BOUND: Duration = Duration::from_secs(15);

/// The endless data.
#[derive(Clone, Copy, Debug)]
enum Flood {
    /// A text whose length exceeds the memory of the machine.
    Text,
    /// An array with a length of a thousand million.
    Array,
    /// Nested arrays.
    Depth,
    /// A line without end.
    Line,
    /// Replies without requests.
    Replies,
}

const FLOODS: [Flood; 5] = [Flood::Text, Flood::Array, Flood::Depth, Flood::Line, Flood::Replies];

impl Flood {
    /// Its beginning, and the part that is repeated.
    fn parts(self) -> (&'static [u8], Vec<u8>) {
        match self {
            Self::Text => (b"$9999999999\r\n", vec![b'x'; 65_536]),
            Self::Array => (b"*1000000000\r\n", b":1\r\n".repeat(16_384)),
            Self::Depth => (b"", b"*1\r\n".repeat(16_384)),
            Self::Line => (b"+", vec![b'x'; 65_536]),
            Self::Replies => (b"", b"+OK\r\n".repeat(16_384)),
        }
    }

    fn pour(self, mut client: &TcpStream) {
        let (first, rest) = self.parts();
        if client.write_all(first).is_ok() {
            while client.write_all(&rest).is_ok() {}
        }
    }
}

/// A proxy that floods each connection on which the client sends the word, and counts these.
struct Rogue {
    port: u16,
    floods: Arc<AtomicUsize>,
}

impl Rogue {
    fn start(server: &Server, word: &'static str, flood: Flood) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let upstream = server.port().unwrap();
        let floods = Arc::new(AtomicUsize::new(0));
        let counted = floods.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let counted = counted.clone();
                thread::spawn(move || drop(carry(&client, upstream, word, flood, &counted)));
            }
        });
        Self { port, floods }
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

fn carry(
    mut client: &TcpStream,
    upstream: u16,
    word: &str,
    flood: Flood,
    counted: &AtomicUsize,
) -> io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", upstream))?;
    let (from, to) = (server.try_clone()?, client.try_clone()?);
    let back = thread::spawn(move || io::copy(&mut &from, &mut &to));
    let mut bytes = [0; 65_536];
    loop {
        let count = client.read(&mut bytes)?;
        if count == 0 {
            return server.shutdown(Shutdown::Both);
        }
        if bytes[..count].windows(word.len()).any(|it| it == word.as_bytes()) {
            server.shutdown(Shutdown::Both)?;
            let _ = back.join();
            counted.fetch_add(1, Ordering::Relaxed);
            flood.pour(client);
            return Ok(());
        }
        (&server).write_all(&bytes[..count])?;
    }
}

/// Whichever connection is flooded, and with whatever: connecting fails, with a reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connecting_to_a_flood_fails_in_time() {
    let server = Server::builder().on_port().start();
    for word in ["SUBSCRIBE", "LOAD"] {
        for flood in FLOODS {
            let rogue = Rogue::start(&server, word, flood);
            let url = rogue.url();
            let connecting = tokio::spawn(async move { Tenure::connect(&url).await });
            let outcome = tokio::time::timeout(BOUND, connecting).await;
            let outcome = outcome.unwrap_or_else(|_| panic!("{word}, {flood:?}: it hangs"));
            let error = outcome.unwrap().expect_err("it cannot have worked");
            assert!(matches!(error, Error::Connect { .. }), "{word}, {flood:?}: {error:?}");
        }
    }
}

/// I6: a list that is answered with a flood is refused or unknown, in time; and the client continues to work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_is_a_flood_fails_in_time() {
    let server = Server::builder().on_port().start();
    for flood in FLOODS {
        let rogue = Rogue::start(&server, "SCAN", flood);
        let tenure = connect(&rogue.url()).await;
        let listed = tokio::time::timeout(BOUND, tenure.list("", 10)).await;
        let listed = listed.unwrap_or_else(|_| panic!("{flood:?}: it hangs"));
        let error = listed.expect_err("it cannot have worked");
        assert!(matches!(error, Error::List { .. }), "{flood:?}: {error:?}");
        let guard = tenure.lock("x").acquire_within(LONG).await;
        guard.unwrap_or_else(|error| panic!("{flood:?}: {error}")).release().await.unwrap();
    }
}

/// I7: the connection for wake-ups is flooded. The others, which share its thread, are not starved: a short
/// lease is renewed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_messages_does_not_keep_leases_from_being_renewed() {
    let server = Arc::new(Server::builder().on_port().start());
    let mut all = JoinSet::new();
    for flood in FLOODS {
        all.spawn(renews_beside(server.clone(), flood));
    }
    all.join_all().await;
}

async fn renews_beside(server: Arc<Server>, flood: Flood) {
    let rogue = Rogue::start(&server, "PING", flood);
    let tenure = connect(&rogue.url()).await;
    let lock = tenure.lock(format!("{flood:?}"));
    let guard = lock.lease(Duration::from_secs(3)).acquire().await.unwrap();
    // The first PING is sent after three seconds of silence.
    let flooded = tokio::time::timeout(LONG, async {
        while rogue.floods.load(Ordering::Relaxed) == 0 {
            pass(ms(10)).await;
        }
    });
    flooded.await.expect("it sends a PING");
    pass(Duration::from_secs(4)).await;
    guard.ensure_held().unwrap_or_else(|lost| panic!("{flood:?}: {lost}"));
    guard.release().await.unwrap();
}
