//! The suite that every store must pass.
//!
//! [`conformance_tests!`](crate::conformance_tests) makes a test of each check, so that
//! `cargo test` shows them one by one. The checks follow the documentation of
//! [`Store`]: its numbered rules, and each cell of its tables. What that leaves open is not
//! asserted: which of two keys comes first that became ready at the same time, what
//! `deliveries` says of a key that is absent or dead by choice, for how long a key is told
//! to wait that has an earlier delay.
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
//! A store that may not be had everywhere, whose queue is in several partitions:
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

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::{EngineClock, Store};

mod model;
mod tools;

pub use tools::Trial;

/// A check that runs.
pub type Check = Pin<Box<dyn Future<Output = ()>>>;

/// How long a check may take on a busy machine with a server far away.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a function that opens a store may give: the store, or nothing if it cannot be had
/// here. Then the check is left out, which it says.
pub trait Opened {
    /// The store, if there is one.
    fn opened(self) -> Option<Arc<dyn Store>>;
}

impl<S: Store> Opened for S {
    fn opened(self) -> Option<Arc<dyn Store>> {
        Some(Arc::new(self))
    }
}

impl<S: Store> Opened for Option<S> {
    fn opened(self) -> Option<Arc<dyn Store>> {
        self.map(|store| Arc::new(store) as Arc<dyn Store>)
    }
}

/// Runs one check on a store that `make` opens, on a runtime of its own.
///
/// # Panics
///
/// If the store does not do what it must, or takes minutes for it.
pub fn run<F, O>(make: impl FnOnce(EngineClock) -> F, check: fn(Trial) -> Check)
where
    F: Future<Output = O>,
    O: Opened,
{
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime can be started");
    runtime.block_on(async {
        let clock = EngineClock::new();
        let Some(store) = make(clock.clone()).await.opened() else { return left_out() };
        let checked = tokio::time::timeout(PATIENCE, check(Trial { store, clock }));
        checked.await.expect("the check ends in time");
    });
}

#[expect(clippy::print_stderr, reason = "a test tells whoever runs it")]
fn left_out() {
    eprintln!("left out: there is no store to check here");
}

/// Lists the checks once: for the compiler, which then knows of one that nobody lists, and
/// for the macro that makes tests of them. `$d` is a dollar sign, which a macro cannot
/// write into a macro otherwise.
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

        /// Makes a test of each check of the suite that every store must pass.
        ///
        /// It is given an `async fn make(clock: EngineClock) -> S` by its name, or by a
        /// path that begins with `crate`. That opens a store on a queue of its own whose
        /// time is the clock. `S` is a [`Store`](crate::Store), or an `Option` of one where
        /// it may not be had.
        ///
        /// `conformance_tests!(make, partitions)` is for a store whose queue is kept in
        /// several parts: what is promised of one line only is left out.
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
        an_absent_key_is_ready
        a_ready_key_is_there_once
        a_key_with_a_worker_becomes_dirty
        a_dirty_key_stays_dirty_and_runs_once_more
        a_dirty_key_is_with_one_worker_at_a_time
        a_delay_is_answered_alike_in_every_state
        no_delay_at_all_is_now
        a_receipt_says_how_long_the_key_waits
        a_rate_limited_add_counts_a_failure
    }
    delays {
        a_delayed_key_comes_at_its_time_and_not_a_microsecond_before
        a_part_of_a_microsecond_is_rounded_up
        the_earlier_of_two_delays_wins
        a_later_add_counts_from_its_own_time
        a_delayed_key_that_is_added_is_ready_and_the_delay_still_fires
        a_delay_that_is_over_while_the_key_is_ready_changes_nothing
        a_delay_that_is_over_while_the_key_is_with_a_worker_makes_it_dirty
        the_longest_delay_there_is_can_be_asked_for
        expire_counts_the_delays_that_are_over
        a_thousand_keys_that_are_due_at_once_all_come
        a_clock_that_steps_back_makes_delays_late_and_never_early
    }
    leasing {
        nothing_is_leased_of_an_empty_queue
        no_more_are_leased_than_were_asked_for
        a_leased_key_is_with_its_worker_alone
        a_grant_says_how_often_the_key_was_granted_and_failed
        tokens_grow_and_are_no_smaller_than_the_time
        tokens_grow_when_the_clock_steps_back
        a_lease_may_be_as_long_as_can_be_said
        a_part_of_a_microsecond_of_a_lease_is_rounded_up
        a_thousand_keys_are_added_leased_and_ended_in_a_batch
        any_number_of_keys_may_be_asked_for
        owners_may_have_any_name
    }
    finishing {
        done_keeps_failures
        succeed_forgets_failures
        retry_counts_a_failure_and_delays
        retry_without_a_delay_makes_the_key_ready
        retry_after_counts_a_failure_and_delays
        retries_after_a_delay_add_up_and_keep_their_error
        retry_after_no_delay_makes_the_key_ready
        requeue_after_forgets_failures_and_delays
        requeue_after_no_delay_makes_the_key_ready
        give_up_makes_the_key_dead_unless_it_was_added
        release_takes_its_grant_back_and_no_more
        release_keeps_the_grants_before_it
        every_other_end_makes_deliveries_start_again
        a_delay_that_the_key_had_lasts_past_the_end
        the_earlier_of_two_delays_wins_at_an_end_too
        the_longest_retry_there_is_can_be_asked_for
        nothing_is_left_of_a_key_that_ended_well
        delays_double_with_each_failure_as_in_client_go
        a_backoff_may_have_any_numbers
    }
    stale {
        of_a_key_that_nobody_knows
        of_a_key_that_was_never_leased
        of_a_key_that_has_ended
        of_a_key_that_is_delayed
        of_a_key_whose_lease_ran_out
        of_a_key_that_another_holds
        of_a_key_that_the_same_worker_holds_again
        of_a_key_by_the_token_of_another_key
        of_a_dead_key
        a_refused_extension_does_not_lengthen_the_lease_of_another
    }
    expiring {
        a_lease_runs_out_at_its_deadline_and_not_a_microsecond_before
        whoever_asks_next_gets_a_key_whose_lease_ran_out
        until_it_is_moved_the_holder_can_end_it
        until_it_is_moved_the_holder_can_extend_it
        a_dirty_key_whose_lease_runs_out_comes_once
        a_key_whose_lease_runs_out_keeps_its_delay_and_failures
        an_extended_lease_lasts_from_then_on
        an_extension_may_make_a_lease_shorter
        an_extension_changes_nothing_else
        extend_says_of_each_lease_whether_it_was_held
        a_thousand_leases_that_run_out_at_once_all_come_back
        reclaim_releases_what_the_owner_does_not_know_of
        reclaim_goes_by_the_token_and_not_the_key
        reclaim_knows_no_lease_that_has_ended
    }
    dying {
        a_key_dies_when_it_was_granted_too_often
        a_key_may_die_at_the_first_lease_that_runs_out
        a_key_that_was_granted_more_often_than_that_dies_too
        without_a_limit_a_key_never_dies_of_lost_leases
        a_lease_call_lets_keys_die_too
        ends_of_leases_start_the_count_again
        a_dirty_key_dies_too_and_so_does_its_delay
        a_buried_key_is_listed_with_all_that_is_known
        a_key_that_was_granted_too_often_is_listed_with_its_last_owner
        no_more_dead_keys_are_listed_than_were_asked_for
        a_dead_key_that_is_added_waits_and_starts_afresh
        a_dead_key_that_is_added_with_a_longer_delay_has_that
        a_dead_key_can_be_revived_by_an_add_at_once
        a_rate_limited_add_of_a_dead_key_counts_from_nothing
        revived_keys_are_ready_and_start_afresh
        only_those_are_revived_that_are_meant_and_dead
        dropped_keys_are_gone_for_good
        hundreds_of_dead_keys_are_revived_and_dropped_in_one_call
        a_dead_key_is_neither_forgotten_nor_removed
    }
    operating {
        a_store_says_what_it_is
        a_paused_queue_hands_nothing_out_until_it_is_resumed
        in_a_paused_queue_everything_else_goes_on
        an_empty_queue_counts_nothing
        every_key_is_counted_where_it_stands
        counts_go_back_to_nothing
        a_ready_key_is_as_old_as_its_readiness
        failing_keys_are_listed_with_error_and_time
        keys_that_are_well_or_dead_are_not_failing
        no_more_failing_keys_are_listed_than_were_asked_for
        a_key_that_fails_again_has_only_its_new_error
        forgotten_failures_count_no_more
        forgetting_leaves_what_is_planned
        a_removed_key_is_planned_no_more
        a_removed_key_that_is_with_a_worker_stays_there
        a_removed_key_that_is_added_again_is_dirty_again
        a_removed_key_keeps_its_failures
        looks_come_in_the_order_of_the_keys
        workers_are_known_by_what_they_hold_and_when_they_spoke
        workers_that_were_not_heard_of_for_a_day_are_not_listed
    }
    priority {
        a_grant_tells_the_priority_of_its_key
        an_add_never_lowers_a_priority
        adds_of_one_batch_raise_a_key_together
        a_key_whose_delay_is_over_has_the_priority_of_its_add
        a_delay_raises_a_key_that_is_ready_or_dirty
        a_delay_keeps_the_priority_that_a_grant_takes_with_it
        a_dirty_key_has_the_priority_of_what_made_it_dirty
        a_key_that_comes_again_keeps_its_priority
        a_retried_key_that_is_dirty_has_the_higher_of_both_priorities
        a_removed_key_has_no_priority
        a_dead_key_has_no_priority
        a_key_of_any_priority_wakes
    }
    waited {
        a_key_waits_from_the_add_that_made_it_ready
        an_add_of_a_ready_key_does_not_start_it_again
        a_key_that_grows_in_priority_has_waited_all_the_time
        a_key_that_was_raised_among_many_has_waited_all_the_time
        keys_of_one_call_have_each_waited_their_own_time
        keys_of_all_priorities_have_each_waited_their_own_time
        keys_that_are_asked_for_one_by_one_have_waited_too
        a_delayed_key_waits_from_when_it_was_moved
        a_delay_that_is_over_while_the_key_is_ready_does_not_start_it_again
        a_rate_limited_key_waits_from_when_it_was_moved
        a_retried_key_waits_from_when_it_was_moved
        a_key_that_comes_again_at_once_waits_from_the_end_of_its_lease
        a_dirty_key_waits_from_the_end_of_the_lease
        a_key_whose_lease_ran_out_waits_from_when_it_was_moved
        a_reclaimed_key_waits_from_then
        a_revived_key_waits_from_its_revival
        a_removed_key_that_is_added_again_waits_from_then
        a_key_of_a_paused_queue_waits_on
        a_key_that_was_granted_or_failed_before_has_waited_too
        a_clock_that_steps_back_takes_no_time_away
    }
    batches {
        answers_come_in_the_order_of_what_was_asked
        an_empty_batch_is_answered_with_nothing
        a_key_that_is_added_twice_is_added_once
        a_key_that_is_added_twice_while_processing_is_dirty_once
        of_delays_in_a_batch_the_earliest_wins
        each_failure_in_a_batch_counts
        a_dead_key_that_is_added_twice_in_a_batch_is_revived_once
        the_second_end_of_a_lease_comes_too_late
        every_sort_of_end_may_be_in_one_batch
        a_key_may_be_looked_up_removed_and_forgotten_twice
        a_thousand_keys_may_be_in_any_batch
        a_thousand_leases_may_be_reclaimed_but_for_one
    }
    bytes {
        keys_of_any_bytes_stay_apart_and_as_they_are
        keys_of_any_bytes_fail_die_and_come_back
        texts_are_kept_as_they_are
        long_texts_are_cut_between_two_characters
        a_nul_in_a_text_does_not_keep_a_lease_from_ending
    }
    waiting {
        an_add_wakes
        the_end_of_a_dirty_key_wakes
        a_release_wakes
        a_retry_without_delay_wakes
        a_reclaim_wakes
        a_revival_wakes
        what_somebody_moves_wakes
        resuming_wakes
        a_key_that_came_between_the_lease_and_the_wait_is_not_missed
        a_key_that_comes_while_somebody_begins_to_wait_is_not_missed
        each_of_two_keys_wakes_somebody
        whoever_stops_waiting_leaves_the_wake_up_to_another
        a_lease_of_nothing_leaves_the_wake_up_to_another
        a_wait_lasts_no_longer_than_it_was_told_to
        the_longest_wait_there_is_can_be_asked_for
    }
    histories {
        are_answered_as_the_rules_say
    }
    rivals {
        never_hold_a_key_together_and_lose_none
    }
    ]
    one partition: [
    order {
        keys_come_in_the_order_in_which_they_were_added
        a_thousand_keys_come_in_one_call_and_in_order
        the_order_outlives_a_clock_that_steps_back
        a_dirty_key_goes_to_the_end_of_the_line
        a_released_key_goes_to_the_end_of_the_line
        a_batch_of_ends_keeps_its_order
        a_key_whose_delay_is_over_goes_to_the_end_of_the_line
        delays_that_are_over_come_by_time_and_leases_after_them
        revived_and_reclaimed_keys_go_to_the_end_of_the_line
        a_key_that_was_removed_comes_at_its_new_place
        lease_says_when_to_ask_again
        lease_says_when_an_extended_lease_runs_out
        the_oldest_ready_key_is_told_of
        any_history_is_served_in_order
    }
    rank {
        the_highest_priority_comes_first
        hundreds_of_keys_of_all_priorities_come_in_order
        a_key_that_is_raised_goes_to_the_end_of_its_new_line
        a_key_is_raised_by_a_delay_too
        what_comes_again_stands_in_the_line_of_its_priority
        what_is_due_stands_in_the_line_of_its_priority
        a_removed_key_leaves_its_line
        no_key_is_passed_over_for_ever
        none_of_many_priorities_is_passed_over_for_ever
        lease_tells_of_ready_keys_of_any_priority
        the_oldest_ready_key_is_told_of_whatever_its_priority
    }
    rate {
        a_burst_is_free_and_the_rest_waits_its_turn
        the_rate_is_that_of_a_bucket_at_any_times
        retries_and_adds_share_the_rate
        the_longer_of_both_delays_counts
        what_names_no_rate_takes_no_share_of_it
        a_share_is_taken_by_an_add_that_changes_nothing_too
        a_refused_end_takes_no_share
        a_rate_may_have_any_numbers
        a_rate_of_ages_can_be_asked_for
    }
    ]
}
