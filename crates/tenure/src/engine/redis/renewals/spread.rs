//! Renewals for several slots of a cluster's node in one call, as [`batch`](super::super::batch) does with other operations.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::batch::{self, Batched};
use super::super::node::Node;
use super::super::redirect;
use super::super::server::Server;
use super::super::together::together;
use super::{Renewals, note_time};
use crate::clock;
use crate::core::clock_step::ClockStep;
use crate::engine::{Renewal, Renewed};
use crate::error::StoreError;

/// The outcome of each renewal of a call; none if it was not performed.
type Outcomes = Vec<Option<Result<Renewed, StoreError>>>;

impl Server {
    /// Extends leases of plain locks, in a call for each node. Returns the indices of the renewals that are left.
    pub(super) async fn renew_by_node(
        &self,
        renewals: &[Renewal],
        all: &mut Renewals,
    ) -> Vec<usize> {
        let mut by_node: BTreeMap<u64, (Arc<Node>, Vec<usize>)> = BTreeMap::new();
        let mut left = Vec::new();
        for (index, renewal) in renewals.iter().enumerate() {
            match self.routes.node(self.routes.slot(&renewal.name)) {
                Ok(node) if renewal.is_plain() => {
                    by_node.entry(node.number).or_insert((node, Vec::new())).1.push(index);
                }
                _ => left.push(index),
            }
        }
        let calls = by_node.values().map(|(node, indices)| {
            let some: Vec<_> = indices.iter().map(|index| &renewals[*index]).collect();
            self.renew_on(node, some)
        });
        for ((_, indices), (outcomes, step)) in by_node.values().zip(together(calls).await) {
            all.step = all.step.or(step);
            for (index, outcome) in indices.iter().zip(outcomes) {
                match outcome {
                    Some(outcome) => all.outcomes[*index] = outcome,
                    None => left.push(*index),
                }
            }
        }
        left
    }

    /// Extends leases of locks that one node has.
    async fn renew_on(
        &self,
        node: &Node,
        renewals: Vec<&Renewal>,
    ) -> (Outcomes, Option<ClockStep>) {
        let undone = || (vec![None; renewals.len()], None);
        let Some(script) = Renewal::script().spread().filter(|_| renewals.len() > 1) else {
            return undone();
        };
        let (link, sent) = (&node.renewals, clock::now());
        let names: Vec<_> = renewals.iter().map(|renewal| &renewal.name).collect();
        let call = link.prepare_spread(script, &names, &self.client, |command| {
            let common = link.common(&self.client);
            renewals.iter().for_each(|renewal| renewal.arguments(common, command));
        });
        let reply = match link.run(call, false).await {
            Ok(reply) => reply,
            // It was refused because of one lock, perhaps.
            Err(error) if error.is_answer() && !error.is_unknown() => return undone(),
            Err(error) => return (vec![Some(Err(error)); renewals.len()], None),
        };
        if let Some(redirect) = redirect::read(&reply, &link.address) {
            // An error is not lost: the slot's node is asked again.
            let _ = self.routes.follow(self.routes.slot(&renewals[0].name), &redirect);
            return undone();
        }
        let step = note_time(node, sent, &reply);
        let mut lines = batch::lines(&reply).into_iter().flatten();
        let outcome = |renewal: &&Renewal| match lines.next() {
            Some(line) if batch::is_undone(line) => None,
            line => Some(batch::read(*renewal, line)),
        };
        (renewals.iter().map(outcome).collect(), step)
    }
}
