//! The tests that every store must pass.
//!
//! [`conformance_tests!`](crate::conformance_tests) turns each check into a test. The checks
//! follow the documentation of [`Store`]: its numbered rules and each cell of its tables.
//! They do not assert what it leaves open: the order of keys that became ready at the same
//! time, the `deliveries` of absent and given-up keys, and the reported delay of a key that
//! has an earlier one.
//!
//! The checks move the engine's clock themselves. Only the checks of [`Store::wait`] take
//! real time, with generous limits: they fail if a store looks for changes once a second
//! instead of being woken.
//!
//! # Examples
//!
//! ```
//! use requeue_store::{EngineClock, MemoryStore};
//!
//! async fn make(clock: EngineClock) -> MemoryStore {
//!     MemoryStore::with_clock(clock)
//! }
//!
//! requeue_store::conformance_tests!(make);
//! # fn main() {}
//! ```
//!
//! A store with several partitions that is not available everywhere:
//!
//! ```
//! use requeue_store::{EngineClock, MemoryStore};
//!
//! async fn make(clock: EngineClock) -> Option<MemoryStore> {
//!     std::env::var_os("MY_SERVER").map(|_| MemoryStore::with_clock(clock))
//! }
//!
//! requeue_store::conformance_tests!(make, partitions);
//! # fn main() {}
//! ```
//!
//! A store for several processes, opened twice. Some checks wait in one handle for changes of
//! the other:
//!
//! ```
//! use requeue_store::{EngineClock, MemoryStore};
//!
//! async fn make(clock: EngineClock) -> (MemoryStore, MemoryStore) {
//!     let store = MemoryStore::with_clock(clock);
//!     (store.clone(), store)
//! }
//!
//! requeue_store::conformance_tests!(make);
//! # fn main() {}
//! ```

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::{EngineClock, Store};

mod model;
mod trial;

pub use trial::Trial;

/// The future of a check.
pub type Check = Pin<Box<dyn Future<Output = ()>>>;

/// The time limit of a check, for a busy machine with a distant server.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// The result of opening a store: the store, or two handles of it, as two processes have.
/// `None` if the store is not available here. Then the check is skipped with a message.
pub trait Opened {
    /// Returns two handles of the store, if it is available.
    fn opened(self) -> Option<[Arc<dyn Store>; 2]>;
}

impl<S: Store> Opened for S {
    fn opened(self) -> Option<[Arc<dyn Store>; 2]> {
        let store: Arc<dyn Store> = Arc::new(self);
        Some([Arc::clone(&store), store])
    }
}

impl<S: Store> Opened for (S, S) {
    fn opened(self) -> Option<[Arc<dyn Store>; 2]> {
        Some([Arc::new(self.0), Arc::new(self.1)])
    }
}

impl<O: Opened> Opened for Option<O> {
    fn opened(self) -> Option<[Arc<dyn Store>; 2]> {
        self.and_then(Opened::opened)
    }
}

/// Runs one check on a store that `make` opens, in a new runtime.
///
/// # Panics
///
/// If the check fails or takes minutes.
pub fn run<F, O>(make: impl FnOnce(EngineClock) -> F, check: fn(Trial) -> Check)
where
    F: Future<Output = O>,
    O: Opened,
{
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build();
    let runtime = runtime.expect("the runtime starts");
    runtime.block_on(async {
        let clock = EngineClock::new();
        let opened = make(clock.clone()).await.opened();
        let Some([store, other]) = opened else { return skipped() };
        let trial = Trial { store, other, clock };
        let checked = tokio::time::timeout(TIME_LIMIT, check(trial));
        checked.await.expect("the check takes too long");
    });
}

#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn skipped() {
    eprintln!("skipped: the store is not available");
}

/// Lists the checks once, for the compiler, which then finds unlisted ones, and for the macro
/// that turns them into tests. `$d` is a dollar sign, which a macro cannot write otherwise.
macro_rules! suite {
    (
        $d:tt
        every store: [$($group:ident { $($check:ident)* })*]
        one partition: [$($whole:ident { $($ordered:ident)* })*]
    ) => {
        $(mod $group;)*
        $(mod $whole;)*

        /// The checks, by group. For [`conformance_tests!`](crate::conformance_tests).
        #[doc(hidden)]
        pub mod checks {
            use super::{Check, Trial};

            $(pub mod $group {
                $(pub fn $check(trial: super::Trial) -> super::Check {
                    Box::pin(super::super::$group::$check(trial))
                })*
            })*
            $(pub mod $whole {
                $(pub fn $ordered(trial: super::Trial) -> super::Check {
                    Box::pin(super::super::$whole::$ordered(trial))
                })*
            })*
        }

        /// Creates a test for each check that every store must pass.
        ///
        /// The argument is the name, or a path that starts with `crate`, of an
        /// `async fn make(clock: EngineClock) -> S`. It opens a store with a new queue that
        /// uses the clock. `S` is a [`Store`](crate::Store), a pair of two handles of one
        /// queue, as two processes have, or an `Option` of these if the store is not
        /// available everywhere.
        ///
        /// `conformance_tests!(make, partitions)` is for a store with several partitions. It
        /// omits the checks of promises that hold only within one partition.
        #[macro_export]
        macro_rules! conformance_tests {
            ($d make:path) => {
                $crate::conformance_tests!($d make, partitions);
                $($crate::conformance_tests!(@ $d make, $whole $($ordered)*);)*
            };
            ($d make:path, partitions) => {
                $($crate::conformance_tests!(@ $d make, $group $($check)*);)*
            };
            (@ $d make:path, $d group:ident $d($d check:ident)*) => {
                mod $d group {
                    #[allow(unused_imports, reason = "the path may be an absolute one")]
                    use super::*;
                    $d(#[test]
                    fn $d check() {
                        let check = $crate::conformance::checks::$d group::$d check;
                        $crate::conformance::run($d make, check);
                    })*
                }
            };
        }
    };
}

suite! {
    $
    every store: [
    adding {
        absent_key_becomes_ready
        ready_key_is_queued_once
        leased_key_becomes_dirty
        dirty_key_runs_once_more
        dirty_key_is_not_leased_twice
        delayed_add_gets_the_same_answer_in_every_state
        zero_delay_means_now
        receipt_reports_the_delay
        rate_limited_add_counts_a_failure
    }
    delays {
        delayed_key_is_never_a_microsecond_early
        delay_is_rounded_up_to_a_microsecond
        earlier_of_two_delays_wins
        delay_starts_at_the_time_of_its_add
        add_makes_a_delayed_key_ready_and_keeps_the_delay
        delay_that_ends_while_the_key_is_ready_changes_nothing
        delay_that_ends_during_a_lease_makes_the_key_dirty
        longest_possible_delay_is_accepted
        expire_counts_due_delays
        thousand_keys_due_at_once_are_all_delivered
        clock_stepping_back_makes_delays_late_never_early
    }
    leasing {
        empty_queue_leases_nothing
        lease_respects_the_maximum
        leased_key_is_not_leased_to_another_owner
        grant_reports_deliveries_and_failures
        tokens_grow_and_are_at_least_the_time
        tokens_grow_when_the_clock_steps_back
        tokens_grow_while_the_clock_is_behind
        longest_possible_lease_is_accepted
        lease_is_rounded_up_to_a_microsecond
        thousand_keys_are_added_leased_and_finished_in_batches
        any_maximum_is_accepted
        owner_may_have_any_name
    }
    finishing {
        done_keeps_failures
        succeed_forgets_failures
        retry_counts_a_failure_and_delays
        retry_without_a_delay_makes_the_key_ready
        retry_after_counts_a_failure_and_delays
        retries_after_a_delay_add_up_and_keep_their_error
        retry_after_zero_makes_the_key_ready
        requeue_after_forgets_failures_and_delays
        requeue_after_zero_makes_the_key_ready
        give_up_makes_a_clean_key_dead
        release_takes_its_delivery_back
        release_keeps_earlier_deliveries
        every_other_finish_resets_deliveries
        pending_delay_survives_the_finish
        earlier_delay_wins_at_a_finish_too
        longest_possible_requeue_is_accepted
        succeeded_key_leaves_nothing_behind
        delays_double_with_each_failure_as_in_client_go
        any_backoff_is_accepted
    }
    stale {
        unknown_key_is_refused
        ready_key_is_refused
        finished_key_is_refused
        delayed_key_is_refused
        expired_lease_is_refused
        key_leased_to_another_owner_is_refused
        older_token_of_the_same_owner_is_refused
        token_of_another_key_is_refused
        dead_key_is_refused
        refused_extension_does_not_extend_the_current_lease
    }
    expiring {
        lease_never_expires_a_microsecond_early
        next_lease_call_delivers_a_key_with_an_expired_lease
        expired_lease_can_be_finished_until_it_is_moved
        expired_lease_can_be_extended_until_it_is_moved
        dirty_key_with_an_expired_lease_runs_once
        expired_key_keeps_its_delay_and_failures
        extended_lease_starts_again
        extension_can_shorten_a_lease
        extension_changes_nothing_else
        extend_answers_for_each_lease
        thousand_leases_expiring_at_once_all_return
        reclaim_releases_unlisted_leases_of_the_owner
        reclaim_compares_tokens_not_keys
        reclaim_ignores_ended_leases
    }
    dead {
        key_delivered_too_often_dies
        key_can_die_at_its_first_expiry
        key_above_a_lowered_limit_dies
        without_a_limit_no_number_of_expiries_is_fatal
        lease_call_moves_keys_to_the_dead_too
        finish_resets_the_count_of_deliveries
        key_dies_with_its_delay
        dirty_key_is_revived_at_its_last_expiry
        dirty_key_revived_by_a_lease_call_keeps_the_priority_of_its_add
        given_up_key_is_listed_with_its_details
        key_delivered_too_often_is_listed_with_its_last_owner
        dead_respects_the_limit
        add_revives_a_dead_key_after_a_delay
        longer_delay_of_an_add_applies_to_a_dead_key
        add_can_revive_a_dead_key_at_once
        rate_limited_add_of_a_dead_key_counts_from_zero
        revived_key_is_ready_without_failures
        revive_affects_only_listed_dead_keys
        dropped_key_is_gone
        hundreds_of_dead_keys_are_revived_or_dropped_in_one_call
        forget_and_remove_ignore_dead_keys
    }
    inspection {
        heartbeat_lists_an_idle_owner
        store_describes_itself
        paused_queue_delivers_nothing_until_it_is_resumed
        pausing_stops_only_deliveries
        stats_of_an_empty_queue_are_zero
        stats_count_every_state
        stats_return_to_zero
        oldest_ready_counts_from_when_the_key_became_ready
        failing_lists_error_and_delay
        failing_omits_healthy_and_dead_keys
        failing_respects_the_limit
        forgotten_failures_lose_their_error
        forget_resets_failures
        forget_keeps_ready_and_delayed_keys
        remove_cancels_ready_and_delayed_keys
        remove_keeps_the_lease
        removed_key_can_become_dirty_again
        remove_keeps_failures
        look_answers_in_the_order_of_the_keys
        workers_lists_leases_and_last_calls
        workers_omits_owners_idle_for_a_day
    }
    priority {
        grant_reports_the_priority
        add_never_lowers_a_priority
        batch_of_adds_keeps_the_highest_priority
        due_key_has_the_highest_priority_of_its_adds
        delayed_add_raises_a_ready_or_dirty_key
        delay_keeps_the_priority_of_the_grant
        dirty_key_has_the_priority_of_its_new_adds
        requeued_key_keeps_its_priority
        retried_dirty_key_has_the_higher_priority
        removed_key_loses_its_priority
        dead_key_loses_its_priority
        key_of_any_priority_wakes_a_waiter
    }
    ready_time {
        time_starts_with_the_add_that_made_the_key_ready
        duplicate_add_does_not_restart_the_time
        raised_priority_does_not_restart_the_time
        raised_key_among_many_keeps_its_own_time
        each_key_of_a_batch_has_its_own_time
        keys_of_all_priorities_have_their_own_times
        keys_leased_one_by_one_have_their_own_times
        time_of_a_delayed_key_starts_when_it_is_moved
        delay_that_ends_while_the_key_is_ready_does_not_restart_the_time
        time_of_a_rate_limited_key_starts_when_it_is_moved
        time_of_a_retried_key_starts_when_it_is_moved
        time_of_a_requeued_key_starts_at_the_end_of_its_lease
        time_of_a_dirty_key_starts_at_the_end_of_its_lease
        time_of_an_expired_key_starts_when_it_is_moved
        time_of_a_reclaimed_key_starts_at_the_reclaim
        time_of_a_revived_key_starts_at_the_revival
        time_of_a_removed_key_starts_with_its_next_add
        pausing_does_not_stop_the_time
        redelivered_and_failed_keys_have_their_own_times
        clock_stepping_back_makes_the_time_zero_never_negative
    }
    batches {
        answers_are_in_the_order_of_the_requests
        empty_batch_gets_an_empty_answer
        key_added_twice_is_queued_once
        leased_key_added_twice_is_dirty_once
        earliest_delay_of_a_batch_wins
        every_failure_of_a_batch_counts
        dead_key_added_twice_is_revived_once
        second_finish_of_a_lease_is_refused
        batch_may_mix_all_finishes
        look_remove_and_forget_accept_repeated_keys
        batch_may_have_a_thousand_keys
        reclaim_may_release_a_thousand_leases
    }
    bytes {
        any_bytes_make_a_distinct_key
        key_of_any_bytes_can_fail_die_and_be_revived
        errors_are_kept_verbatim
        long_errors_are_cut_between_characters
        nul_in_an_error_does_not_fail_the_finish
    }
    waiting {
        add_wakes_a_waiter
        finish_of_a_dirty_key_wakes_a_waiter
        release_wakes_a_waiter
        requeue_without_a_delay_wakes_a_waiter
        reclaim_wakes_a_waiter
        revive_wakes_a_waiter
        moving_due_keys_wakes_a_waiter
        resume_wakes_a_waiter
        key_added_between_lease_and_wait_is_not_missed
        key_added_at_the_start_of_a_wait_is_not_missed
        two_keys_wake_two_waiters
        cancelled_wait_passes_its_wake_up_on
        lease_of_zero_keys_passes_its_wake_up_on
        delay_that_starts_wakes_a_waiter
        delay_that_moves_forward_wakes_a_waiter
        retry_wakes_a_waiter
        delay_that_starts_wakes_a_waiter_of_another_handle
        delay_that_moves_forward_wakes_a_waiter_of_another_handle
        delay_started_between_lease_and_wait_is_not_missed
        wait_ends_at_its_limit
        longest_possible_wait_is_accepted
    }
    limiter {
        burst_is_granted_at_once_and_the_rest_is_spaced
        refused_request_takes_nothing
        request_waits_at_most_its_limit
        tokens_come_back_with_time_up_to_the_burst
        several_tokens_are_taken_together
        request_for_no_tokens_takes_none
        limiters_have_their_own_tokens
        limiter_and_retries_have_their_own_tokens
        handles_share_a_limiter
        wrong_clock_that_was_corrected_does_not_block_a_limiter
        clock_stepping_back_forgives_no_tokens
        any_rate_and_number_of_tokens_is_accepted
        paused_queue_grants_tokens
    }
    histories {
        random_histories_match_the_model
    }
    concurrency {
        workers_never_share_a_key_and_lose_no_add
    }
    ]
    one partition: [
    order {
        keys_are_leased_in_the_order_of_their_adds
        thousand_keys_are_leased_in_order_in_one_call
        clock_stepping_back_does_not_change_the_order
        dirty_key_goes_to_the_tail
        released_key_goes_to_the_tail
        batch_of_finishes_keeps_its_order
        due_key_goes_to_the_tail
        due_delays_are_moved_by_time_before_expired_leases
        revived_and_reclaimed_keys_go_to_the_tail
        removed_key_joins_again_at_the_tail
        lease_reports_when_to_ask_again
        lease_reports_when_an_extended_lease_expires
        stats_report_the_oldest_ready_key
        random_histories_are_leased_in_order
    }
    priority_order {
        highest_priority_is_leased_first
        hundreds_of_keys_are_leased_by_priority
        raised_key_goes_to_the_tail_of_its_priority
        delayed_add_raises_a_key_too
        requeued_key_joins_the_tail_of_its_priority
        due_key_joins_the_tail_of_its_priority
        removed_key_leaves_its_place
        low_priority_key_never_starves
        none_of_many_priorities_starves
        lease_reports_ready_keys_of_any_priority
        stats_report_the_oldest_key_of_any_priority
    }
    rate {
        burst_is_free_and_the_rest_is_spaced
        rate_equals_that_of_a_token_bucket
        retries_and_adds_share_the_rate
        longer_of_backoff_and_rate_wins
        retry_after_takes_no_token
        adds_without_a_rate_take_no_token
        duplicate_add_takes_a_token_too
        refused_finish_takes_no_token
        wrong_clock_that_was_corrected_does_not_delay_retries
        any_burst_is_accepted
        longest_possible_interval_is_accepted
    }
    ]
}
