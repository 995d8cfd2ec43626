//! Network latency between a client and a server: each byte is forwarded after a fixed delay, in order, and
//! otherwise unchanged.
//!
//! [`Proxy`](crate::Proxy) takes messages apart, with four threads for each connection, which costs more
//! than a round trip of a millisecond may. This one moves bytes: one thread for all connections reads what has
//! arrived and writes what is due, in chunks as large as possible. So bandwidth is not limited, the two
//! directions do not wait for each other, and many small messages cost little more than one.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::endpoint::Endpoint;
use crate::resp::Connection;
use crate::server::Server;
use crate::stream::Stream;

/// How much is read at once.
const CHUNK: usize = 64 * 1024;

/// A relay to a server with added latency; it ends, with all its connections, when this is dropped.
#[must_use = "the relay ends when this is dropped"]
pub struct Distance {
    endpoint: Endpoint,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Distance {
    /// Starts a relay to the server that delays each direction by `one_way`.
    ///
    /// # Panics
    ///
    /// If no thread can be started.
    pub fn start(server: &Server, one_way: Duration) -> Self {
        let (endpoint, listener) = Endpoint::listen();
        let is_over = Arc::new(AtomicBool::new(false));
        let relay = Relay {
            listener,
            endpoint: server.endpoint().clone(),
            one_way,
            pipes: Vec::new(),
            chunk: vec![0; CHUNK],
        };
        let thread = std::thread::Builder::new().name("distance".into()).spawn({
            let is_over = is_over.clone();
            move || relay.run(&is_over)
        });
        Self { endpoint, is_over, thread: Some(thread.expect("a thread can be started")) }
    }

    /// Its address as a URL: `redis://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> String {
        self.endpoint.url()
    }

    /// Opens a plain connection through it.
    ///
    /// # Errors
    ///
    /// If it could not be opened.
    pub fn connect(&self) -> io::Result<Connection> {
        self.endpoint.connect()
    }
}

impl fmt::Debug for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Distance").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Drop for Distance {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // The thread blocks in `poll`, so a connection of our own wakes it.
        let waking = self.endpoint.stream();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has already printed its message.
            let _ = thread.join();
        }
        drop(waking);
    }
}

/// The state of the relay's thread.
struct Relay {
    listener: TcpListener,
    endpoint: Endpoint,
    one_way: Duration,
    /// Two for each connection: one for each direction.
    pipes: Vec<Pipe>,
    chunk: Vec<u8>,
}

/// One direction of a connection.
struct Pipe {
    from: Arc<Stream>,
    to: Arc<Stream>,
    /// The chunks in flight, and when each is due. An empty chunk is the end of the stream.
    in_flight: VecDeque<(Instant, Vec<u8>)>,
    /// The receiver's buffer is full.
    is_blocked: bool,
    has_ended: bool,
    is_over: bool,
}

impl Relay {
    fn run(mut self, is_over: &AtomicBool) {
        wake_on_time();
        while !is_over.load(Ordering::SeqCst) {
            let Some((accepts, readable)) = self.wait() else { continue };
            for (pipe, is_readable) in self.pipes.iter_mut().zip(readable) {
                if is_readable {
                    pipe.receive(&mut self.chunk, self.one_way);
                }
            }
            self.pipes.iter_mut().for_each(Pipe::forward);
            self.pipes.retain(|pipe| !pipe.is_over);
            if accepts {
                self.accept();
            }
        }
        self.pipes.iter().for_each(|pipe| pipe.to.shutdown(Shutdown::Both));
    }

    /// Waits until something arrives or is due: whether a client connects, and which pipes are readable.
    /// None if the wait was interrupted.
    fn wait(&self) -> Option<(bool, Vec<bool>)> {
        let mut watched = vec![PollFd::new(&self.listener, PollFlags::IN)];
        watched.extend(self.pipes.iter().map(|pipe| {
            let wanted = if pipe.has_ended { PollFlags::empty() } else { PollFlags::IN };
            PollFd::from_borrowed_fd(pipe.from.as_fd(), wanted)
        }));
        let blocked = self.pipes.iter().filter(|pipe| pipe.is_blocked);
        watched
            .extend(blocked.map(|pipe| PollFd::from_borrowed_fd(pipe.to.as_fd(), PollFlags::OUT)));
        let due = self.pipes.iter().filter(|pipe| !pipe.is_blocked);
        let due = due.filter_map(|pipe| Some(pipe.in_flight.front()?.0)).min();
        let left = due.map(|due| due.saturating_duration_since(now()));
        let left = left.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        poll(&mut watched, left.as_ref()).ok()?;
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let readable = self.pipes.iter().zip(&watched[1..]);
        let readable = readable.map(|(pipe, fd)| !pipe.has_ended && is_ready(fd));
        Some((is_ready(&watched[0]), readable.collect()))
    }

    fn accept(&mut self) {
        let Ok((client, _)) = self.listener.accept() else { return };
        // Without a server, the client's connection is closed.
        let (Ok(client), Ok(server)) = (Stream::over(client), self.endpoint.stream()) else {
            return;
        };
        if client.set_nonblocking().is_err() || server.set_nonblocking().is_err() {
            return;
        }
        let (client, server) = (Arc::new(client), Arc::new(server));
        self.pipes.extend([Pipe::new(&client, &server), Pipe::new(&server, &client)]);
    }
}

impl Pipe {
    fn new(from: &Arc<Stream>, to: &Arc<Stream>) -> Self {
        Self {
            from: from.clone(),
            to: to.clone(),
            in_flight: VecDeque::new(),
            is_blocked: false,
            has_ended: false,
            is_over: false,
        }
    }

    /// Reads what has arrived.
    fn receive(&mut self, chunk: &mut [u8], one_way: Duration) {
        let read = match (&*self.from).read(chunk) {
            Ok(read) => read,
            Err(error) if is_transient(error.kind()) => return,
            Err(_) => 0,
        };
        self.has_ended = read == 0;
        self.in_flight.push_back((now() + one_way, chunk[..read].to_vec()));
    }

    /// Writes what is due.
    fn forward(&mut self) {
        self.is_blocked = false;
        let due = now();
        while let Some((at, bytes)) = self.in_flight.front_mut() {
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
                Err(error) if is_transient(error.kind()) => {
                    self.is_blocked = true;
                    return;
                }
                // The receiver has closed the connection, so the sender's end is closed, too.
                Err(_) => {
                    self.from.shutdown(Shutdown::Both);
                    self.is_over = true;
                    return;
                }
            }
            if bytes.is_empty() {
                self.in_flight.pop_front();
            }
        }
    }
}

/// By default, Linux wakes a thread up to 50 µs late, so as to wake several at once.
fn wake_on_time() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

fn is_transient(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[expect(clippy::disallowed_methods, reason = "a delay is by the clock; no lease depends on it")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_WAY: Duration = Duration::from_millis(20);

    /// A round trip takes twice the one-way delay, and many in flight at once take no longer.
    #[test]
    fn what_is_sent_arrives_later_and_in_order() {
        let server = Server::start();
        let distance = Distance::start(&server, ONE_WAY);
        let mut connection = distance.connect().expect("it listens");
        let started = now();
        (0..1_000).for_each(|number| {
            connection.send(&["ECHO", &number.to_string()]).expect("it takes what is sent");
        });
        for number in 0..1_000 {
            let reply = connection.read().expect("a reply");
            assert_eq!(reply.text(), Some(number.to_string()));
            assert!(started.elapsed() >= 2 * ONE_WAY, "too early");
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
    fn the_end_of_a_stream_is_forwarded() {
        let mut server = Server::start();
        let distance = Distance::start(&server, ONE_WAY);
        let mut connection = distance.connect().expect("it listens");
        connection.command(&["PING"]).expect("a reply");
        server.stop();
        assert!(connection.command(&["PING"]).is_err());
    }
}
