//! The subscriptions of one connection, as the server has confirmed them.
//!
//! Needed for two things: to know how many confirmations an `UNSUBSCRIBE` without channels gets, and,
//! in RESP 2, to know whether an array that begins with `message` is one.

use std::collections::HashSet;

use super::command::Command;
use crate::resp::Reply;

/// Channels, patterns and shard channels, by the commands that end them.
const KINDS: [&str; 3] = ["UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"];
const BEGIN: [&str; 3] = ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"];
const MESSAGES: [&[u8]; 3] = [b"message", b"pmessage", b"smessage"];

#[derive(Debug, Default)]
pub(super) struct Subscriptions([HashSet<Vec<u8>>; 3]);

/// Whether replies to this command are confirmations, one for each channel.
pub(super) fn is_subscription(command: &Command) -> bool {
    BEGIN.contains(&command.name()) || KINDS.contains(&command.name())
}

/// Whether this confirms that command.
pub(super) fn confirms(message: &Reply, command: &Command) -> bool {
    let kind = message.elements().first().and_then(Reply::bytes);
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case(command.name().as_bytes()))
}

impl Subscriptions {
    /// How many confirmations the command gets, given the subscriptions when it is executed.
    pub(super) fn confirmations(&self, command: &Command) -> usize {
        let named = command.args().len();
        let kind = KINDS.iter().position(|name| *name == command.name());
        match kind {
            // Unsubscribing from all gets one reply even if there are none.
            Some(kind) if named == 0 => self.0[kind].len().max(1),
            _ => named,
        }
    }

    /// Records a confirmation, requested or not.
    pub(super) fn note(&mut self, confirmation: &Reply) {
        let mut elements = confirmation.elements().iter().map(Reply::bytes);
        let (Some(Some(kind)), Some(Some(channel))) = (elements.next(), elements.next()) else {
            return;
        };
        let is = |name: &&str| kind.eq_ignore_ascii_case(name.as_bytes());
        if let Some(kind) = BEGIN.iter().position(is) {
            self.0[kind].insert(channel.to_vec());
        } else if let Some(kind) = KINDS.iter().position(is) {
            self.0[kind].remove(channel);
        }
    }

    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// Whether this is unsolicited. A server also ends subscriptions by itself, when a shard moves; the caller
    /// has made sure that this confirms nothing.
    pub(super) fn is_message(&self, message: &Reply) -> bool {
        let is_subscribed = self.0.iter().any(|channels| !channels.is_empty());
        let kind = message.elements().first().and_then(Reply::bytes).unwrap_or_default();
        let is_known = MESSAGES.contains(&kind) || kind == b"sunsubscribe";
        matches!(message, Reply::Push(_)) || (is_subscribed && is_known)
    }
}
