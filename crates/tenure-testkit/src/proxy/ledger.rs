//! Matches replies with requests: on one connection, replies arrive in the order of requests.
//!
//! Not every message from the server is a reply. Subscribers get unsolicited messages, and a
//! `SUBSCRIBE` gets one confirmation for each of its channels.

use std::collections::VecDeque;

use super::command::Command;
use super::subscriptions::{self, Subscriptions};
use crate::resp::Reply;

#[derive(Debug, Default)]
pub(super) struct Ledger {
    open: VecDeque<Entry>,
    subscriptions: Subscriptions,
}

#[derive(Debug)]
enum Entry {
    /// A request without its reply; the confirmations that it still gets, once the first has come.
    Request(Command, Option<usize>),
    /// A lost request: here the connection is cut.
    Cut,
}

/// The meaning of a message from the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The reply to this command, or the first of its confirmations.
    Reply(Command),
    /// A further confirmation of the same command.
    More,
    /// An unsolicited message.
    Message,
}

impl Ledger {
    /// Records a request, before it is sent.
    pub(super) fn expect(&mut self, command: Command) {
        self.open.push_back(Entry::Request(command, None));
    }

    /// Records that a request was lost. Returns whether all replies before it have arrived.
    pub(super) fn expect_cut(&mut self) -> bool {
        self.open.push_back(Entry::Cut);
        self.is_cut()
    }

    /// Whether the connection is to be cut now.
    pub(super) fn is_cut(&self) -> bool {
        matches!(self.open.front(), Some(Entry::Cut))
    }

    /// Classifies this message. Must be called once for each, in order.
    pub(super) fn meaning(&mut self, message: &Reply) -> Meaning {
        let Some(Entry::Request(command, left)) = self.open.front_mut() else {
            self.subscriptions.note(message);
            return Meaning::Message;
        };
        let is_confirmation =
            subscriptions::is_subscription(command) && subscriptions::confirms(message, command);
        if !is_confirmation {
            return self.plain_meaning(message);
        }
        let is_first = left.is_none();
        let expected = left.unwrap_or_else(|| self.subscriptions.confirmations(command));
        *left = Some(expected.saturating_sub(1));
        let command = command.clone();
        if expected <= 1 {
            self.open.pop_front();
        }
        self.subscriptions.note(message);
        if is_first { Meaning::Reply(command) } else { Meaning::More }
    }

    /// A message that confirms no subscription.
    fn plain_meaning(&mut self, message: &Reply) -> Meaning {
        if self.subscriptions.is_message(message) {
            self.subscriptions.note(message);
            return Meaning::Message;
        }
        let Some(Entry::Request(command, _)) = self.open.pop_front() else {
            return Meaning::Message;
        };
        if command.name() == "RESET" {
            self.subscriptions.end();
        }
        Meaning::Reply(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::decode::Message;

    fn decoded(text: &str) -> Reply {
        Message::read(&mut text.as_bytes()).unwrap().unwrap().value
    }

    /// A message of words; the first character of the text is its kind.
    fn message(text: &str) -> Reply {
        let (kind, words) = text.split_at(1);
        let words: Vec<_> = words.split(' ').collect();
        let mut bytes = format!("{kind}{}\r\n", words.len());
        words.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
        decoded(&bytes)
    }

    fn status(line: &str) -> Reply {
        decoded(&format!("{line}\r\n"))
    }

    fn command(text: &str) -> Command {
        Command::parse(&message(&format!("*{text}"))).unwrap()
    }

    fn ledger(commands: &[&str]) -> Ledger {
        let mut ledger = Ledger::default();
        commands.iter().for_each(|text| ledger.expect(command(text)));
        ledger
    }

    #[test]
    fn replies_answer_requests_in_order() {
        let mut ledger = ledger(&["GET a", "LRANGE b 0 9"]);
        assert_eq!(ledger.meaning(&status("$-1")), Meaning::Reply(command("GET a")));
        // Without a subscription this is a list like any other.
        let list = ledger.meaning(&message("*message x y"));
        assert_eq!(list, Meaning::Reply(command("LRANGE b 0 9")));
        assert_eq!(ledger.meaning(&status("-ERR going down")), Meaning::Message);
    }

    #[test]
    fn a_subscription_is_confirmed_for_each_channel_and_messages_come_between() {
        for kind in ['*', '>'] {
            let mut ledger = ledger(&["SUBSCRIBE a b", "PING"]);
            let mut meaning = |text: &str| ledger.meaning(&message(&format!("{kind}{text}")));
            assert_eq!(meaning("subscribe a 1"), Meaning::Reply(command("SUBSCRIBE a b")));
            assert_eq!(meaning("message a hello"), Meaning::Message);
            assert_eq!(meaning("subscribe b 2"), Meaning::More);
            assert_eq!(meaning("message b hello"), Meaning::Message);
            assert_eq!(ledger.meaning(&status("+PONG")), Meaning::Reply(command("PING")));
        }
    }

    #[test]
    fn to_end_all_subscriptions_is_confirmed_for_each_or_once() {
        let mut ledger = ledger(&["SUBSCRIBE a b", "PSUBSCRIBE c", "UNSUBSCRIBE", "UNSUBSCRIBE"]);
        for text in ["*subscribe a 1", "*subscribe b 2", "*psubscribe c 3"] {
            ledger.meaning(&message(text));
        }
        let end = || Meaning::Reply(command("UNSUBSCRIBE"));
        assert_eq!(ledger.meaning(&message("*unsubscribe a 2")), end());
        assert_eq!(ledger.meaning(&message("*unsubscribe b 1")), Meaning::More);
        assert_eq!(ledger.meaning(&status("*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:1")), end());
        assert_eq!(ledger.meaning(&message("*pmessage c x y")), Meaning::Message);
        assert!(ledger.open.is_empty());
    }

    #[test]
    fn a_refused_subscription_gets_one_reply() {
        let mut ledger = ledger(&["SUBSCRIBE a b", "PING"]);
        let refused = ledger.meaning(&status("-NOPERM"));
        assert_eq!(refused, Meaning::Reply(command("SUBSCRIBE a b")));
        assert_eq!(ledger.meaning(&status("+PONG")), Meaning::Reply(command("PING")));
    }

    #[test]
    fn after_a_reset_a_list_is_a_list() {
        let mut ledger = ledger(&["SUBSCRIBE a", "RESET", "LRANGE b 0 9"]);
        ledger.meaning(&message("*subscribe a 1"));
        assert_eq!(ledger.meaning(&status("+RESET")), Meaning::Reply(command("RESET")));
        let list = ledger.meaning(&message("*message x y"));
        assert_eq!(list, Meaning::Reply(command("LRANGE b 0 9")));
    }

    #[test]
    fn a_lost_request_cuts_after_the_replies_before_it() {
        let mut ledger = ledger(&["GET a"]);
        assert!(!ledger.expect_cut());
        ledger.meaning(&status("$-1"));
        assert!(ledger.is_cut());
        assert!(Ledger::default().expect_cut());
    }
}
