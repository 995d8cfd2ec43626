//! Calls for locks of several slots of a cluster.
//!
//! A node refuses a call that declares keys of two slots, although it has both. But a script may use keys of its node that
//! the call does not declare. So plain operations, which read and write nothing but one text, are sent together for all slots
//! of a node: most operations are plain, and a call for each costs client and server several times as much.
//!
//! What is not plain after all, and what the node cannot read, because it has not got the slot, or not all of it, is not
//! done: it is put back, and sent to its slot in a call that declares its key, which the cluster redirects if it must.

use std::collections::HashSet;
use std::time::Duration;

use super::super::call::Call;
use super::super::link::Link;
use super::super::redirect::Redirect;
use super::super::resp::Reply;
use super::flight::{Flight, refuse};
use super::item::{Batch, Item};
use super::{Batcher, lines};
use crate::clock;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::error::StoreError;
use crate::sync::lock;

/// So many names are remembered whose locks were not plain. Beyond it all are forgotten: they are tried again, each at the
/// cost of a round trip.
const NAMES_KEPT: usize = 4096;

/// For how long calls are not spread after a server has refused every key that was not declared.
const PAUSE: Duration = Duration::from_secs(10);

const ALONE: &str = "-ALONE";
const ELSEWHERE: &str = "-ELSEWHERE";

/// Whether a line of an answer says that an operation was not performed.
pub(in crate::engine::redis) fn is_undone(line: &str) -> bool {
    matches!(line, ALONE | ELSEWHERE)
}

/// Which operations are sent in calls for several slots.
#[derive(Default)]
pub(super) struct Spreading {
    /// The names whose locks were not plain when they were last asked for.
    not_plain: HashSet<LockName>,
    paused_until: Option<Moment>,
}

impl Spreading {
    pub(super) fn takes(&self, item: &dyn Item) -> bool {
        item.is_plain()
            && !self.not_plain.contains(item.name())
            && self.paused_until.is_none_or(|until| clock::now() >= until)
    }

    fn is_not_plain(&mut self, name: &LockName) {
        if self.not_plain.len() >= NAMES_KEPT {
            self.not_plain.clear();
        }
        self.not_plain.insert(name.clone());
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
        let mut gathered = lock(&self.batcher.gathered);
        for (item, line) in std::mem::take(&mut self.batch).into_iter().zip(lines) {
            others += usize::from(item.slot() != self.slot);
            match line {
                ALONE => gathered.spreading.is_not_plain(item.name()),
                ELSEWHERE => unread += usize::from(item.slot() != self.slot),
                line => {
                    done.push((item, line));
                    continue;
                }
            }
            undone.push(item);
        }
        if unread == others {
            gathered.spreading.paused_until = Some(clock::now() + PAUSE);
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
