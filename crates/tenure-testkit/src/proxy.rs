//! A proxy between a client and a server, which drops, delays and holds whole messages on demand.
//!
//! It decodes the protocol: faults apply to requests and replies, not to bytes, and each reply is matched with
//! its request. So a test can drop exactly the reply to the second SET.
//!
//! Each connection has two threads per direction: one reads messages and applies the rules (`rules`), one
//! forwards them when they are due (`pump`). The directions never block each other, order is always kept,
//! and a delay counts from a message's arrival, as on a long wire. All shared state is in the `hub`.

mod acceptor;
mod command;
mod hub;
mod ledger;
mod link;
mod pump;
mod rules;
mod subscriptions;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::endpoint::Endpoint;
use crate::resp::Connection;
use crate::server::Server;
use crate::wait;
use acceptor::Acceptor;
use hub::Hub;
use rules::{Effect, Matching};

pub use command::Command;
pub use rules::Rule;

/// How long [`Proxy::wait_until`] waits: far longer than anything takes, short enough to be noticed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Requests, from the client to the server.
    Requests,
    /// Replies, from the server to the client.
    Replies,
}

/// How a lost reply appears to the client. (Dropping the reply alone would shift all later ones.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyLost {
    /// The connection is closed instead of the reply.
    Cut,
    /// The connection stays open but carries nothing any more, in either direction: a black hole.
    Silence,
}

/// A proxy in front of a server, which ends, with all its connections, when this is dropped.
///
/// The functions given as `matching` run inside it, so they must not call it.
#[must_use = "the proxy ends when this is dropped"]
pub struct Proxy {
    hub: Arc<Hub>,
    acceptor: Acceptor,
    endpoint: Endpoint,
}

impl Proxy {
    /// Starts a proxy to this server, on a free port of 127.0.0.1. The server may be restarted.
    pub fn start(server: &Server) -> Self {
        let (endpoint, listener) = Endpoint::listen();
        let hub = Arc::new(Hub::new(server.endpoint().clone()));
        let acceptor = Acceptor::start(&hub, listener);
        Self { hub, acceptor, endpoint }
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
    /// If it could not be opened. One that is refused opens, and is closed at once.
    pub fn connect(&self) -> io::Result<Connection> {
        self.endpoint.connect()
    }
}

/// Faults of single messages. Each is a rule that stays until it is removed; several may apply at once.
impl Proxy {
    /// Loses the `nth` reply, counted from now and from 1, to a matching command. The server has
    /// executed the command; replies before it still arrive.
    ///
    /// # Panics
    ///
    /// If `nth` is 0.
    pub fn drop_reply(
        &self,
        matching: impl Fn(&Command) -> bool + Send + 'static,
        nth: usize,
        how: ReplyLost,
    ) -> Rule {
        self.lose(Direction::Replies, Box::new(matching), nth, how)
    }

    /// Loses the `nth` matching request, counted from now and from 1, and later ones on its
    /// connection. The replies to those before it still arrive, then the connection is cut.
    ///
    /// # Panics
    ///
    /// If `nth` is 0.
    pub fn drop_request(
        &self,
        matching: impl Fn(&Command) -> bool + Send + 'static,
        nth: usize,
    ) -> Rule {
        self.lose(Direction::Requests, Box::new(matching), nth, ReplyLost::Cut)
    }

    /// Delays matching requests, or the replies to them. Later messages on the connection wait behind them.
    pub fn delay(
        &self,
        matching: impl Fn(&Command) -> bool + Send + 'static,
        direction: Direction,
        duration: Duration,
    ) -> Rule {
        self.add(direction, Box::new(matching), Effect::Delay(duration))
    }

    /// Holds matching requests, or the replies to them, and later messages on their connection,
    /// until [`Proxy::release`]. A held request reaches the server even if its client has left.
    pub fn hold(
        &self,
        matching: impl Fn(&Command) -> bool + Send + 'static,
        direction: Direction,
    ) -> Rule {
        self.add(direction, Box::new(matching), Effect::Hold)
    }

    /// Forwards all messages that are held, and ends the rules that held them.
    pub fn release(&self) {
        self.hub.change(|state| state.rules.release());
    }

    /// Ends a rule. Messages that it held are forwarded; those that it delayed stay delayed.
    pub fn remove(&self, rule: Rule) {
        self.hub.change(|state| state.rules.remove(rule));
    }

    /// Ends all rules.
    pub fn remove_all(&self) {
        self.hub.change(|state| state.rules.remove_all());
    }

    /// How many messages the rule has lost, delayed or held, also after its end. A reply counts when it
    /// has come from the server, so its command has been executed by then.
    #[must_use]
    pub fn strikes(&self, rule: Rule) -> usize {
        self.hub.read(|state| state.rules.strikes(rule))
    }

    fn lose(&self, direction: Direction, matching: Matching, nth: usize, how: ReplyLost) -> Rule {
        assert!(nth > 0, "the first message is number 1");
        self.add(direction, matching, Effect::Lose { nth, how })
    }

    fn add(&self, direction: Direction, matching: Matching, effect: Effect) -> Rule {
        self.hub.change(|state| state.rules.add(direction, matching, effect))
    }
}

/// Faults of whole connections.
impl Proxy {
    /// From now on no message passes: all connections stay open but carry nothing any more, not even their
    /// end, and new ones are the same. Messages that are delayed or held on them are lost.
    pub fn black_hole(&self) {
        self.hub.change(|state| state.go_dark());
    }

    /// New connections work again. Those that were dark stay so.
    pub fn heal(&self) {
        self.hub.change(|state| state.is_dark = false);
    }

    /// Closes all connections now. Messages that are delayed or held on them are lost.
    pub fn cut(&self) {
        self.hub.change(|state| state.close_links());
    }

    /// Whether new connections are closed at once.
    pub fn refuse(&self, refuses: bool) {
        self.hub.change(|state| state.refuses = refuses);
    }

    /// New connections lead to this server. Those that are open stay where they are, as behind an address
    /// that is forwarded.
    pub fn forward_to(&self, server: &Server) {
        self.hub.change(|state| state.endpoint = server.endpoint().clone());
    }

    /// Whether messages to subscribers (and all else that RESP 3 pushes) are lost.
    pub fn drop_messages(&self, drops: bool) {
        self.hub.change(|state| state.drops_messages = drops);
    }
}

/// The record of the traffic.
impl Proxy {
    /// The commands that clients sent, in order, including lost ones; not those behind a lost request.
    /// All are kept until [`Proxy::forget`].
    #[must_use]
    pub fn requests(&self) -> Vec<Command> {
        self.hub.read(|state| state.record.clone())
    }

    /// How many commands of each kind clients sent, by their [`Command::label`].
    #[must_use]
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for command in self.requests() {
            *counts.entry(command.label()).or_default() += 1;
        }
        counts
    }

    /// How many matching commands clients sent.
    #[must_use]
    pub fn seen(&self, matching: impl Fn(&Command) -> bool) -> usize {
        self.requests().iter().filter(|command| matching(command)).count()
    }

    /// How many messages the server sent to subscribers, counting each subscriber, lost ones included.
    #[must_use]
    pub fn messages(&self) -> usize {
        self.hub.read(|state| state.messages)
    }

    /// Starts the record of commands and the count of messages afresh.
    pub fn forget(&self) {
        self.hub.change(|state| {
            state.record.clear();
            state.messages = 0;
        });
    }

    /// How many connections are open now, dark ones included.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.hub.read(|state| state.links.iter().filter(|link| link.is_open()).count())
    }

    /// Waits until a condition holds, for example `|proxy| proxy.strikes(rule) == 1`.
    ///
    /// # Panics
    ///
    /// If it does not hold within ten seconds; the message names `what`.
    #[track_caller]
    pub fn wait_until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let outcome = wait::until(PATIENCE, || condition(self).then_some(()));
        assert!(outcome.is_some(), "timed out after {PATIENCE:?} waiting until {what}");
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.hub.change(|state| state.is_over = true);
        // The acceptor first: without it no connection can be added.
        self.acceptor.end(&self.endpoint);
        let threads = self.hub.change(|state| {
            state.close_links();
            std::mem::take(&mut state.threads)
        });
        for thread in threads {
            // A thread that panicked has already printed its message.
            let _ = thread.join();
        }
    }
}
