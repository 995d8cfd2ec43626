//! A long way between a client and a server: what arrives is handed on so much later, in order, and
//! nothing else happens to it.
//!
//! [`Proxy`](crate::Proxy) takes messages apart, with four threads for each connection, which costs more
//! than a trip of a millisecond may. This one moves bytes: one thread for all connections reads what is
//! there and writes what is due, so much at a time as there is. So there is no limit of bandwidth, the
//! ways out and back do not wait for each other, and many small messages cost little more than one.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::endpoint::Endpoint;
use crate::port;
use crate::resp::Connection;
use crate::server::Server;
use crate::stream::Stream;

/// How much is read at once.
const CHUNK: usize = 64 * 1024;

/// A long way to a server, which ends, with all its connections, when this is dropped.
#[must_use = "the way ends when this is dropped"]
pub struct Distance {
    port: u16,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Distance {
    /// Puts a server so far away: each direction takes so long.
    ///
    /// # Panics
    ///
    /// If no thread can be started.
    pub fn start(server: &Server, one_way: Duration) -> Self {
        let listener = port::listen();
        let port = port::number(&listener);
        let is_over = Arc::new(AtomicBool::new(false));
        let relay = Relay {
            listener,
            endpoint: server.endpoint().clone(),
            one_way,
            ways: Vec::new(),
            chunk: vec![0; CHUNK],
        };
        let thread = std::thread::Builder::new().name("distance".into()).spawn({
            let is_over = is_over.clone();
            move || relay.run(&is_over)
        });
        Self { port, is_over, thread: Some(thread.expect("a thread can be started")) }
    }

    /// Its address as a URL: `redis://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Opens a plain connection through it.
    ///
    /// # Errors
    ///
    /// If it could not be opened.
    pub fn connect(&self) -> io::Result<Connection> {
        Connection::tcp(self.address())
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }
}

impl fmt::Debug for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Distance").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Drop for Distance {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // It sleeps until something arrives, so we knock.
        let knocked = TcpStream::connect(self.address());
        if let Some(thread) = self.thread.take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
        drop(knocked);
    }
}

/// The thread's own.
struct Relay {
    listener: TcpListener,
    endpoint: Endpoint,
    one_way: Duration,
    /// Two for each connection: one for each direction.
    ways: Vec<Way>,
    chunk: Vec<u8>,
}

/// One direction of a connection.
struct Way {
    from: Arc<Stream>,
    to: Arc<Stream>,
    /// What is under way, and when it is due. Nothing at all is the end.
    under_way: VecDeque<(Instant, Vec<u8>)>,
    /// The receiver takes nothing at the moment.
    is_blocked: bool,
    has_ended: bool,
    is_over: bool,
}

impl Relay {
    fn run(mut self, is_over: &AtomicBool) {
        wake_in_time();
        while !is_over.load(Ordering::SeqCst) {
            let Some((accepts, readable)) = self.wait() else { continue };
            for (way, is_readable) in self.ways.iter_mut().zip(readable) {
                if is_readable {
                    way.take(&mut self.chunk, self.one_way);
                }
            }
            self.ways.iter_mut().for_each(Way::give);
            self.ways.retain(|way| !way.is_over);
            if accepts {
                self.accept();
            }
        }
        self.ways.iter().for_each(|way| way.to.shutdown(Shutdown::Both));
    }

    /// Waits until something arrives or is due: whether somebody connects, and which ways have something
    /// to read. None if it was disturbed.
    fn wait(&self) -> Option<(bool, Vec<bool>)> {
        let mut watched = vec![PollFd::new(&self.listener, PollFlags::IN)];
        watched.extend(self.ways.iter().map(|way| {
            let wanted = if way.has_ended { PollFlags::empty() } else { PollFlags::IN };
            PollFd::from_borrowed_fd(way.from.as_fd(), wanted)
        }));
        let blocked = self.ways.iter().filter(|way| way.is_blocked);
        watched.extend(blocked.map(|way| PollFd::from_borrowed_fd(way.to.as_fd(), PollFlags::OUT)));
        let due = self.ways.iter().filter(|way| !way.is_blocked);
        let due = due.filter_map(|way| Some(way.under_way.front()?.0)).min();
        let left = due.map(|due| due.saturating_duration_since(now()));
        let left = left.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        poll(&mut watched, left.as_ref()).ok()?;
        let has_something = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let readable = self.ways.iter().zip(&watched[1..]);
        let readable = readable.map(|(way, fd)| !way.has_ended && has_something(fd));
        Some((has_something(&watched[0]), readable.collect()))
    }

    fn accept(&mut self) {
        let Ok((client, _)) = self.listener.accept() else { return };
        // Without a server, a client is hung up on.
        let (Ok(client), Ok(server)) = (Stream::over(client), self.endpoint.stream()) else {
            return;
        };
        if client.set_nonblocking().is_err() || server.set_nonblocking().is_err() {
            return;
        }
        let (client, server) = (Arc::new(client), Arc::new(server));
        self.ways.extend([Way::new(&client, &server), Way::new(&server, &client)]);
    }
}

impl Way {
    fn new(from: &Arc<Stream>, to: &Arc<Stream>) -> Self {
        Self {
            from: from.clone(),
            to: to.clone(),
            under_way: VecDeque::new(),
            is_blocked: false,
            has_ended: false,
            is_over: false,
        }
    }

    /// Takes in what has arrived.
    fn take(&mut self, chunk: &mut [u8], one_way: Duration) {
        let read = match (&*self.from).read(chunk) {
            Ok(read) => read,
            Err(error) if is_passing(error.kind()) => return,
            Err(_) => 0,
        };
        self.has_ended = read == 0;
        self.under_way.push_back((now() + one_way, chunk[..read].to_vec()));
    }

    /// Hands on what is due.
    fn give(&mut self) {
        self.is_blocked = false;
        let due = now();
        while let Some((at, bytes)) = self.under_way.front_mut() {
            if *at > due {
                return;
            }
            if bytes.is_empty() {
                self.to.shutdown(Shutdown::Write);
                self.is_over = true;
                return;
            }
            match (&*self.to).write(bytes) {
                Ok(written) => drop(bytes.drain(..written)),
                Err(error) if is_passing(error.kind()) => {
                    self.is_blocked = true;
                    return;
                }
                // Who hung up gets nothing more, nor does what comes next.
                Err(_) => {
                    self.from.shutdown(Shutdown::Both);
                    self.is_over = true;
                    return;
                }
            }
            if bytes.is_empty() {
                self.under_way.pop_front();
            }
        }
    }
}

/// By default, Linux wakes a thread up to 50 µs late, so as to wake several at once.
fn wake_in_time() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[expect(clippy::disallowed_methods, reason = "a delay is by the clock; no lease depends on it")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAY: Duration = Duration::from_millis(20);

    /// A trip takes as long as both ways do, and many that are under way at once take no longer.
    #[test]
    fn what_is_sent_comes_later_and_in_order() {
        let server = Server::start();
        let distance = Distance::start(&server, WAY);
        let mut connection = distance.connect().expect("it listens");
        let started = now();
        (0..1_000).for_each(|number| {
            connection.send(&["ECHO", &number.to_string()]).expect("it takes what is sent");
        });
        for number in 0..1_000 {
            let reply = connection.read().expect("a reply");
            assert_eq!(reply.text(), Some(number.to_string()));
            assert!(started.elapsed() >= 2 * WAY, "too early");
        }
    }

    #[test]
    fn large_messages_pass_whole() {
        let server = Server::start();
        let distance = Distance::start(&server, Duration::from_millis(1));
        let mut connection = distance.connect().expect("it listens");
        let large = "x".repeat(8 * 1024 * 1024);
        let reply = connection.command(&["ECHO", &large]).expect("a reply");
        assert_eq!(reply.text(), Some(large));
    }

    #[test]
    fn an_end_travels_too() {
        let mut server = Server::start();
        let distance = Distance::start(&server, WAY);
        let mut connection = distance.connect().expect("it listens");
        connection.command(&["PING"]).expect("a reply");
        server.stop();
        assert!(connection.command(&["PING"]).is_err());
    }
}
