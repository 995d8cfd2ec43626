//! Renewals: many leases in one call, on a connection of their own.
//!
//! What is wrong with one lock is that lock's trouble alone: the script answers for each, and a call
//! that the server refuses as a whole, because of one of its keys, is split.

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

/// What became of renewals.
#[derive(Default)]
pub(super) struct Renewals {
    /// Of each, in order.
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
                    let places = all.outcomes[part].iter_mut();
                    places.zip(some.outcomes).for_each(|(place, outcome)| *place = outcome);
                }
                Err(trouble) if part.len() > 1 && errors::may_be_about_one(&trouble) => {
                    let middle = part.start + part.len() / 2;
                    parts.extend([part.start..middle, middle..part.end]);
                }
                Err(trouble) => all.outcomes[part].fill(Err(trouble)),
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

/// The server's time, behind what the call is known by.
fn time(answer: &str) -> Option<Moment> {
    let (_, time) = answer.lines().next()?.rsplit_once(' ')?;
    Some(Moment::from_micros(time.parse().ok()?))
}
