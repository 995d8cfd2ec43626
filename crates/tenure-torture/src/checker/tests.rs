use super::*;

const SECOND: Micros = 1_000_000;

/// A lock that was held.
fn held(process: u32, asked: Micros, returned: Micros, until: Micros, fence: u64) -> Section {
    let hold = Hold { fence, held: until, write: Some(Written::Accepted) };
    Section { process, name: 1, asked, within: 8 * SECOND, returned, hold: Some(hold) }
}

fn judge(sections: &[Section], incidents: &[Incident]) -> Verdict {
    let (mut sections, incidents) = (sections.to_vec(), incidents.to_vec());
    sections.sort_by_key(|section| (section.name, section.returned));
    check(&History { sections, incidents })
}

fn incident(from: Micros, process: Option<u32>, excuses: bool) -> Incident {
    Incident { from, until: from + 1, fault: "a-fault".into(), process, excuses }
}

#[test]
fn one_after_the_other_is_right() {
    let verdict = judge(&[held(1, 0, 10, 20, 5), held(2, 0, 21, 30, 6)], &[]);
    assert_eq!(verdict.violations, []);
    assert_eq!((verdict.granted, verdict.accepted), (2, 2));
}

#[test]
fn two_holders_are_found_unless_a_fault_excuses_them() {
    let sections = [held(1, 0, 10, 50, 5), held(2, 0, 40, 60, 6)];
    let found = judge(&sections, &[incident(30, None, false)]).violations;
    assert!(matches!(found[..], [Violation::TwoHolders(..)]), "{found:?}");
    let excused = judge(&sections, &[incident(30, None, true)]);
    assert_eq!((excused.violations.len(), excused.excused_overlaps), (0, 1));
    let later = judge(&sections, &[incident(70, None, true)]);
    assert_eq!(later.violations.len(), 1, "a fault that came later excuses nothing");
}

/// A long hold is compared with all that follow, not with the next one alone.
#[test]
fn a_hold_within_another_one_is_found() {
    let sections = [held(1, 0, 10, 100, 5), held(2, 0, 20, 30, 6), held(3, 0, 40, 50, 7)];
    assert_eq!(judge(&sections, &[]).violations.len(), 2);
}

/// The first grant was received before the second was asked for.
#[test]
fn a_fence_that_does_not_grow_is_found() {
    let found = judge(&[held(1, 0, 10, 20, 6), held(2, 30, 40, 50, 6)], &[]).violations;
    assert!(
        matches!(found[..], [Violation::StaleWrite(..), Violation::FenceNotGrown(..)]),
        "{found:?}"
    );
    let at_once = [held(1, 0, 10, 20, 6), held(2, 5, 40, 50, 5)];
    assert_eq!(judge(&at_once, &[]).violations, [], "which was granted first is not known");
}

/// A clock that is set forward ends a lease that its holder believes in. The holder may pass it on within its process, and what is
/// written then is refused.
#[test]
fn a_fence_of_an_overtaken_holder_is_excused_unless_it_was_accepted() {
    let refused = |mut section: Section| {
        section.hold.iter_mut().for_each(|hold| hold.write = Some(Written::Refused));
        section
    };
    let (first, second) = (held(1, 0, 10, 20, 6), held(1, 30, 40, 50, 5));
    let sections = [first.clone(), refused(second.clone())];
    let excused = judge(&sections, &[incident(5, None, true)]);
    assert_eq!((excused.violations.len(), excused.excused_fences), (0, 1));
    assert_eq!(judge(&sections, &[incident(5, None, false)]).violations.len(), 1);
    let accepted = judge(&[first, second], &[incident(5, None, true)]).violations;
    assert!(matches!(accepted[..], [Violation::StaleWrite(..), Violation::FenceNotGrown(..)]));
}

#[test]
fn an_acquire_that_returns_too_late_is_found_unless_its_process_was_stopped() {
    let late = Section { hold: None, ..held(1, 0, 12 * SECOND, 0, 0) };
    let found = judge(std::slice::from_ref(&late), &[]).violations;
    assert!(matches!(found[..], [Violation::Late(_)]), "{found:?}");
    let stopped = |process| [incident(SECOND, Some(process), false)];
    assert_eq!(judge(std::slice::from_ref(&late), &stopped(1)).violations, []);
    assert_eq!(judge(std::slice::from_ref(&late), &stopped(2)).violations.len(), 1);
}

#[test]
fn a_waiter_that_many_overtake_is_found() {
    let mut sections = vec![held(1, 0, 7 * SECOND, 7 * SECOND + 5, 9_999)];
    for number in 0..200 {
        let asked = SECOND + number * 10_000;
        sections.push(held(2, asked, asked + 10, asked + 20, number + 1));
    }
    let found = judge(&sections, &[]).violations;
    assert!(matches!(found[..], [Violation::Overtaken(_, 200)]), "{found:?}");
    let unsettled = judge(&sections, &[incident(SECOND, None, false)]);
    assert_eq!(unsettled.violations, [], "a fault may cost a waiter its place");
}

#[test]
fn late_writes_are_counted() {
    let mut section = held(1, 0, 10, 20, 5);
    section.hold.iter_mut().for_each(|hold| hold.write = Some(Written::Refused));
    let verdict = judge(&[section], &[]);
    assert_eq!((verdict.refused, verdict.accepted), (1, 0));
}
