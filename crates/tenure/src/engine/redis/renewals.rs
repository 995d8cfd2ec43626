//! Renewals: many leases in one call, on a connection of their own.
//!
//! What is wrong with one lock is that lock's trouble alone: the script answers for each, and a call
//! that the server refuses as a whole, because of one of its keys, is split.

use super::batch::{self, Batched};
use super::server::Server;
use super::trouble;
use crate::clock;
use crate::core::clock_step::ClockStep;
use crate::core::moment::Moment;
use crate::engine::{Renewal, Renewed};
use crate::error::Trouble;
use crate::sync::lock;

/// What became of each renewal.
pub(super) type Outcomes = Vec<Result<Renewed, Trouble>>;

impl Server {
    /// Extends leases. The answers are in the order of the renewals. Says, too, whether the server's
    /// clock was set since the last call.
    pub(super) async fn renew(&self, renewals: &[Renewal]) -> (Outcomes, Option<ClockStep>) {
        let missing = || Err(Trouble::unknown("the renewal was not answered"));
        let mut outcomes: Outcomes = renewals.iter().map(|_| missing()).collect();
        let all = 0..renewals.len();
        let mut parts = vec![all];
        let mut step = None;
        while let Some(part) = parts.pop().filter(|part| !part.is_empty()) {
            match self.renew_part(&renewals[part.clone()]).await {
                Ok((answers, stepped)) => {
                    step = step.or(stepped);
                    outcomes[part].iter_mut().zip(answers).for_each(|(at, answer)| *at = answer);
                }
                Err(trouble) if part.len() > 1 && trouble::may_be_about_one(&trouble) => {
                    let middle = part.start + part.len() / 2;
                    parts.extend([part.start..middle, middle..part.end]);
                }
                Err(trouble) => outcomes[part].fill(Err(trouble)),
            }
        }
        (outcomes, step)
    }

    async fn renew_part(
        &self,
        renewals: &[Renewal],
    ) -> Result<(Outcomes, Option<ClockStep>), Trouble> {
        let names = renewals.iter().map(Batched::name);
        let mut call = self.renewals.prepare(Renewal::script(), names, &self.client);
        renewals.iter().for_each(|renewal| renewal.arguments(&mut call.command));
        let sent = clock::now();
        let reply = self.renewals.run(call).await?;
        let received = clock::now();
        let time = reply.text().and_then(time);
        let step = time.and_then(|time| lock(&self.clock).note(sent, received, time));
        let lines = batch::lines(reply)?;
        let mut lines = lines.iter().map(String::as_str);
        let answers = renewals.iter().map(|_| batch::read::<Renewal>(lines.next())).collect();
        Ok((answers, step))
    }
}

/// The server's time, behind the nonce.
fn time(answer: &str) -> Option<Moment> {
    let (_, time) = answer.lines().next()?.split_once(' ')?;
    Some(Moment::from_micros(time.parse().ok()?))
}
