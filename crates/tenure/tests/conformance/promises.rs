//! Which cases an engine must pass: those of the features that it declares.

use tenure::Kind;
use tenure::engine::Features;

/// Whether an engine has what a case needs.
type Need = fn(&Features) -> bool;

/// The cases that need a feature which an engine may lack, or that are for engines which lack it. Every other case is for
/// all engines.
const NEEDS: [(Need, &[&str]); 5] = [
    (
        |features| features.has_queue,
        &[
            "a_cancel_gives_back_what_was_granted",
            "a_cancelled_waiter_is_not_served",
            "a_claimed_handover_has_the_full_lease",
            "a_client_that_is_gone_is_passed_over",
            "a_dead_waiter_is_passed_over",
            "a_fair_lock_is_first_come_first_served",
            "a_forced_release_serves_the_queue",
            "a_handover_reserves_its_fences",
            "a_leader_goes_on_while_it_is_renewed",
            "a_leader_that_is_forced_out_is_notified",
            "a_release_wakes_one_waiter",
            "a_request_that_does_not_wait_does_not_overtake",
            "a_successor_goes_on_while_it_is_renewed",
            "a_waiting_writer_does_not_come_along_with_a_reader",
            "a_waiting_writer_is_not_overtaken",
            "an_ended_lease_serves_the_queue",
            "an_unclaimed_handover_goes_to_the_next",
            "asking_again_keeps_the_place",
            "asking_again_returns_the_missed_grant",
            "changes_of_leader_are_reported",
            "holders_and_waiters_can_be_read",
            "local_handover_stays_within_its_bound",
            "one_leads_and_the_next_follows",
            "other_entries_of_the_owner_come_along",
            "participants_are_listed_in_order",
            "readers_of_a_process_share_within_bounds",
            "waiters_are_served_in_order",
        ],
    ),
    (
        |features| features.has_fences_of(Kind::Mutex),
        &[
            "fences_grow_in_grant_order",
            "fences_of_all_clients_are_one_order",
            "stale_writers_are_refused_by_their_fence",
        ],
    ),
    (
        |features| features.has_least_times,
        &[
            "a_least_holding_time_keeps_a_waiter_no_longer",
            "a_least_holding_time_outlasts_the_release",
            "a_lock_lingers_for_its_least_holding_time",
        ],
    ),
    (
        |features| features.has_limits && features.has_barriers && features.has_notes,
        &[
            "a_barrier_opens_for_all_at_once",
            "a_count_outlives_its_client",
            "a_higher_limit_lets_waiters_in",
            "a_latch_is_new_after_its_time",
            "a_lower_limit_waits_for_permits_to_come_back",
            "a_party_that_gave_up_is_not_counted",
            "a_party_that_was_dropped_is_not_counted_by_the_next",
            "another_kind_or_limit_is_refused",
            "the_note_is_seen_by_others",
        ],
    ),
    (
        |features| !features.has_queue,
        &["a_release_is_announced_to_all_waiters", "what_a_store_lacks_is_refused"],
    ),
];

/// Whether an engine with these features must pass a case.
pub(crate) fn is_promised(features: Features, case: &str) -> bool {
    NEEDS.iter().all(|(has, cases)| has(&features) || !cases.contains(&case))
}
