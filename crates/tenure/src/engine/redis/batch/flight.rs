//! A call in flight, until its operations are answered, sent again or put back.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::call::Call;
use super::super::errors::may_be_about_one;
use super::super::link::{Link, closed};
use super::super::redirect::{self, Redirect};
use super::super::resp::Reply;
use super::super::scripts::Script;
use super::super::topics::Topic;
use super::Batcher;
use super::flights::FlightId;
use super::gathered::{Asks, Waiting};
use super::item::{Batch, Item, Rest, distribute, fail};
use super::lane::LaneKey;
use super::slots::SlotsOfCall;
use crate::clock;
use crate::error::StoreError;
use crate::sync::lock;

/// A call in flight. Dropped without an answer, its effect is unknown.
pub(super) struct Flight {
    pub(super) batcher: Arc<Batcher>,
    pub(super) id: FlightId,
    pub(super) lane: LaneKey,
    pub(super) slots: SlotsOfCall,
    pub(super) script: &'static Script,
    /// The slot of the first lock.
    pub(super) slot: u16,
    /// Other locks are of other slots.
    pub(super) is_spread: bool,
    /// The connection it is on.
    pub(super) link: Option<Arc<Link>>,
    pub(super) batch: Batch,
}

impl Flight {
    /// The call of the script.
    pub(super) fn call(&self, link: &Link) -> Call {
        if self.is_spread {
            return self.spread_call(link);
        }
        let client = self.batcher.client_in(self.slot);
        let names = self.batch.iter().map(|item| item.name());
        let mut call = link.prepare(self.script, names, &client);
        let common = link.common(&client);
        self.batch.iter().for_each(|item| item.arguments(common, &mut call.command));
        call
    }

    /// The server does not have the script: it is sent along with the next call.
    pub(super) fn miss_script(self, call: &Call) {
        match &self.link {
            Some(link) if self.is_spread => {
                self.script.spread().into_iter().for_each(|it| link.load(it))
            }
            Some(link) => lock(&self.batcher.gathered)
                .send_texts(self.slot, |script| link.is_text_sent_since(script, call)),
            None => {}
        }
        self.put_back(false, None);
    }

    /// Handles the answer: first sends the next call, then answers the operations.
    pub(super) fn complete(self, result: Result<Reply, StoreError>) {
        match result {
            Err(error) if self.batch.len() > 1 && may_be_about_one(&error) => {
                self.put_back(true, None);
            }
            result => match result.as_ref().ok().and_then(|reply| self.redirect(reply)) {
                Some(redirect) if self.is_spread => self.redirected_spread(&redirect),
                Some(redirect) => self.redirected(&redirect),
                None if self.is_spread => self.answer_spread(result),
                None => self.answer(result),
            },
        }
    }

    pub(super) fn answer(mut self, result: Result<Reply, StoreError>) {
        let batch = std::mem::take(&mut self.batch);
        self.end();
        let Batcher { routes, client, .. } = &*self.batcher;
        let unheard = |item: &dyn Item| routes.unheard(client, item.name(), item.kind());
        let Rest { again, unheard } = distribute(batch, result, unheard);
        self.continue_with(again);
        self.hold_back(unheard);
    }

    /// Where the node has redirected this call to.
    fn redirect(&self, reply: &Reply) -> Option<Redirect> {
        self.link.as_ref().and_then(|link| redirect::read(reply, &link.address))
    }

    /// Another node of the cluster has the slot: the call was not performed, and is sent there.
    fn redirected(mut self, redirect: &Redirect) {
        let count =
            |is_before: bool, item: &mut Box<dyn Item>| item.is_redirected_too_often() || is_before;
        let followed = if self.batch.iter_mut().fold(false, count) {
            Err(redirect::too_often())
        } else {
            self.batcher.routes.follow(self.slot, redirect)
        };
        match followed {
            Ok((node, is_asking)) => {
                let asks = is_asking.then(|| Asks { node, since: clock::now() });
                self.put_back(is_asking, asks);
            }
            Err(error) => self.answer(Err(error)),
        }
    }

    /// The call was not performed. Its operations are sent again, unless they would come too late.
    pub(super) fn put_back(mut self, is_alone: bool, asks: Option<Asks>) {
        let batch = std::mem::take(&mut self.batch);
        let refused = self.put_back_some(batch, is_alone, asks.as_ref());
        self.end();
        refuse(refused);
    }

    /// These operations of the call were not performed. They are sent again, to their slots; returns those that would
    /// come too late.
    pub(super) fn put_back_some(&self, batch: Batch, is_alone: bool, asks: Option<&Asks>) -> Batch {
        let mut gathered = lock(&self.batcher.gathered);
        let acquires = batch.iter().filter(|item| item.is_acquire()).map(|item| &**item);
        let ended = gathered.flights.ended_after(self.id, acquires);
        // The cancel of an acquire whose answer was dropped may have been answered, by another node of a cluster.
        let (refused, again): (Batch, Batch) = batch.into_iter().partition(|item| {
            let is_ended = || ended.contains(&(item.name().clone(), item.owner()));
            item.is_acquire() && (item.is_dropped() || is_ended())
        });
        // In reverse, so that names become ready in order.
        for mut item in again.into_iter().rev() {
            item.set_node(None);
            gathered.put_back(Waiting { item, is_alone, asks: asks.cloned() });
        }
        refused
    }

    /// Sends the continuations of this call's operations.
    pub(super) fn continue_with(&self, items: Batch) {
        if items.is_empty() {
            return;
        }
        let mut gathered = lock(&self.batcher.gathered);
        let (late, again): (Batch, Batch) = items
            .into_iter()
            .partition(|item| item.is_acquire() && gathered.is_given_up(&**item, self.id));
        again.into_iter().for_each(|item| gathered.add(item));
        self.batcher.send_all_ready(gathered);
        refuse(late);
    }

    /// Holds back acquires that have begun to wait where wake-ups do not arrive yet; they are sent again when they do, and
    /// so learn of a grant or a release that was published before.
    fn hold_back(&self, items: Vec<(Box<dyn Item>, Topic)>) {
        if items.is_empty() {
            return;
        }
        let mut late = Batch::new();
        let mut by_topic: BTreeMap<Topic, Batch> = BTreeMap::new();
        let mut gathered = lock(&self.batcher.gathered);
        for (item, topic) in items {
            if gathered.is_given_up(&*item, self.id) {
                late.push(item);
            } else {
                gathered.hold_back(&*item);
                by_topic.entry(topic).or_default().push(item);
            }
        }
        drop(gathered);
        refuse(late);
        for (topic, items) in by_topic {
            let batcher = self.batcher.clone();
            let heard = Box::new(move || batcher.send_held_back(items));
            self.batcher.routes.wait_in(topic, heard);
        }
    }

    /// The call is no longer in flight: sends the calls that have waited for it.
    pub(super) fn end(&mut self) {
        let slots = std::mem::take(&mut self.slots);
        let mut gathered = lock(&self.batcher.gathered);
        gathered.land(self.lane, slots);
        self.batcher.send_all_ready(gathered);
    }
}

/// Answers acquires that were not performed, and must not be sent again.
pub(super) fn refuse(items: Batch) {
    fail(
        items,
        StoreError::refused("the lock was released or cancelled before it could be acquired"),
    );
}

impl Drop for Flight {
    fn drop(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if !batch.is_empty() {
            self.end();
            fail(batch, closed());
        }
        // Only now: until here its operations may have been sent again.
        lock(&self.batcher.gathered).flights.complete(self.id);
    }
}
