//! What the answers of several Sentinels mean together.

use std::collections::{HashMap, HashSet};

use super::super::address::HostPort;
use super::peer::Peer;
use crate::error::StoreError;

/// What is known by the answers so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A majority names it.
    Master(HostPort),
    /// Other answers are needed.
    Open,
    /// No majority will name one; why.
    None(String),
}

/// Judges the answers of Sentinels at so many addresses. A Sentinel counts once, by its id, and so do those that the answers
/// name: a majority of all of them must name the same master. An address that has not answered yet may be that of one more
/// Sentinel, because the answers so far may know of no other: one that was reset does not.
pub(super) fn judge(answers: &[Result<Peer, StoreError>], asked: usize) -> Verdict {
    let answered: HashMap<&str, Option<&HostPort>> =
        answers.iter().flatten().map(|it| (it.id.as_str(), it.master.as_ref())).collect();
    let named = answers.iter().flatten().flat_map(|it| &it.others).map(|it| it.id.as_str());
    let known = named.chain(answered.keys().copied()).collect::<HashSet<_>>().len();
    let possible = known.max(answered.len() + asked.saturating_sub(answers.len()));
    let majority = possible / 2 + 1;
    let mut votes: HashMap<&HostPort, usize> = HashMap::new();
    for master in answered.values().flatten() {
        *votes.entry(master).or_default() += 1;
    }
    let best = votes.iter().max_by_key(|(_, count)| **count);
    if let Some((master, count)) = best
        && *count >= majority
    {
        return Verdict::Master((*master).clone());
    }
    // Also where no majority is possible any more: the reason is to name what all of them say.
    if answers.len() < asked {
        return Verdict::Open;
    }
    Verdict::None(explain(answers, known, answered.len(), &votes))
}

fn explain(
    answers: &[Result<Peer, StoreError>],
    known: usize,
    answered: usize,
    votes: &HashMap<&HostPort, usize>,
) -> String {
    let error = answers.iter().find_map(|it| it.as_ref().err());
    let is_unknown = answers.iter().flatten().any(|it| it.master.is_none());
    match (votes.len(), error) {
        (0, _) if is_unknown => {
            "they watch no master of that name: compare it with `sentinel monitor` in their \
             configuration"
                .to_owned()
        }
        (2.., _) => "they name different addresses, as during a failover".to_owned(),
        (0, Some(error)) => format!("none of them answers: {error}"),
        (_, Some(error)) => {
            format!("{answered} of {known} answer, and a majority must: {error}")
        }
        _ => format!("{answered} of {known} name an address, and a majority must"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::peer::Other;
    use super::*;

    fn host(port: u16) -> HostPort {
        HostPort { host: "10.0.0.1".into(), port }
    }

    /// The answer of a Sentinel of three that names a master on this port, 0 for none.
    fn of_three(id: &str, port: u16) -> Result<Peer, StoreError> {
        let others = ["a", "b", "c"].into_iter().filter(|other| *other != id);
        let others = others.map(|id| Other { id: id.into(), at: host(26379) }).collect();
        Ok(Peer { id: id.into(), master: (port != 0).then(|| host(port)), others })
    }

    fn alone(port: u16) -> Result<Peer, StoreError> {
        Ok(Peer { id: "x".into(), master: (port != 0).then(|| host(port)), others: Vec::new() })
    }

    fn down() -> Result<Peer, StoreError> {
        Err(StoreError::refused("connection refused"))
    }

    #[test]
    fn a_majority_of_all_that_are_known_decides() {
        let master = |port| Verdict::Master(host(port));
        assert_eq!(judge(&[alone(1)], 1), master(1));
        assert_eq!(judge(&[of_three("a", 1)], 3), Verdict::Open);
        assert_eq!(judge(&[of_three("a", 1), of_three("b", 1)], 3), master(1));
        assert_eq!(judge(&[of_three("a", 1), of_three("b", 2), of_three("c", 1)], 3), master(1));
        assert_eq!(judge(&[of_three("a", 1), down(), of_three("c", 1)], 3), master(1));
        assert!(matches!(judge(&[of_three("a", 1)], 1), Verdict::None(_)), "two were not asked");
    }

    /// A Sentinel that had been reset knew of no other, and named an old master. It answered first, and decided alone, as a
    /// majority of the one that was known: two clients held one lock.
    #[test]
    fn a_sentinel_that_knows_no_other_does_not_decide_alone() {
        let stale = || alone(2);
        assert_eq!(judge(&[stale()], 4), Verdict::Open);
        assert_eq!(judge(&[stale(), of_three("a", 1), of_three("b", 1)], 4), Verdict::Open);
        let all = [stale(), of_three("a", 1), of_three("b", 1), of_three("c", 1)];
        assert_eq!(judge(&all, 4), Verdict::Master(host(1)));
        assert_eq!(judge(&[stale(), down(), down()], 4), Verdict::Open);
        assert_eq!(judge(&[alone(1), alone(1)], 2), Verdict::Master(host(1)), "under two names");
    }

    /// One Sentinel under two addresses, or under addresses that cannot be reached, counts once.
    #[test]
    fn a_sentinel_counts_once() {
        let twice = [of_three("a", 1), of_three("a", 1), down()];
        assert!(matches!(judge(&twice, 3), Verdict::None(_)));
        let unreachable = [down(), down(), down(), of_three("a", 1), of_three("b", 1)];
        assert_eq!(judge(&unreachable, 6), Verdict::Master(host(1)));
    }

    #[test]
    fn why_there_is_no_majority_is_said() {
        let why = |answers: &[_]| match judge(answers, answers.len()) {
            Verdict::None(why) => why,
            verdict => panic!("{verdict:?}"),
        };
        assert!(why(&[of_three("a", 1), of_three("b", 2), down()]).contains("different addresses"));
        assert!(why(&[of_three("a", 1), down(), down()]).contains("1 of 3 answer"));
        assert!(why(&[alone(0)]).contains("no master of that name"));
        assert!(why(&[down()]).contains("connection refused"));
    }
}
