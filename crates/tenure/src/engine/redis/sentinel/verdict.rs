//! What the answers of several Sentinels mean together.

use std::collections::HashMap;

use super::HostPort;
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

/// Judges the answers of Sentinels, of which so many are `known`, and so many were `asked`. A Sentinel that does not know
/// the master answers none.
pub(super) fn judge(
    answers: &[Result<Option<HostPort>, StoreError>],
    known: usize,
    asked: usize,
) -> Verdict {
    let majority = known / 2 + 1;
    let mut votes: HashMap<&HostPort, usize> = HashMap::new();
    for master in answers.iter().flatten().flatten() {
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
    Verdict::None(explain(answers, known, &votes))
}

fn explain(
    answers: &[Result<Option<HostPort>, StoreError>],
    known: usize,
    votes: &HashMap<&HostPort, usize>,
) -> String {
    let errors: Vec<_> = answers.iter().filter_map(|it| it.as_ref().err()).collect();
    let is_unknown = answers.iter().any(|it| matches!(it, Ok(None)));
    match (votes.len(), errors.first()) {
        (0, _) if is_unknown => {
            "they watch no master of that name: compare it with `sentinel monitor` in their \
             configuration"
                .to_owned()
        }
        (0 | 1, Some(error)) => {
            let answered = answers.len() - errors.len();
            format!("{answered} of {known} answer, and a majority must: {error}")
        }
        (2.., _) => "they name different addresses, as during a failover".to_owned(),
        _ => format!("{} of {known} name an address, and a majority must", answers.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> Result<Option<HostPort>, StoreError> {
        Ok(Some(HostPort { host: "10.0.0.1".into(), port }))
    }

    fn down() -> Result<Option<HostPort>, StoreError> {
        Err(StoreError::refused("connection refused"))
    }

    fn master(port: u16) -> Verdict {
        Verdict::Master(at(port).unwrap().unwrap())
    }

    #[test]
    fn a_majority_of_all_that_are_known_decides() {
        assert_eq!(judge(&[at(1)], 1, 1), master(1));
        assert_eq!(judge(&[at(1)], 3, 3), Verdict::Open);
        assert_eq!(judge(&[at(1), at(1)], 3, 3), master(1));
        assert_eq!(judge(&[at(1), at(2), at(1)], 3, 3), master(1));
        assert_eq!(judge(&[at(1), down(), at(1)], 3, 3), master(1));
        assert_eq!(judge(&[at(1), at(1)], 5, 5), Verdict::Open);
        // Two more were named by the first answer: one of three is no majority.
        assert!(matches!(judge(&[at(1)], 3, 1), Verdict::None(_)));
    }

    #[test]
    fn why_there_is_no_majority_is_said() {
        let why = |answers: &[_], known| match judge(answers, known, answers.len()) {
            Verdict::None(why) => why,
            verdict => panic!("{verdict:?}"),
        };
        assert!(why(&[at(1), at(2), down()], 3).contains("different addresses"));
        assert!(why(&[at(1), down(), down()], 3).contains("1 of 3 answer"));
        assert!(why(&[Ok(None), Ok(None)], 2).contains("no master of that name"));
        assert!(why(&[down()], 1).contains("connection refused"));
    }
}
