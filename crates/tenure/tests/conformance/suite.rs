//! The list of all cases. `conformance_suite!(memory, Memory)` makes a module of tests, so that a
//! failure reads `memory::second_owner_is_refused`.

/// Runs every case on an engine.
#[macro_export]
macro_rules! conformance_suite {
    ($engine:ident, $fixture:ty) => {
        conformance_suite! { @list $engine, $fixture,
            proposals: a_proposal_above_the_last_fence_is_granted,
                a_proposal_far_from_the_calendar_is_refused, waiters_are_served_by_their_proposals,
                a_handover_is_above_the_last_fence, a_committed_fence_is_the_last_one,
                a_repair_precedes_the_waiters;
        }
    };
    // A quorum proposes fences to its nodes, and takes none; and Redisson's format has none to propose.
    ($engine:ident, quorum $fixture:ty) => {
        conformance_suite! { @list $engine, $fixture, }
    };
    (@list $engine:ident, $fixture:ty, $($of_nodes:tt)*) => {
        conformance_suite! { @on $engine, $fixture,
            $($of_nodes)*
            exclusion: second_owner_is_refused, a_released_lock_is_free, names_do_not_touch,
                permits_never_exceed_the_limit, another_kind_or_limit_is_refused;
            identity: only_the_owner_releases, only_the_owner_renews,
                a_renewal_is_for_the_entry_that_it_names,
                a_renewal_never_recreates_a_missing_lock, a_waiter_is_no_owner;
            leases: a_lease_that_ended_frees_the_lock, a_renewal_extends_the_lease,
                a_renewal_never_shortens_the_lease, many_leases_are_renewed_in_one_call,
                a_lock_lingers_for_its_least_holding_time;
            reentry: the_same_owner_enters_again, every_entry_must_end,
                a_reentry_refreshes_the_lease, other_entries_of_the_owner_come_along,
                asking_for_more_permits_is_refused;
            fencing: fences_grow_in_grant_order, renewal_and_reentry_keep_the_fence,
                a_handover_reserves_its_fences, fences_of_all_clients_are_one_order;
            idempotence: an_acquire_sent_twice_counts_once, a_release_sent_twice_releases_once,
                a_late_release_never_frees_a_newer_holder, a_cancel_sent_twice_is_harmless,
                a_reentry_sent_twice_counts_once;
            queue: waiters_are_served_in_order, a_release_wakes_one_waiter,
                a_request_that_does_not_wait_does_not_overtake, asking_again_keeps_the_place,
                asking_again_returns_the_missed_grant, a_dead_waiter_is_passed_over,
                a_client_that_is_gone_is_passed_over, an_unclaimed_handover_goes_to_the_next,
                a_claimed_handover_has_the_full_lease, a_cancelled_waiter_is_not_served,
                a_cancel_gives_back_what_was_granted, an_ended_lease_serves_the_queue;
            records: holders_and_waiters_can_be_read, a_free_lock_is_shown_free,
                locks_are_listed_by_prefix, a_forced_release_leaves_a_record,
                a_forced_release_checks_the_expected_owner, a_forced_release_serves_the_queue,
                nothing_is_left_of_a_released_lock;
            announcements: a_release_is_announced_to_all_waiters, what_a_store_lacks_is_refused;
            locks: try_acquire_does_not_wait, acquire_waits_for_its_turn,
                acquire_within_times_out, attempts_are_counted, attempts_follow_the_strategy,
                custom_backoff_decides_the_delays, a_fair_lock_is_first_come_first_served,
                local_handover_stays_within_its_bound, the_note_is_seen_by_others,
                bad_input_is_refused_and_changes_nothing, a_mutex_excludes_many_tasks,
                a_cancelled_acquire_leaves_nothing, a_crashed_holder_frees_the_lock,
                stale_writers_are_refused_by_their_fence, a_client_finds_free_what_it_released,
                a_client_finds_free_what_it_cancelled, many_tasks_contend_beside_busy_threads;
            guards: the_watchdog_keeps_the_lock, the_watchdog_ends_with_the_guard,
                a_fixed_lease_is_not_renewed, loss_is_reported_before_the_lease_ends,
                loss_is_reported_while_the_executor_is_blocked, a_forced_release_is_reported_at_once,
                protected_work_is_cancelled_on_loss, protected_work_gives_its_output,
                a_dropped_guard_releases, a_panic_releases, a_guard_dropped_elsewhere_releases,
                release_says_whether_it_was_held, reentry_is_counted_in_the_store,
                reentry_can_be_counted_locally, an_owner_can_be_passed_on,
                a_least_holding_time_outlasts_the_release,
                a_least_holding_time_keeps_a_waiter_no_longer, a_detached_lock_lives_by_its_handle,
                a_handle_can_be_adopted, a_handover_is_confirmed_on_request,
                a_detached_handover_has_its_lease, a_counted_hold_is_no_more_than_it_is;
            readers: readers_share_and_a_writer_is_alone, a_waiting_writer_is_not_overtaken,
                a_waiting_writer_does_not_come_along_with_a_reader,
                readers_of_a_process_share_within_bounds,
                a_crashed_reader_delays_a_writer_by_its_lease, an_upgrade_is_refused,
                a_writer_may_read, a_writer_becomes_a_reader_without_a_gap,
                an_owner_that_entered_twice_stays_a_writer;
            semaphores: permits_are_counted, permits_of_a_crashed_holder_come_back,
                the_watchdog_keeps_permits, a_higher_limit_lets_waiters_in,
                a_lower_limit_waits_for_permits_to_come_back,
                a_lock_and_a_semaphore_refuse_each_other;
            several: several_locks_are_had_together, several_locks_are_all_or_nothing,
                several_locks_in_any_order_do_not_deadlock, a_lock_named_twice_is_refused,
                one_lost_lock_is_reported_for_all, locks_of_different_stores_are_had_together;
            gatherings: a_latch_opens_with_the_last_count, a_latch_counts_an_owner_once,
                a_count_outlives_its_client, a_latch_is_new_after_its_time,
                a_barrier_opens_for_all_at_once, a_party_that_gave_up_is_not_counted,
                a_party_that_was_dropped_is_not_counted_by_the_next;
            elections: one_leads_and_the_next_follows, participants_are_listed_in_order,
                changes_of_leader_are_reported, a_leader_that_is_forced_out_is_notified,
                a_leader_goes_on_while_it_is_renewed, a_successor_goes_on_while_it_is_renewed,
                terms_that_cannot_be_kept_are_refused;
        }
    };
    (@on $engine:ident, $fixture:ty, $($module:ident: $($case:ident),+;)+) => {
        mod $engine {
            $($(
                #[test]
                fn $case() {
                    if <$fixture as $crate::conformance::fixture::Fixture>::is_left_out() {
                        return;
                    }
                    $crate::conformance::fixture::run(async {
                        let store = <$fixture as $crate::conformance::fixture::Fixture>::start();
                        let features = $crate::conformance::fixture::Fixture::features(&store);
                        if $crate::conformance::promises::is_promised(features, stringify!($case)) {
                            let case = $crate::conformance::$module::$case(&store);
                            $crate::conformance::fixture::with_features(features, case).await;
                        }
                    });
                }
            )+)+
        }
    };
}
