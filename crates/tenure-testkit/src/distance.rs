//! Network latency between a client and a server: each byte is forwarded after a fixed delay, in order, and
//! otherwise unchanged.
//!
//! [`Proxy`](crate::Proxy) takes messages apart, with four threads for each connection, which costs more
//! than a round trip of a millisecond may. This one moves bytes: one thread for all connections, and for all relays that are
//! started together, reads what has
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

/// A relay to a server with added latency; it ends, with all its connections, when this is dropped, and those that were
/// started with it.
#[must_use = "the relay ends when this is dropped"]
pub struct Distance {
    endpoint: Endpoint,
    /// Shared by the relays that were started together.
    _thread: Arc<Thread>,
}

/// The thread of some relays.
struct Thread {
    /// A connection to it wakes the thread.
    endpoint: Endpoint,
    is_over: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
}

impl Distance {
    /// Starts a relay to the server that delays each direction by `one_way`.
    ///
    /// # Panics
    ///
    /// If no thread can be started.
    pub fn start(server: &Server, one_way: Duration) -> Self {
        Self::start_all([server], one_way).remove(0)
    }

    /// Starts a relay to each of the servers. They have one thread: as many as servers would each be woken for one
    /// message, which costs more than the message.
    ///
    /// # Panics
    ///
    /// If no thread can be started, or there is no server.
    pub fn start_all<'a>(
        servers: impl IntoIterator<Item = &'a Server>,
        one_way: Duration,
    ) -> Vec<Self> {
        let doors = servers.into_iter().map(|server| {
            let (endpoint, listener) = Endpoint::listen();
            (endpoint, Door { listener, to: server.endpoint().clone() })
        });
        let (endpoints, doors): (Vec<_>, Vec<_>) = doors.unzip();
        let is_over = Arc::new(AtomicBool::new(false));
        let relay = Relay { doors, one_way, pipes: Vec::new(), chunk: vec![0; CHUNK] };
        let handle = std::thread::Builder::new().name("distance".into()).spawn({
            let is_over = is_over.clone();
            move || relay.run(&is_over)
        });
        let handle = Some(handle.expect("a thread can be started"));
        let thread = Arc::new(Thread { endpoint: endpoints[0].clone(), is_over, handle });
        let distance = |endpoint| Self { endpoint, _thread: thread.clone() };
        endpoints.into_iter().map(distance).collect()
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

impl Drop for Thread {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // The thread blocks in `poll`, so a connection of our own wakes it.
        let waking = self.endpoint.stream();
        if let Some(handle) = self.handle.take() {
            // A thread that panicked has already printed its message.
            let _ = handle.join();
        }
        drop(waking);
    }
}

/// Where clients connect, and where that leads.
struct Door {
    listener: TcpListener,
    to: Endpoint,
}

/// The state of the relays' thread.
struct Relay {
    doors: Vec<Door>,
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
            let Some((called, readable)) = self.wait() else { continue };
            for (pipe, is_readable) in self.pipes.iter_mut().zip(readable) {
                if is_readable {
                    pipe.receive(&mut self.chunk, self.one_way);
                }
            }
            self.pipes.iter_mut().for_each(Pipe::forward);
            self.pipes.retain(|pipe| !pipe.is_over);
            called.into_iter().for_each(|door| self.accept(door));
        }
        self.pipes.iter().for_each(|pipe| pipe.to.shutdown(Shutdown::Both));
    }

    /// Waits until something arrives or is due: at which doors clients connect, and which pipes are readable.
    /// None if the wait was interrupted.
    fn wait(&self) -> Option<(Vec<usize>, Vec<bool>)> {
        let doors = self.doors.iter().map(|door| PollFd::new(&door.listener, PollFlags::IN));
        let mut watched: Vec<_> = doors.collect();
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
        let (doors, rest) = watched.split_at(self.doors.len());
        let called = doors.iter().enumerate().filter(|(_, fd)| is_ready(fd));
        let readable = self.pipes.iter().zip(rest);
        let readable = readable.map(|(pipe, fd)| !pipe.has_ended && is_ready(fd));
        Some((called.map(|(door, _)| door).collect(), readable.collect()))
    }

    fn accept(&mut self, door: usize) {
        let door = &self.doors[door];
        let Ok((client, _)) = door.listener.accept() else { return };
        // Without a server, the client's connection is closed.
        let (Ok(client), Ok(server)) = (Stream::over(client), door.to.stream()) else {
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

    /// Relays that were started together lead to their own servers, and go on while one of them is there.
    #[test]
    fn each_leads_to_its_own_server() {
        let servers = [Server::start(), Server::start()];
        let mut distances = Distance::start_all(&servers, ONE_WAY);
        for (distance, value) in distances.iter().zip(["0", "1"]) {
            let mut connection = distance.connect().expect("it listens");
            connection.command(&["SET", "which", value]).expect("a reply");
        }
        drop(distances.remove(0));
        for (server, value) in servers.iter().zip(["0", "1"]) {
            let reply =
                server.connect().expect("it listens").command(&["GET", "which"]).expect("a reply");
            assert_eq!(reply.text().as_deref(), Some(value));
        }
        distances[0].connect().expect("it listens").command(&["PING"]).expect("a reply");
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
