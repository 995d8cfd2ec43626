//! Renewals: many leases in one call, on a connection of their own.
//!
//! An error of one lock affects no other: the script answers for each, and a call that the server refuses as a whole,
//! because of one of its keys, is split.

use super::batch::{self, Batched};
use super::errors;
use super::server::Server;
use crate::clock;
use crate::core::clock_step::ClockStep;
use crate::core::moment::Moment;
use crate::core::name::LockName;
use crate::engine::{Renewal, Renewed};
use crate::error::StoreError;
use crate::sync::lock;

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

impl Server {
    /// Extends leases.
    pub(super) async fn renew(&self, renewals: &[Renewal]) -> Renewals {
        let missing = || Err(StoreError::unknown("the renewal was not answered"));
        let mut all = Renewals::default();
        all.outcomes.extend(renewals.iter().map(|_| missing()));
        let whole = 0..renewals.len();
        let mut parts = vec![whole];
        while let Some(part) = parts.pop().filter(|part| !part.is_empty()) {
            match self.renew_part(&renewals[part.clone()]).await {
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

    async fn renew_part(&self, renewals: &[Renewal]) -> Result<Renewals, StoreError> {
        let names = renewals.iter().map(Batched::name);
        let common = self.renewals.common(&self.client);
        let mut call = self.renewals.prepare(Renewal::script(), names, &self.client);
        renewals.iter().for_each(|renewal| renewal.arguments(common, &mut call.command));
        let sent = clock::now();
        let reply = self.renewals.run(call).await?;
        let received = clock::now();
        let time = reply.text().and_then(time);
        let step = time.and_then(|time| lock(&self.clock).note(sent, received, time));
        let mut lines = batch::lines(&reply)?;
        let answered = renewals.iter().zip(lines.clone()).filter(|(_, line)| batch::is_more(line));
        let unsettled = answered.map(|(renewal, _)| renewal.name.clone()).collect();
        let outcomes = renewals.iter().map(|it| batch::read(it, lines.next())).collect();
        Ok(Renewals { outcomes, step, unsettled })
    }
}

/// The server's time, at the end of the answer's first line.
fn time(answer: &str) -> Option<Moment> {
    let (_, time) = answer.lines().next()?.rsplit_once(' ')?;
    Some(Moment::from_micros(time.parse().ok()?))
}
