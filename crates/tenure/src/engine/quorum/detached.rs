//! Holds that now belong to the process with their handle, and the nodes that may still grant one of them.
//!
//! A node that had not answered when a hold was detached may get the request later: after the process with the handle has
//! released it, so that no one would end it there. This client does not know when that is. So it asks the nodes from
//! time to time: once a majority of them has no such holder, the hold was released, and the entry is ended at that node (I6).
//! Not before, because the process may rely on that node by then (I1).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::Quorum;
use super::attempt::Attempt;
use crate::clock;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::engine::{Acquired, CancelRequest};
use crate::error::StoreError;
use crate::info::LockInfo;
use crate::owner::{Entry, Owner};
use crate::sync::lock;

/// How late a message about a hand-over may come, beyond the leases.
const LATE_MESSAGE: Duration = Duration::from_secs(60);

/// How soon the nodes are asked whether a hold was released. Doubled each time, up to the longest pause.
const FIRST_LOOK: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// How many of them are looked at in one go.
const AT_ONCE: usize = 64;

/// How many are remembered. Without that they end with their leases.
const MOST_UNSURE: usize = 10_000;

#[derive(Default)]
pub(super) struct Detached {
    /// Until when a message about a hold may come, by each entry that its client or a node knows it by.
    holds: Untils,
    unsure: Mutex<HashMap<Unsure, Looks>>,
    /// Until when a release by a handle may end what a node has.
    releases: Untils,
}

/// An entry of a detached hold that a node may get late.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Unsure {
    node: usize,
    name: LockName,
    entry: Entry,
}

/// When the nodes are asked about one.
struct Looks {
    /// By then it has ended by itself.
    until: Moment,
    look_at: Moment,
    pause: Duration,
}

impl Detached {
    /// This client releases a hold by its handle.
    pub(super) fn note_release(&self, name: &LockName, entry: Entry, until: Moment) {
        insert(&self.releases, name, entry, until);
    }

    /// Every node has confirmed the release that was noted until this moment. A later one may have been noted since.
    pub(super) fn note_released(&self, name: &LockName, entry: Entry, until: Moment) {
        let (key, mut releases) = ((name.clone(), entry), lock(&self.releases));
        if releases.get(&key) == Some(&until) {
            releases.remove(&key);
        }
    }

    pub(super) fn is_releasing(&self, name: &LockName, entry: Entry) -> bool {
        has(&self.releases, name, entry)
    }

    fn add(&self, node: usize, name: LockName, entry: Entry, until: Moment) {
        let mut unsure = lock(&self.unsure);
        if unsure.len() < MOST_UNSURE {
            let looks = Looks { until, look_at: clock::now() + FIRST_LOOK, pause: FIRST_LOOK };
            unsure.insert(Unsure { node, name, entry }, looks);
        }
    }

    /// Those to look at now. Each of them is looked at again later, unless it is removed.
    fn due(&self, is_well: impl Fn(usize) -> bool) -> Vec<Unsure> {
        let (now, mut unsure) = (clock::now(), lock(&self.unsure));
        unsure.retain(|_, looks| looks.until > now);
        let is_due = |(it, looks): &(&Unsure, &mut Looks)| looks.look_at <= now && is_well(it.node);
        let mut due: Vec<_> = unsure.iter_mut().filter(is_due).collect();
        // Those that have waited longest: with very many of them, none waits for ever.
        due.sort_by_key(|(_, looks)| looks.look_at);
        let due = due.into_iter().take(AT_ONCE).map(|(it, looks)| {
            looks.pause = (looks.pause * 2).min(LONGEST_PAUSE);
            looks.look_at = now + looks.pause;
            it.clone()
        });
        due.collect()
    }

    /// The nodes that may get an entry of this hold late, one bit each.
    fn unsure_of(&self, name: &LockName, owner: Owner) -> u8 {
        let unsure = lock(&self.unsure);
        let of_hold = unsure.keys().filter(|it| it.name == *name && it.entry.owner == owner);
        of_hold.fold(0, |nodes, it| nodes | 1 << it.node)
    }
}

type Untils = Mutex<HashMap<(LockName, Entry), Moment>>;

fn insert(untils: &Untils, name: &LockName, entry: Entry, until: Moment) {
    let (now, mut untils) = (clock::now(), lock(untils));
    // Whenever the number has doubled, so that each costs the same.
    if untils.len().is_power_of_two() {
        untils.retain(|_, until| *until > now);
    }
    untils.insert((name.clone(), entry), until);
}

fn has(untils: &Untils, name: &LockName, entry: Entry) -> bool {
    let untils = lock(untils);
    let until = if untils.is_empty() { None } else { untils.get(&(name.clone(), entry)) };
    until.is_some_and(|until| *until > clock::now())
}

impl Quorum {
    /// A hold now belongs to the process that has its handle.
    pub(super) fn note_detached(&self, attempts: &[Arc<Attempt>]) {
        let until = clock::now() + self.longest * 2 + LATE_MESSAGE;
        for (attempt, entry) in self.known_entries(attempts) {
            insert(&self.detached.holds, &attempt.request.name, entry, until);
        }
    }

    /// The entries by which this client and the nodes know a hold.
    fn known_entries<'a>(
        &self,
        attempts: &'a [Arc<Attempt>],
    ) -> impl Iterator<Item = (&'a Arc<Attempt>, Entry)> + use<'a> {
        let nodes = self.nodes.len();
        attempts.iter().flat_map(move |attempt| {
            let at_nodes = (0..nodes).map(move |node| attempt.entry_at(node));
            at_nodes.chain([attempt.request.entry]).map(move |entry| (attempt, entry))
        })
    }

    /// A hold that was noted as detached was not, because its owner has other entries.
    pub(super) fn note_kept(&self, attempts: &[Arc<Attempt>]) {
        for (attempt, entry) in self.known_entries(attempts) {
            lock(&self.detached.holds).remove(&(attempt.request.name.clone(), entry));
        }
    }

    /// Watches the nodes of which it is not known whether they have, or will get, the entry of an attempt.
    pub(super) fn watch_unsure(&self, attempt: &Attempt) {
        let nodes = 0..self.nodes.len();
        nodes
            .filter(|node| attempt.is_unsure_at(*node))
            .for_each(|node| self.watch_late(node, attempt));
    }

    /// Whether a hold of this client was detached, not long ago.
    pub(super) fn is_detached(&self, name: &LockName, entry: Entry) -> bool {
        has(&self.detached.holds, name, entry)
    }

    /// A node has answered a request. If the hold was detached meanwhile, it may have been released, too.
    pub(super) fn answered_late(
        &self,
        node: usize,
        attempt: &Attempt,
        result: &Result<Acquired, StoreError>,
    ) {
        let may_have = match result {
            Ok(Acquired::Granted(_) | Acquired::Queued(_)) => true,
            Ok(_) => false,
            Err(error) => error.is_unknown(),
        };
        if may_have && attempt.is_let_go() {
            self.watch_late(node, attempt);
        }
    }

    /// Ends the entry of an attempt at a node, once the hold was released.
    pub(super) fn watch_late(&self, node: usize, attempt: &Attempt) {
        let until = self.over(&attempt.request);
        self.detached.add(node, attempt.request.name.clone(), attempt.entry_at(node), until);
    }

    /// A node has, or may have, this entry of a detached hold.
    pub(super) fn watch_entry(&self, node: usize, name: LockName, entry: Entry) {
        self.detached.add(node, name, entry, clock::now() + self.longest * 2);
    }

    /// Ends what nodes were granted late of holds that were released by their handles.
    pub(super) fn end_released(self: &Arc<Self>) {
        for unsure in self.detached.due(|node| self.nodes[node].is_well()) {
            let ask = |name: &LockName| {
                self.nodes.iter().map(|it| it.engine().inspect(name.clone())).collect()
            };
            let (quorum, answers) = (self.clone(), ask(&unsure.name));
            let owner = unsure.entry.owner;
            let unsure_before = self.detached.unsure_of(&unsure.name, owner);
            self.io.spawn(async move {
                let infos = quorum.collect_all(answers).await;
                let infos = infos
                    .iter()
                    .enumerate()
                    .filter_map(|(node, info)| Some((node, info.as_ref()?.as_ref().ok()?)));
                // The nodes do not answer at the same moment. One that may get the hold late counts for nothing: when another one has
                // lost it, the process may rely on this one (I1).
                let late = unsure_before | quorum.detached.unsure_of(&unsure.name, owner);
                let others = infos.filter(|(node, _)| late & (1 << node) == 0);
                let free = others.filter(|(_, info)| is_free_of(info, owner)).count();
                let is_wanted = quorum.is_wanted(unsure.node, &unsure.name, unsure.entry);
                if !is_wanted && free < quorum.size.majority() {
                    return;
                }
                let looks = lock(&quorum.detached.unsure).remove(&unsure);
                if let Some(Looks { until, .. }) = looks.filter(|_| !is_wanted) {
                    let Unsure { node, name, entry } = unsure;
                    quorum.nodes[node].end(CancelRequest { name, entry }, until);
                }
            });
        }
    }

    /// Whether a caller of this client has or wants the same entry of a node again: then that ends it.
    fn is_wanted(&self, node: usize, name: &LockName, entry: Entry) -> bool {
        self.holds.attempt_at(node, name, entry).is_some()
            || self.waiting_at(node, name, entry).is_some()
    }
}

/// Whether a node has no such holder. Unknown if it does not show all of them.
fn is_free_of(info: &LockInfo, owner: Owner) -> bool {
    info.error.is_none()
        && info.holding == info.holders.len()
        && info.holders.iter().all(|holder| holder.owner != owner)
}
