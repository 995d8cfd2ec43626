//! Calls for locks of several slots of a cluster.
//!
//! A node refuses a call that declares keys of two slots, although it has both. But a script may use keys of its node that
//! the call does not declare. So plain operations, which read and write nothing but one text, are sent together for all slots
//! of a node: most operations are plain, and a call for each costs client and server several times as much.
//!
//! What is not plain after all, and what the node cannot read, because it has not got the slot, or not all of it, is not
//! done: it is put back, and sent to its slot in a call that declares its key, which the cluster redirects if it must.

use std::collections::HashMap;
use std::time::Duration;

use super::super::call::Call;
use super::super::link::Link;
use super::super::redirect::Redirect;
use super::super::resp::Reply;
use super::flight::{Flight, refuse};
use super::item::{Batch, Item};
use super::lane::Locks;
use super::{Batcher, lines};
use crate::clock;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::error::StoreError;
use crate::sync::lock;

/// For how long the operations of a name are not spread after its lock was not plain, or could not be read: it costs a
/// round trip to try.
const NOT_PLAIN_FOR: Duration = Duration::from_secs(3);

/// So many such names are remembered. Beyond it all are forgotten.
const NAMES_KEPT: usize = 4096;

/// For how long calls to a node are not spread after it has refused every key that was not declared, of so many slots at
/// least: fewer may be in transit, or have moved.
const PAUSE: Duration = Duration::from_secs(10);
const REFUSED_SLOTS: usize = 3;

const ALONE: &str = "-ALONE";
const ELSEWHERE: &str = "-ELSEWHERE";

/// Whether a line of an answer says that an operation was not performed.
pub(in crate::engine::redis) fn is_undone(line: &str) -> bool {
    matches!(line, ALONE | ELSEWHERE)
}

/// Which operations are sent in calls for several slots.
#[derive(Default)]
pub(super) struct Spreading {
    /// The names whose locks were not plain when they were last asked for, and when.
    not_plain: HashMap<LockName, Moment>,
    /// The nodes to which calls are not spread, and until when.
    paused: HashMap<u64, Moment>,
}

impl Spreading {
    /// Whether an operation may be sent with others to this node.
    pub(super) fn takes(&self, item: &dyn Item, node: u64) -> bool {
        item.is_plain() && !self.is_excluded(item.name(), node)
    }

    fn is_excluded(&self, name: &LockName, node: u64) -> bool {
        // Mostly there are none, and then no clock is read.
        let found = (self.not_plain.get(name), self.paused.get(&node));
        if found == (None, None) {
            return false;
        }
        let now = clock::now();
        found.0.is_some_and(|since| now.since(*since) < NOT_PLAIN_FOR)
            || found.1.is_some_and(|until| now < *until)
    }

    fn is_not_plain(&mut self, name: &LockName, now: Moment) {
        if self.not_plain.len() >= NAMES_KEPT {
            self.not_plain.retain(|_, since| now.since(*since) < NOT_PLAIN_FOR);
        }
        if self.not_plain.len() >= NAMES_KEPT {
            self.not_plain.clear();
        }
        self.not_plain.insert(name.clone(), now);
    }

    fn pause(&mut self, node: u64, now: Moment) {
        self.paused.retain(|_, until| now < *until);
        self.paused.insert(node, now + PAUSE);
    }
}

impl Flight {
    /// The call of the script's plain case. The first key is declared; the others follow the arguments.
    pub(super) fn spread_call(&self, link: &Link) -> Call {
        let script = self.script.spread().unwrap_or(self.script);
        let names: Vec<_> = self.batch.iter().map(|item| item.name()).collect();
        link.prepare_spread(script, &names, &self.batcher.client, |command| {
            for item in &self.batch {
                // Other operations than acquires do not name the client.
                let client = item.is_acquire().then(|| self.batcher.client_in(item.slot()));
                let client = client.as_deref().unwrap_or(&self.batcher.client);
                item.arguments(link.common(client), command);
            }
        })
    }

    /// Another node has the slot of the first lock. Which nodes have the others, they say themselves.
    pub(super) fn redirected_spread(self, redirect: &Redirect) {
        // An error is not lost: the first lock's node is asked again.
        let _ = self.batcher.routes.follow(self.slot, redirect);
        self.put_back(false, None);
    }

    /// Answers the operations that were performed, and puts the others back.
    pub(super) fn answer_spread(mut self, result: Result<Reply, StoreError>) {
        let lines = match &result {
            // The node has refused it because of the first lock, perhaps.
            Err(error) if error.is_answer() && !error.is_unknown() => {
                return self.put_back(false, None);
            }
            Err(_) => None,
            Ok(reply) => lines(reply).ok(),
        };
        let Some(lines) = lines.filter(|lines| lines.clone().count() == self.batch.len()) else {
            return self.answer(result);
        };
        let (mut done, mut undone) = (Vec::new(), Batch::new());
        let (mut others, mut unread) = (0, 0);
        let now = clock::now();
        let mut gathered = lock(&self.batcher.gathered);
        for (item, line) in std::mem::take(&mut self.batch).into_iter().zip(lines) {
            others += usize::from(item.slot() != self.slot);
            match line {
                ALONE => gathered.spreading.is_not_plain(item.name(), now),
                ELSEWHERE => {
                    gathered.spreading.is_not_plain(item.name(), now);
                    unread += usize::from(item.slot() != self.slot);
                }
                line => {
                    done.push((item, line));
                    continue;
                }
            }
            undone.push(item);
        }
        if let (Locks::On(node), true) = (self.lane.locks, unread == others)
            && unread >= REFUSED_SLOTS
        {
            gathered.spreading.pause(node, now);
        }
        drop(gathered);
        let refused = self.put_back_some(undone, false, None);
        self.end();
        refuse(refused);
        let again = done.into_iter().filter_map(|(item, line)| item.complete(Ok(Some(line))));
        self.continue_with(again.collect());
    }
}

impl Batcher {
    /// The client's id, as it is stored with the locks of a slot.
    pub(super) fn client_in(&self, slot: u16) -> std::borrow::Cow<'_, str> {
        self.routes.client(&self.client, slot)
    }
}
