//! Which replicas of the server must have a lock.

use std::time::Duration;

use clap::Args;
use tenure::engine::Replicas;
use tenure::{Election, Lock};

use crate::args::time::time;

/// How long replicas have time, if not given.
const WITHIN: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(crate) struct ReplicaArgs {
    /// Succeed only when N replicas of the server have the lock within TIME, which is 1s if not given; otherwise
    /// release it, and fail
    #[arg(long, value_name = "N[:TIME]", value_parser = replicas)]
    wait_replicas: Option<Replicas>,
    /// Wait for these replicas also at each renewal: one that they do not have counts as failed
    #[arg(long, requires = "wait_replicas")]
    wait_replicas_on_renewal: bool,
}

impl ReplicaArgs {
    pub(crate) fn lock(&self, lock: Lock) -> Lock {
        match self.wait_replicas.map(|it| (it.count(), it.within())) {
            Some((count, within)) if self.wait_replicas_on_renewal => {
                lock.wait_replicas_on_renewal(count, within)
            }
            Some((count, within)) => lock.wait_replicas(count, within),
            None => lock,
        }
    }

    pub(crate) fn election(&self, election: Election) -> Election {
        match self.wait_replicas.map(|it| (it.count(), it.within())) {
            Some((count, within)) if self.wait_replicas_on_renewal => {
                election.wait_replicas_on_renewal(count, within)
            }
            Some((count, within)) => election.wait_replicas(count, within),
            None => election,
        }
    }
}

/// A number, and perhaps a time: `2` or `2:500ms`.
fn replicas(text: &str) -> Result<Replicas, String> {
    let (count, within) = match text.split_once(':') {
        Some((count, within)) => (count, time(within)?),
        None => (text, WITHIN),
    };
    let wrong = || format!("`{text}` names no replicas: write it like 1, or 1:500ms");
    let count = count.trim().parse().map_err(|_| wrong())?;
    Replicas::new(count, within).map_err(|invalid| invalid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_perhaps_a_time() {
        let read = |text| replicas(text).map(|it| (it.count(), it.within()));
        assert_eq!(read("1"), Ok((1, WITHIN)));
        assert_eq!(read("2:500ms"), Ok((2, Duration::from_millis(500))));
        for (text, said) in [
            ("", "`` names no replicas: write it like 1, or 1:500ms"),
            ("x:1s", "`x:1s` names no replicas: write it like 1, or 1:500ms"),
            ("1:", "`` is no time: write it like 500ms, 10s, 2m, 1h30m or 1d"),
            ("0", "a lock can wait for 1 to 100 replicas, not 0"),
            ("1:2m", "replicas can be waited for 1 ms to 60 s, not 120s"),
        ] {
            assert_eq!(read(text), Err(said.to_owned()));
        }
    }
}
