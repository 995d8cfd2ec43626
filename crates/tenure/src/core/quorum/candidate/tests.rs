use super::*;

const LEASE: Duration = Duration::from_secs(10);

fn at(millis: u64) -> Moment {
    Moment::from_micros(millis * 1000)
}

fn fence(value: u64) -> Fence {
    Fence::from_value(value)
}

fn held(value: u64) -> Claim {
    held_since(value, 0)
}

fn held_since(value: u64, millis: u64) -> Claim {
    let (stamp, at) = (at(900_000 + millis), at(millis));
    Claim::Held(Hold { fence: fence(value), fences: 1, stamp, at, lease: LEASE })
}

fn queued(ahead: u32) -> Claim {
    let sync = ClockSync { sent: at(0), store: at(900_000) };
    Claim::Queued(Place { ahead, free_in: LEASE, sync })
}

/// A candidate whose requests were sent at the start, with the answers that are given; `None` is still open.
fn candidate(claims: &[Claim]) -> Candidate {
    let size = Size::new(claims.len()).unwrap();
    let mut candidate = Candidate::new(size, Shape::mutex());
    for (node, claim) in claims.iter().enumerate() {
        candidate.ask(node, at(0));
        if *claim != Claim::None {
            candidate.answer(node, *claim);
        }
    }
    candidate
}

fn verdict(claims: &[Claim]) -> Verdict {
    candidate(claims).verdict(at(1))
}

const OPEN: Claim = Claim::None;
const DOWN: Claim = Claim::Silent { is_unknown: false };
const LOST: Claim = Claim::Silent { is_unknown: true };

#[test]
fn the_verdict_falls_with_the_first_majority() {
    assert_eq!(verdict(&[held(5), OPEN, OPEN]), Verdict::Open);
    let Verdict::Granted(hold) = verdict(&[held(5), OPEN, held(5)]) else { panic!("not granted") };
    assert_eq!((hold.fence, hold.deadline()), (fence(5), lease::deadline(at(0), LEASE)));
    assert!(matches!(verdict(&[held(5), LOST, held(5)]), Verdict::Granted(_)));
}

#[test]
fn the_verdict_falls_when_no_majority_is_possible() {
    assert_eq!(verdict(&[Claim::Busy, Claim::Busy, OPEN]), Verdict::Busy { is_open: true });
    assert_eq!(verdict(&[Claim::Busy, DOWN, OPEN]), Verdict::Busy { is_open: true });
    assert_eq!(verdict(&[Claim::Busy; 3]), Verdict::Busy { is_open: false });
    assert_eq!(verdict(&[held(5), Claim::Busy, Claim::Busy]), Verdict::Split);
    assert_eq!(verdict(&[held(5), Claim::Busy, DOWN]), Verdict::Split);
    assert_eq!(verdict(&[Claim::Refused, Claim::Refused, OPEN]), Verdict::Refused);
}

/// I6: a node that may have granted makes the outcome unknown.
#[test]
fn too_many_silent_nodes_are_an_error() {
    assert_eq!(verdict(&[held(5), DOWN, DOWN]), Verdict::Failed { is_unknown: false });
    assert_eq!(verdict(&[OPEN, DOWN, LOST]), Verdict::Failed { is_unknown: true });
    assert_eq!(verdict(&[queued(0), DOWN, LOST]), Verdict::Failed { is_unknown: true });
}

/// I4.
#[test]
fn different_fences_are_committed_first() {
    assert_eq!(verdict(&[held(5), held(7), OPEN]), Verdict::Commit { fence: fence(7) });
    let Verdict::Granted(hold) = verdict(&[held(5), held(7), held(5)]) else { panic!("agreed") };
    assert_eq!(hold.fence, fence(5));
    let outdated = Claim::Outdated { last: fence(9) };
    assert_eq!(verdict(&[held(5), outdated, outdated]), Verdict::Outdated { last: fence(9) });
    assert_eq!(verdict(&[held(5), outdated, OPEN]), Verdict::Open);
    assert_eq!(verdict(&[queued(0), outdated, DOWN]), Verdict::Outdated { last: fence(9) });
}

#[test]
fn a_hold_lasts_until_too_few_nodes_are_left() {
    let claims =
        [held_since(5, 400), held_since(5, 0), held_since(5, 300), OPEN, held_since(5, 100)];
    let Verdict::Granted(hold) = candidate(&claims).verdict(at(500)) else { panic!("granted") };
    assert_eq!(hold.at, at(100), "the third of the latest");
    let over = candidate(&claims[..3]).verdict(at(20_000));
    assert_ne!(over, Verdict::Open);
    assert!(!matches!(over, Verdict::Granted(_)), "all leases have ended");
}

#[test]
fn a_waiter_is_granted_when_enough_nodes_have_handed_over() {
    let mut waiter = candidate(&[queued(2), queued(0), queued(1)]);
    assert_eq!(waiter.verdict(at(1)), Verdict::Queued { ahead: 1, free_in: LEASE });
    assert!(waiter.handed_over(0, (fence(5), 3), (at(901_000), LEASE), at(1_010)));
    assert!(matches!(waiter.verdict(at(1_010)), Verdict::Queued { .. }));
    assert_eq!(waiter.minority(at(1_010)), [0]);
    assert!(waiter.handed_over(2, (fence(5), 2), (at(901_005), LEASE), at(1_020)));
    let Verdict::Granted(hold) = waiter.verdict(at(1_020)) else { panic!("granted") };
    assert_eq!((hold.at, hold.fences), (at(1_000), 2), "I2: by the last answer's clock");
    assert!(waiter.minority(at(1_020)).is_empty());
}

/// I1: a message without an answer may be about a hold that an earlier attempt of the same entry has cancelled.
#[test]
fn a_message_does_not_count_without_an_older_answer() {
    for before in [OPEN, LOST, DOWN, Claim::Busy] {
        let mut waiter = candidate(&[before, queued(0), OPEN]);
        assert!(!waiter.handed_over(0, (fence(5), 1), (at(900_500), LEASE), at(600)), "{before:?}");
        assert!(!waiter.is_held_at(0));
    }
}

#[test]
fn the_newer_of_an_answer_and_a_message_counts() {
    let mut waiter = candidate(&[queued(0), queued(0), OPEN]);
    assert!(waiter.handed_over(0, (fence(5), 1), (at(900_500), LEASE), at(600)));
    waiter.answer(0, queued(0));
    assert!(waiter.is_held_at(0), "the answer is older");
    let later = ClockSync { sent: at(900), store: at(900_900) };
    waiter.answer(0, Claim::Queued(Place { ahead: 0, free_in: LEASE, sync: later }));
    assert!(!waiter.is_held_at(0), "the answer is newer: it was skipped meanwhile");
    assert!(!waiter.handed_over(0, (fence(5), 1), (at(900_900), LEASE), at(1_000)), "as old");
}

/// Found by the model: the message of a hand-over that was given back arrives after the entry has asked again.
#[test]
fn a_message_from_before_the_entry_was_given_back_does_not_count() {
    let mut waiter = candidate(&[queued(0), queued(0), OPEN]);
    assert!(waiter.handed_over(0, (fence(5), 1), (at(901_000), LEASE), at(1_010)));
    waiter.give_back(0);
    waiter.ask(0, at(1_020));
    assert!(!waiter.handed_over(0, (fence(5), 1), (at(901_000), LEASE), at(1_030)));
    let again = |millis: u64| {
        let sync = ClockSync { sent: at(1_020), store: at(900_000 + millis) };
        Claim::Queued(Place { ahead: 0, free_in: LEASE, sync })
    };
    waiter.answer(0, again(1_025));
    assert!(!waiter.handed_over(0, (fence(5), 1), (at(901_000), LEASE), at(1_030)));
    assert!(!waiter.is_held_at(0));
    assert!(waiter.handed_over(0, (fence(6), 1), (at(901_030), LEASE), at(1_040)), "a new one");
}

#[test]
fn a_node_whose_clock_jumped_must_be_asked() {
    let mut waiter = candidate(&[queued(0), queued(0), queued(0)]);
    assert!(!waiter.handed_over(0, (fence(5), 1), (at(960_000), LEASE), at(1_000)));
    assert!(!waiter.is_held_at(0));
}

/// I6: every node that may have the entry is asked to end it.
#[test]
fn a_node_without_an_answer_may_have_the_entry() {
    let claims = [OPEN, LOST, DOWN, queued(0), Claim::Busy];
    let candidate = candidate(&claims);
    let there: Vec<_> = (0..5).map(|node| candidate.is_there(node)).collect();
    assert_eq!(there, [true, true, false, true, false]);
}
