//! Renewals: many leases in one call, on a connection of their own.
//!
//! An error of one lock affects no other: the script answers for each, and a call that the server refuses as a whole,
//! because of one of its keys, is split.
//!
//! A replicated renewal is sent on the connection for confirmations, and followed there by a WAIT. Every renewal that
//! extends a lease is a write, so a replica that confirms it has everything that the server did before, the grant
//! included, whichever connection that came by.

mod spread;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::batch::{self, Batched};
use super::errors;
use super::link::Link;
use super::resp::Reply;
use super::routes::{Purpose, Routes};
use super::server::Server;
use super::together::together;
use super::wire::Wire;
use super::{RedisEngine, node::Node};
use crate::clock;
use crate::core::clock_step::ClockStep;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::engine::{Answer, Renewal, Renewed, Replicas, Wakeup};
use crate::error::StoreError;
use crate::sync::lock;
use crate::telemetry;

/// The results of renewals.
#[derive(Default)]
pub(super) struct Renewals {
    /// One for each renewal, in order.
    pub(super) outcomes: Vec<Result<Renewed, StoreError>>,
    /// The server's clock was set since the last call.
    pub(super) step: Option<ClockStep>,
    /// Locks in which there is more to settle than one call may do.
    pub(super) unsettled: Vec<LockName>,
}

impl RedisEngine {
    /// Extends leases; with `replicas`, also waits for these.
    pub(super) fn extend(
        &self,
        renewals: Vec<Renewal>,
        replicas: Option<Replicas>,
    ) -> Answer<Vec<Result<Renewed, StoreError>>> {
        let (server, wakeups) = (self.server.clone(), self.wakeups.clone());
        let operations = self.operations.clone();
        Answer::later(async move {
            let Renewals { outcomes, step, unsettled } = server.renew(renewals, replicas).await;
            unsettled.into_iter().for_each(|name| operations.settle(name));
            if let Some(step) = step {
                telemetry::clock_stepped(step);
                // Other leases may have ended by that clock: the driver checks them now (I9).
                wakeups.wake(Wakeup::Missed);
            }
            Ok(outcomes)
        })
    }
}

impl Server {
    /// Extends leases. The calls for different nodes and slots of a cluster are in flight together.
    async fn renew(&self, renewals: Vec<Renewal>, replicas: Option<Replicas>) -> Renewals {
        if let Routes::One(_) = self.routes {
            return self.renew_in(0, renewals, replicas).await;
        }
        let mut all = Renewals::unanswered(renewals.len());
        let left = match replicas {
            None if !self.routes.protocol().is_redisson() => {
                self.renew_by_node(&renewals, &mut all).await
            }
            // The connection on which replicas are waited for carries calls that declare their keys.
            _ => (0..renewals.len()).collect(),
        };
        self.renew_by_slot(&renewals, left, replicas, &mut all).await;
        all
    }

    /// Extends some of these leases, in a call for each slot.
    async fn renew_by_slot(
        &self,
        renewals: &[Renewal],
        indices: Vec<usize>,
        replicas: Option<Replicas>,
        all: &mut Renewals,
    ) {
        let mut by_slot: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for index in indices {
            by_slot.entry(self.routes.slot(&renewals[index].name)).or_default().push(index);
        }
        let calls = by_slot.iter().map(|(slot, indices)| {
            let some = indices.iter().map(|index| renewals[*index].clone()).collect();
            self.renew_in(*slot, some, replicas)
        });
        for (indices, some) in by_slot.values().zip(together(calls).await) {
            all.add(indices, some);
        }
    }

    /// Extends leases of locks in one slot.
    async fn renew_in(
        &self,
        slot: u16,
        renewals: Vec<Renewal>,
        replicas: Option<Replicas>,
    ) -> Renewals {
        let mut all = Renewals::unanswered(renewals.len());
        let whole = 0..renewals.len();
        let mut parts = vec![whole];
        while let Some(part) = parts.pop().filter(|part| !part.is_empty()) {
            match self.renew_part(slot, &renewals[part.clone()], replicas).await {
                Ok(some) => {
                    all.step = all.step.or(some.step);
                    all.unsettled.extend(some.unsettled);
                    let slots = all.outcomes[part].iter_mut();
                    slots.zip(some.outcomes).for_each(|(slot, outcome)| *slot = outcome);
                }
                Err(error) if part.len() > 1 && errors::may_be_about_one(&error) => {
                    let middle = part.start + part.len() / 2;
                    parts.extend([part.start..middle, middle..part.end]);
                }
                Err(error) => all.outcomes[part].fill(Err(error)),
            }
        }
        all
    }

    async fn renew_part(
        &self,
        slot: u16,
        renewals: &[Renewal],
        replicas: Option<Replicas>,
    ) -> Result<Renewals, StoreError> {
        let client = self.routes.client(&self.client, slot);
        let purpose = if replicas.is_some() { Purpose::Confirmations } else { Purpose::Renewals };
        let wire = Mutex::new(None);
        let prepare = |link: &Link| {
            *lock(&wire) = link.wire();
            let mut call =
                link.prepare(Renewal::script(), renewals.iter().map(Batched::name), &client);
            let common = link.common(&client);
            renewals.iter().for_each(|renewal| renewal.arguments(common, &mut call.command));
            call
        };
        let sent = clock::now();
        let (node, reply) = self.routes.run(slot, purpose, prepare).await?;
        let step = note_time(&node, sent, &reply);
        let mut lines = batch::lines(&reply)?;
        let answered = renewals.iter().zip(lines.clone()).filter(|(_, line)| batch::is_more(line));
        let unsettled = answered.map(|(renewal, _)| renewal.name.clone()).collect();
        let outcomes = renewals.iter().map(|it| batch::read(it, lines.next())).collect();
        let mut renewed = Renewals { outcomes, step, unsettled };
        if let Some(replicas) = replicas {
            let wire = lock(&wire).take();
            renewed.confirm(&node, wire, replicas).await;
        }
        Ok(renewed)
    }
}

impl Renewals {
    fn unanswered(count: usize) -> Self {
        let missing = || Err(StoreError::unknown("the renewal was not answered"));
        Self { outcomes: (0..count).map(|_| missing()).collect(), ..Self::default() }
    }

    /// Adds the results of some of the renewals.
    fn add(&mut self, indices: &[usize], some: Self) {
        self.step = self.step.or(some.step);
        self.unsettled.extend(some.unsettled);
        for (index, outcome) in indices.iter().zip(some.outcomes) {
            self.outcomes[*index] = outcome;
        }
    }

    /// Waits until replicas have these renewals. `wire` is the connection that was in use when the call was sent. If it
    /// has not ended since, the call was sent on it; if it has, nothing is known of the replicas.
    async fn confirm(&mut self, node: &Node, wire: Option<Arc<Wire>>, replicas: Replicas) {
        let is_extended = |outcome: &Result<_, _>| matches!(outcome, Ok(Renewed::Extended));
        if !self.outcomes.iter().any(is_extended) {
            return;
        }
        let confirmed = match wire {
            Some(wire) => node.confirmations().confirm(wire, replicas).await,
            None => {
                Err(StoreError::unknown("the connection was replaced before the replicas answered"))
            }
        };
        let outcome = match confirmed {
            Ok(count) if count >= replicas.count() => return,
            Ok(replicas) => Ok(Renewed::Unreplicated { replicas }),
            Err(error) => Err(error),
        };
        let extended = self.outcomes.iter_mut().filter(|outcome| is_extended(outcome));
        extended.for_each(|extended| *extended = outcome.clone());
    }
}

/// Compares the server's time in an answer that has just arrived with this client's; returns the step of its clock, if it
/// was set.
fn note_time(node: &Node, sent: Moment, reply: &Reply) -> Option<ClockStep> {
    let (received, time) = (clock::now(), reply.text().and_then(time)?);
    lock(&node.clock).note(sent, received, time)
}

/// The server's time, at the end of the answer's first line.
fn time(answer: &str) -> Option<Moment> {
    let (_, time) = answer.lines().next()?.rsplit_once(' ')?;
    Some(Moment::from_micros(time.parse().ok()?))
}
