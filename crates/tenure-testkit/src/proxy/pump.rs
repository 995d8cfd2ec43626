//! The threads that move the messages of one connection: in each direction one reads them, applies the rules
//! and never waits, the other forwards them when they are due.
//!
//! The ends of streams are forwarded in order as well. A client that leaves ends the stream to the server after its last
//! request, so a request that is still held is executed later, as on a real network. A server that
//! leaves, or a reply that is lost, closes the client's half after the last reply.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::ReplyLost;
use super::command::Command;
use super::hub::{Hub, now};
use super::ledger::Meaning;
use super::link::Link;
use super::rules::{Rule, Verdict};
use crate::resp::decode::Message;
use crate::stream::Stream;

/// A message in flight, or the position of a lost one.
struct Parcel<M> {
    content: Result<M, ReplyLost>,
    due: Option<Instant>,
    holds: Vec<Rule>,
}

type Request = (Command, Vec<u8>);
type Reply = Vec<u8>;

impl<M> Parcel<M> {
    /// A message and the faults that apply to it.
    fn new(message: M, verdict: Verdict) -> Self {
        let due = (!verdict.delay.is_zero()).then(|| now() + verdict.delay);
        Self { content: verdict.lost.map_or(Ok(message), Err), due, holds: verdict.holds }
    }
}

/// Starts the threads of a link. One into a black hole has no server.
pub(super) fn start(hub: &Arc<Hub>, link: &Arc<Link>) -> Vec<JoinHandle<()>> {
    let pump = || Pump { hub: Arc::clone(hub), link: Arc::clone(link) };
    let (receiver, forwarder) = (pump(), pump());
    let (requests, to_server) = channel();
    let mut threads = vec![
        thread::spawn(move || receiver.receive_requests(&requests)),
        thread::spawn(move || {
            forwarder.with_server(|server| forwarder.forward_requests(server, to_server))
        }),
    ];
    let (receiver, forwarder) = (pump(), pump());
    let (replies, to_client) = channel();
    threads.extend([
        thread::spawn(move || {
            receiver.with_server(|server| receiver.receive_replies(server, &replies))
        }),
        thread::spawn(move || forwarder.with_server(|_| forwarder.forward_replies(to_client))),
    ]);
    threads
}

struct Pump {
    hub: Arc<Hub>,
    link: Arc<Link>,
}

impl Pump {
    fn with_server(&self, work: impl FnOnce(&Stream)) {
        if let Some(server) = &self.link.server {
            work(server);
        }
    }

    fn receive_requests(&self, onward: &Sender<Parcel<Request>>) {
        let mut reader = BufReader::new(&self.link.client);
        let outcome = self.read_requests(&mut reader, onward);
        if is_malformed("a client", &outcome) {
            self.hub.change(|_| self.link.close());
        }
        // What comes after a lost request is lost, too, but read, so that the end is a clean one.
        let _ = io::copy(&mut reader, &mut io::sink());
        self.hub.change(|_| self.link.leave());
    }

    fn read_requests(
        &self,
        reader: &mut impl BufRead,
        onward: &Sender<Parcel<Request>>,
    ) -> io::Result<()> {
        while let Some(message) = Message::read(reader)? {
            let command = Command::parse(&message.value)?;
            let verdict = self.hub.request(&command, &self.link);
            let is_lost = verdict.lost.is_some();
            // There is no receiver if there is no server.
            let _ = onward.send(Parcel::new((command, message.bytes), verdict));
            if is_lost {
                break;
            }
        }
        Ok(())
    }

    fn forward_requests(&self, mut server: &Stream, parcels: Receiver<Parcel<Request>>) {
        for parcel in parcels {
            self.hub.wait(&self.link, parcel.due, &parcel.holds);
            if !self.link.carries() {
                continue;
            }
            match parcel.content {
                Ok((command, bytes)) => {
                    self.link.ledger().expect(command);
                    // If the server has ended, the thread that reads from it notices.
                    let _ = server.write_all(&bytes);
                }
                Err(_) if self.link.ledger().expect_cut() => server.shutdown(Shutdown::Both),
                // The last reply before it causes the cut.
                Err(_) => {}
            }
        }
        server.shutdown(Shutdown::Write);
    }

    fn receive_replies(&self, server: &Stream, onward: &Sender<Parcel<Reply>>) {
        let outcome = self.read_replies(&mut BufReader::new(server), onward);
        is_malformed("the server", &outcome);
        server.shutdown(Shutdown::Both);
    }

    fn read_replies(
        &self,
        reader: &mut impl BufRead,
        onward: &Sender<Parcel<Reply>>,
    ) -> io::Result<()> {
        while let Some(message) = Message::read(reader)? {
            let meaning = self.link.ledger().meaning(&message.value);
            let verdict = match meaning {
                Meaning::Reply(command) => self.hub.reply(&command, &self.link),
                Meaning::Message if !self.hub.message() => continue,
                Meaning::Message | Meaning::More => Verdict::default(),
            };
            let is_cut = verdict.lost == Some(ReplyLost::Cut);
            let _ = onward.send(Parcel::new(message.bytes, verdict));
            if is_cut || self.link.ledger().is_cut() {
                break;
            }
        }
        Ok(())
    }

    fn forward_replies(&self, parcels: Receiver<Parcel<Reply>>) {
        for parcel in parcels {
            self.hub.wait(&self.link, parcel.due, &parcel.holds);
            if !self.link.carries() {
                continue;
            }
            match parcel.content {
                // A client that has left needs no reply.
                Ok(bytes) => drop((&self.link.client).write_all(&bytes)),
                Err(ReplyLost::Silence) => self.hub.change(|_| self.link.go_dark()),
                // It is the last one.
                Err(ReplyLost::Cut) => {}
            }
        }
        if !self.link.is_dark() {
            self.hub.change(|_| self.link.end());
        }
    }
}

/// Whether the peer sent malformed input, which is printed. The end of a stream is not an error.
fn is_malformed(peer: &str, outcome: &io::Result<()>) -> bool {
    let error = outcome.as_ref().err().filter(|error| error.kind() == ErrorKind::InvalidData);
    error
        .inspect(|error| {
            eprintln!("the proxy closes a connection, because {peer} sent invalid data: {error}")
        })
        .is_some()
}
