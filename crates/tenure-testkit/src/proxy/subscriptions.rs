//! What one connection has subscribed to, as the server has confirmed it.
//!
//! Needed for two things: to know how many confirmations an `UNSUBSCRIBE` without channels gets, and,
//! in RESP 2, to know whether an array that begins with `message` is one.

use std::collections::HashSet;

use super::command::Command;
use super::frame::Frame;

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
pub(super) fn confirms(frame: &Frame, command: &Command) -> bool {
    let may = frame.is_push() || frame.is_array();
    may && frame.item(0).is_some_and(|word| word.eq_ignore_ascii_case(command.name().as_bytes()))
}

impl Subscriptions {
    /// How many confirmations the command gets, as things are when it is executed.
    pub(super) fn confirmations(&self, command: &Command) -> usize {
        let named = command.args().len();
        let kind = KINDS.iter().position(|name| *name == command.name());
        match kind {
            // To end all, of which there may be none, still gets an answer.
            Some(kind) if named == 0 => self.0[kind].len().max(1),
            _ => named,
        }
    }

    /// Notes a confirmation, whether it was asked for or not.
    pub(super) fn note(&mut self, confirmation: &Frame) {
        let (Some(word), Some(channel)) = (confirmation.item(0), confirmation.item(1)) else {
            return;
        };
        let is = |name: &&str| word.eq_ignore_ascii_case(name.as_bytes());
        if let Some(kind) = BEGIN.iter().position(is) {
            self.0[kind].insert(channel.to_vec());
        } else if let Some(kind) = KINDS.iter().position(is) {
            self.0[kind].remove(channel);
        }
    }

    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    /// Whether this came without a request. A server also ends subscriptions on its own, when a shard
    /// moves; the caller has made sure that this confirms nothing.
    pub(super) fn is_message(&self, frame: &Frame) -> bool {
        let is_subscribed = self.0.iter().any(|channels| !channels.is_empty());
        let word = frame.item(0).unwrap_or_default();
        let is_array = || MESSAGES.contains(&word) || word == b"sunsubscribe";
        frame.is_push() || (is_subscribed && frame.is_array() && is_array())
    }
}
