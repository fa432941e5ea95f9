//! Small handwritten histories: correct ones, and incorrect ones for each invariant.

use super::*;
use crate::history::event::{
    Added, Answer, Event, FinishAnswer, FinishKind, Grant, Line, Receipt, Request,
};
use crate::run::plan::ClockStep;
use crate::run::scenario::{Load, Scenario};
use crate::store::Kind;

const LEASE: u64 = 400;

/// The history of one process. Times and tokens are small numbers.
#[derive(Default)]
struct Process {
    lines: Vec<Line>,
    calls: u64,
    name: &'static str,
}

impl Process {
    fn new(name: &'static str) -> Self {
        Self { name, ..Self::default() }
    }

    fn at(mut self, at: u64, event: Event) -> Self {
        self.lines.push(Line { at, event });
        self
    }

    fn call(
        mut self,
        sent: u64,
        request: Request,
        answer: Option<(u64, Answer)>,
    ) -> Self {
        self.calls += 1;
        let call = self.calls;
        let this = self.at(sent, Event::Sent { call, request });
        match answer {
            Some((at, answer)) => this.at(at, Event::Answered { call, answer }),
            None => this,
        }
    }

    /// Adds version `version` in lane 0, which changes something.
    fn add(self, at: u64, version: u64) -> Self {
        self.add_with(at, version, Some(Added::Changed))
    }

    fn add_with(self, at: u64, version: u64, answer: Option<Added>) -> Self {
        let key = "k".to_owned();
        let adding = Event::Adding { op: at, key, lane: 0, version, delay: 0 };
        let receipt = |added| Receipt { added, rate_delay: None };
        let answered = answer.map(|added| (at + 1, Answer::Added(vec![receipt(added)])));
        let request = Request::Add(vec!["k".to_owned()]);
        let this = self.at(at, adding).call(at, request, answered);
        match answer {
            Some(_) => this.at(at + 1, Event::Added { op: at, acknowledged: true }),
            None => this,
        }
    }

    /// Makes a rate-limited add, which is assigned this delay.
    fn add_rate_limited(self, at: u64, delay: u64) -> Self {
        let receipt = Receipt { added: Added::Changed, rate_delay: Some(delay) };
        let answer = Some((at + 1, Answer::Added(vec![receipt])));
        self.call(at, Request::Add(vec!["k".to_owned()]), answer)
    }

    /// Leases the key with this token and runs it; the run sees `version`.
    fn run(self, at: u64, token: u64, version: u64) -> Self {
        self.delivery(at, token, version, 1)
    }

    fn delivery(self, at: u64, token: u64, version: u64, deliveries: u32) -> Self {
        let (owner, key) = (self.name.to_owned(), "k".to_owned());
        let grants = vec![Grant { key: key.clone(), token, deliveries }];
        let lease = Request::Lease { owner, lease: LEASE };
        let this = self.call(at, lease, Some((at + 1, Answer::Leased(grants))));
        this.at(at + 2, Event::Run { key, token, versions: vec![version] })
    }

    fn finish(
        self,
        sent: u64,
        token: u64,
        kind: FinishKind,
        answer: Option<(u64, FinishAnswer)>,
    ) -> Self {
        let answer = answer.map(|(at, answer)| (at, Answer::Finished(vec![answer])));
        self.call(sent, Request::Finish(vec![("k".to_owned(), token, kind)]), answer)
    }

    fn done(self, at: u64, token: u64) -> Self {
        self.finish(at, token, FinishKind::Done, Some((at + 1, FinishAnswer::Accepted)))
    }

    fn refused(self, at: u64, token: u64) -> Self {
        self.finish(at, token, FinishKind::Done, Some((at + 1, FinishAnswer::Refused)))
    }

    fn extend(self, at: u64, token: u64) -> Self {
        let held = vec![("k".to_owned(), token)];
        let request = Request::Extend { held, lease: LEASE };
        self.call(at, request, Some((at + 1, Answer::Extended(vec![true]))))
    }

    fn give_up(self, at: u64, token: u64) -> Self {
        self.finish(at, token, FinishKind::GiveUp, Some((at + 1, FinishAnswer::Dead)))
    }

    /// Lists the dead keys and finds the key there.
    fn list_dead(self, at: u64, deliveries: u32) -> Self {
        let answer = Answer::Dead(vec![dead_key("it failed", deliveries)]);
        self.call(at, Request::Dead, Some((at + 1, answer)))
    }

    fn revive(self, at: u64) -> Self {
        let request = Request::Revive(vec!["k".to_owned()]);
        self.call(at, request, Some((at + 1, Answer::Removed(1))))
    }

    fn drop_dead(self, at: u64) -> Self {
        let request = Request::DropDead(vec!["k".to_owned()]);
        self.call(at, request, Some((at + 1, Answer::Removed(1))))
    }

    fn reclaim(self, at: u64) -> Self {
        let request = Request::Reclaim { owner: self.name.to_owned(), held: Vec::new() };
        self.call(at, request, Some((at + 1, Answer::Reclaimed(1))))
    }
}

fn dead_key(reason: &str, deliveries: u32) -> DeadKey {
    DeadKey { key: "k".to_owned(), reason: reason.to_owned(), deliveries }
}

fn check_with(
    state: &FinalState,
    store: Kind,
    processes: impl IntoIterator<Item = Process>,
) -> Vec<Rule> {
    let lines = processes.into_iter().map(|process| process.lines).collect();
    let scenario = Scenario::new(store, Load::Busy, 0);
    let verdict = check(History::merge(lines), state, &plan(scenario));
    verdict.violations.iter().map(|violation| violation.rule).collect()
}

/// Returns the plan of a long run.
fn plan(scenario: Scenario) -> Plan {
    let (start, until, seed, producers) = (0, 1_000_000_000, 0, 1);
    Plan { start, until, seed, producers, scenario, clock_steps: Vec::new() }
}

/// Checks histories after which the queue of a server is empty.
fn rules(processes: impl IntoIterator<Item = Process>) -> Vec<Rule> {
    check_with(&FinalState::default(), Kind::Postgres, processes)
}

/// Checks histories after which the key is dead.
fn rules_if_dead(processes: impl IntoIterator<Item = Process>) -> Vec<Rule> {
    let state =
        FinalState { dead: vec![dead_key("it failed", 1)], ..FinalState::default() };
    check_with(&state, Kind::Postgres, processes)
}

fn operator() -> Process {
    Process::new("operator")
}

fn producer() -> Process {
    Process::new("producer")
}

fn a() -> Process {
    Process::new("a")
}

fn b() -> Process {
    Process::new("b")
}

#[test]
fn an_accepted_run_that_saw_the_add_is_correct() {
    assert_eq!(rules([producer().add(10, 1), a().run(20, 20, 1).done(30, 20)]), []);
}

#[test]
fn an_add_that_no_run_saw_is_lost() {
    let runs = a().run(20, 20, 1).done(30, 20);
    assert_eq!(rules([producer().add(10, 1).add(25, 2), runs]), [Rule::I1]);
}

#[test]
fn refused_and_retried_runs_do_not_count() {
    let refused = a().run(20, 20, 1).refused(30, 20);
    assert_eq!(rules([producer().add(10, 1), refused]), [Rule::I1]);
    let accepted = Some((31, FinishAnswer::Accepted));
    let retried = a().run(20, 20, 1).finish(30, 20, FinishKind::Retry, accepted);
    assert_eq!(rules([producer().add(10, 1), retried]), [Rule::I1]);
}

#[test]
fn a_busy_answer_is_the_same_as_no_call() {
    let busy = || {
        a().run(20, 20, 1).finish(
            30,
            20,
            FinishKind::Done,
            Some((31, FinishAnswer::NotExecuted)),
        )
    };
    assert_eq!(rules([producer().add(10, 1), busy().done(40, 20)]), []);
    assert_eq!(rules([producer().add(10, 1), busy()]), [Rule::I1]);
    let next = b().run(40, 40, 1).done(50, 40);
    assert_eq!(rules([producer().add(10, 1), busy(), next]), [Rule::I4]);
}

#[test]
fn an_unanswered_add_may_be_lost() {
    assert_eq!(rules([producer().add_with(10, 1, None)]), []);
}

/// A worker was killed before the answer arrived, and the key was gone. That looked like a
/// lost add until such a finish counted as in doubt.
#[test]
fn an_unanswered_finish_is_in_doubt() {
    let doubt = a().run(20, 20, 1).finish(30, 20, FinishKind::Done, None);
    assert_eq!(rules([producer().add(10, 1), doubt]), []);
    let asked_again =
        a().run(20, 20, 1).finish(30, 20, FinishKind::Done, None).refused(60, 20);
    assert_eq!(rules([producer().add(10, 1), asked_again]), []);
}

#[test]
fn a_queue_that_does_not_become_idle_is_found() {
    let state = FinalState { delayed: 1, ..FinalState::default() };
    assert_eq!(check_with(&state, Kind::Postgres, []), [Rule::I1]);
}

/// Only a key that may have been at its last delivery can be revived by its add.
#[test]
fn a_key_that_waits_as_if_revived_without_a_reason_is_found() {
    let state = FinalState { revived: vec!["k".to_owned()], ..FinalState::default() };
    let histories = || [producer().add(10, 1).add(40, 2), a().run(20, 20, 1)];
    assert!(check_with(&state, Kind::Postgres, histories()).contains(&Rule::I1));
}

#[test]
fn an_add_with_an_hour_of_delay_need_not_be_seen() {
    let key = "k".to_owned();
    let delay = AN_HOUR;
    let producer = producer()
        .at(10, Event::Adding { op: 1, key, lane: 0, version: 1, delay })
        .at(11, Event::Added { op: 1, acknowledged: true });
    assert_eq!(rules([producer]), []);
}

#[test]
fn a_token_granted_twice_is_found() {
    let adds = producer().add(10, 1).add(40, 2);
    let runs = [a().run(20, 20, 1).done(30, 20), b().run(50, 20, 2).refused(60, 20)];
    assert!(rules([adds].into_iter().chain(runs)).contains(&Rule::I2));
}

#[test]
fn restarted_tokens_are_found() {
    let adds = producer().add(10, 1).add(40, 2);
    let runs = a().run(20, 20, 1).done(30, 20).run(50, 1, 2).done(60, 1);
    assert!(rules([adds, runs]).contains(&Rule::I2));
}

#[test]
fn a_token_finished_twice_is_found() {
    let runs = a().run(20, 20, 1).done(30, 20).done(40, 20);
    assert_eq!(rules([producer().add(10, 1), runs]), [Rule::I2]);
}

/// A finish of a dirty key neither deletes nor requeues it. The key comes back when the lease
/// expires, as a second delivery, although the first was finished.
#[test]
fn a_forgotten_finish_is_found() {
    let adds = producer().add(10, 1).add(25, 2);
    let runs = a().run(20, 20, 1).done(30, 20).delivery(425, 425, 2, 2).done(430, 425);
    assert_eq!(rules([adds, runs]), [Rule::I2]);
}

#[test]
fn a_second_delivery_after_an_unrecorded_lease_is_correct() {
    let adds = producer().add(10, 1).add(25, 2);
    let runs = a().run(20, 20, 1).done(30, 20).delivery(440, 440, 2, 2).done(450, 440);
    assert_eq!(rules([adds, runs]), []);
}

#[test]
fn a_finish_accepted_after_a_newer_lease_is_found() {
    let late = a().run(20, 20, 1).done(600, 20);
    let runs = [late, b().delivery(430, 430, 1, 2).refused(620, 430)];
    assert_eq!(rules([producer().add(10, 1)].into_iter().chain(runs)), [Rule::I3]);
}

#[test]
fn an_extension_after_a_newer_lease_is_found() {
    let late = a().run(20, 20, 1).extend(600, 20);
    let runs = [late, b().delivery(430, 430, 1, 2).done(620, 430)];
    let found = rules([producer().add(10, 1)].into_iter().chain(runs));
    assert!(found.contains(&Rule::I3), "{found:?}");
}

/// A worker was stopped between the answer and its line. The line is later than the newer
/// lease, but the finish was sent before, so it may have preceded the lease.
#[test]
fn an_answer_recorded_late_is_not_a_stale_finish() {
    let stopped = a().run(20, 20, 1).finish(
        30,
        20,
        FinishKind::Done,
        Some((900, FinishAnswer::Accepted)),
    );
    let adds = producer().add(10, 1).add(25, 2);
    assert_eq!(rules([adds, stopped, b().run(40, 40, 2).done(50, 40)]), []);
}

/// Leases are ordered by token: the first one recorded need not be the first one granted.
#[test]
fn a_lease_recorded_after_a_newer_one_is_still_the_older() {
    let (key, owner) = ("k".to_owned(), "a".to_owned());
    let grants = vec![Grant { key: key.clone(), token: 20, deliveries: 1 }];
    let lease = Request::Lease { owner, lease: LEASE };
    let stopped = a()
        .call(20, lease, Some((800, Answer::Leased(grants))))
        .at(801, Event::Run { key, token: 20, versions: vec![1] })
        .refused(810, 20);
    let next = b().delivery(430, 430, 1, 2).done(440, 430);
    assert_eq!(rules([producer().add(10, 1), stopped, next]), []);
}

#[test]
fn a_refused_stale_finish_is_correct() {
    let late = a().run(20, 20, 1).refused(600, 20);
    assert_eq!(
        rules([producer().add(10, 1), late, b().delivery(430, 430, 1, 2).done(440, 430)]),
        []
    );
}

#[test]
fn a_lease_before_the_earlier_one_expired_is_found() {
    let early = b().delivery(300, 300, 1, 2).done(310, 300);
    let found =
        rules([producer().add(10, 1), a().run(20, 20, 1).refused(500, 20), early]);
    assert_eq!(found, [Rule::I4]);
}

#[test]
fn a_lease_expires_only_after_its_last_extension() {
    let held = a().run(20, 20, 1).extend(150, 20).refused(600, 20);
    let early = b().delivery(450, 450, 1, 2).done(460, 450);
    assert_eq!(rules([producer().add(10, 1), held, early]), [Rule::I4]);
}

#[test]
fn a_lease_that_may_have_been_finished_or_reclaimed_need_not_expire() {
    let ended = a().run(20, 20, 1).finish(30, 20, FinishKind::Release, None);
    let next = || b().run(100, 100, 1).done(110, 100);
    assert_eq!(rules([producer().add(10, 1), ended, next()]), []);
    let reclaimed = a().run(20, 20, 1).reclaim(60);
    assert_eq!(rules([producer().add(10, 1), reclaimed, next()]), []);
}

#[test]
fn leases_of_an_embedded_store_end_with_its_process() {
    let histories = || {
        let first = a().add(10, 1).run(20, 20, 1);
        [first, b().delivery(100, 100, 1, 2).done(110, 100)]
    };
    let state = FinalState::default();
    assert_eq!(check_with(&state, Kind::Memory, histories()), []);
    assert_eq!(check_with(&state, Kind::Postgres, histories()), [Rule::I4]);
}

#[test]
fn an_extra_run_is_found() {
    let runs = a().run(20, 20, 1).done(30, 20).run(40, 40, 1).done(50, 40);
    assert_eq!(rules([producer().add(10, 1), runs]), [Rule::I5]);
}

#[test]
fn a_duplicate_add_does_not_allow_another_run() {
    let adds = producer().add(10, 1).add_with(15, 2, Some(Added::Duplicate));
    let runs = a().run(20, 20, 2).done(30, 20).run(40, 40, 2).done(50, 40);
    assert_eq!(rules([adds, runs]), [Rule::I5]);
}

#[test]
fn doubtful_adds_retries_and_expired_leases_each_allow_one_more_run() {
    let adds = producer().add(10, 1).add_with(15, 2, None);
    let accepted = Some((41, FinishAnswer::Accepted));
    let first = a().run(20, 20, 2).done(25, 20).run(30, 30, 2).finish(
        40,
        30,
        FinishKind::Retry,
        accepted,
    );
    let lost = first.run(50, 50, 2);
    assert_eq!(rules([adds, lost, b().delivery(460, 460, 2, 2).done(470, 460)]), []);
}

#[test]
fn a_dead_key_is_not_lost() {
    let histories = || [producer().add(10, 1), a().run(20, 20, 1).give_up(30, 20)];
    assert_eq!(rules_if_dead(histories()), []);
    assert_eq!(rules(histories()), [Rule::I1, Rule::I6]);
}

#[test]
fn a_dropped_dead_key_is_not_lost() {
    let runs = || a().run(20, 20, 1).give_up(30, 20);
    let dropped = || operator().drop_dead(40);
    assert_eq!(rules([producer().add(10, 1), runs(), dropped()]), []);
    let later = producer().add(10, 1).add(50, 2);
    assert_eq!(rules([later, runs(), dropped()]), [Rule::I1]);
}

#[test]
fn an_add_revives_a_dead_key() {
    let adds = || producer().add(10, 1).add(50, 2);
    let given_up = || a().run(20, 20, 1).give_up(30, 20);
    assert_eq!(rules_if_dead([adds(), given_up()]), [Rule::I6]);
    let again = || given_up().run(60, 60, 2).give_up(70, 60);
    assert_eq!(rules_if_dead([adds(), again()]), []);
    let revived = operator().revive(55);
    assert_eq!(rules_if_dead([adds(), again(), revived]), [Rule::I6]);
}

#[test]
fn a_revived_key_runs_once_more() {
    let runs = || a().run(20, 20, 1).give_up(30, 20).run(60, 60, 1).done(70, 60);
    assert_eq!(rules([producer().add(10, 1), runs(), operator().revive(40)]), []);
    assert_eq!(rules([producer().add(10, 1), runs()]), [Rule::I5, Rule::I6]);
}

#[test]
fn a_dead_key_has_a_cause_and_a_reason() {
    let histories = |deliveries| {
        let list = operator().list_dead(500, deliveries);
        [producer().add(10, 1), a().run(20, 20, 1), list]
    };
    let max = MAX_DELIVERIES.get();
    let check = |reason, deliveries| {
        let state =
            FinalState { dead: vec![dead_key(reason, max)], ..FinalState::default() };
        check_with(&state, Kind::Postgres, histories(deliveries))
    };
    assert_eq!(check("too many deliveries", max), []);
    assert_eq!(check("", max), [Rule::I6]);
    assert_eq!(check("too many deliveries", 2), [Rule::I6]);
}

#[test]
fn a_run_before_its_rate_limited_time_is_found() {
    let runs = || a().run(50, 50, 1).done(60, 50);
    assert_eq!(rules([producer().add_rate_limited(10, 60), runs()]), [Rule::I7]);
    assert_eq!(rules([producer().add_rate_limited(10, 40), runs()]), []);
}

/// The first call was not answered, and may have been assigned an earlier time.
#[test]
fn a_key_added_twice_may_run_at_the_earlier_time() {
    let adds = producer().add_with(5, 1, None).add_rate_limited(10, 60);
    assert_eq!(rules([adds, a().run(50, 50, 1).done(60, 50)]), []);
}

/// Checks histories of a server that has only adds on disk and is killed at time `kill`.
fn rules_after_kill(
    kill: u64,
    processes: impl IntoIterator<Item = Process>,
) -> Vec<Rule> {
    let nemesis = Process::new("nemesis").at(kill, Event::KillingServer);
    let lines = processes.into_iter().chain([nemesis]).map(|process| process.lines);
    let scenario = Scenario::new(Kind::Postgres, Load::Busy, 0);
    let scenario = Scenario { durability: Durability::Adds, ..scenario };
    let verdict =
        check(History::merge(lines.collect()), &FinalState::default(), &plan(scenario));
    verdict.violations.iter().map(|violation| violation.rule).collect()
}

/// Long after all other events.
const LATER: u64 = 10_000_000;

#[test]
fn a_kill_may_undo_a_finish_if_only_adds_are_on_disk() {
    let runs = || {
        let first = a().run(20, 20, 1).done(30, 20);
        [producer().add(10, 1), first.delivery(500, 500, 1, 2).done(510, 500)]
    };
    assert_eq!(rules_after_kill(40, runs()), []);
    assert_eq!(rules_after_kill(LATER, runs()), rules(runs()));
    assert!(rules(runs()).contains(&Rule::I5));
}

#[test]
fn a_kill_may_undo_a_lease_if_only_adds_are_on_disk() {
    let runs =
        || [producer().add(10, 1), a().run(20, 20, 1), b().run(60, 60, 1).done(70, 60)];
    assert_eq!(rules_after_kill(50, runs()), []);
    assert_eq!(rules_after_kill(LATER, runs()), [Rule::I4]);
}

#[test]
fn a_kill_may_undo_giving_up_if_only_adds_are_on_disk() {
    let runs = || {
        let first = a().run(20, 20, 1).give_up(30, 20);
        [producer().add(10, 1), first.delivery(500, 500, 1, 2).done(510, 500)]
    };
    assert_eq!(rules_after_kill(40, runs()), []);
    assert!(rules_after_kill(LATER, runs()).contains(&Rule::I6));
}

#[test]
fn a_kill_may_not_undo_an_add_on_disk() {
    assert_eq!(rules_after_kill(15, [producer().add(10, 1)]), [Rule::I1]);
}

/// Checks histories of a steady run.
fn rules_if_steady(processes: impl IntoIterator<Item = Process>) -> Vec<Rule> {
    let lines = processes.into_iter().map(|process| process.lines).collect();
    let plan = plan(Scenario::new(Kind::Postgres, Load::Steady, 0));
    let verdict = check(History::merge(lines), &FinalState::default(), &plan);
    verdict.violations.iter().map(|violation| violation.rule).collect()
}

#[test]
fn a_lease_that_expires_although_its_holder_lives_is_found() {
    let lost = || {
        [producer().add(10, 1), a().run(20, 20, 1), b().run(500, 500, 1).done(510, 500)]
    };
    assert_eq!(rules_if_steady(lost()), [Rule::I8]);
    assert_eq!(rules(lost()), [], "a busy run stops workers");
    let released = a().run(20, 20, 1).finish(30, 20, FinishKind::Release, None);
    let again = b().run(500, 500, 1).done(510, 500);
    assert_eq!(rules_if_steady([producer().add(10, 1), released, again]), []);
}

#[test]
fn a_lease_on_a_silent_server_may_expire() {
    let hole = |at| {
        let hole = Event::BlackHole { shard: 0, micros: 200 };
        Process::new("nemesis").at(at, hole)
    };
    let lost = |at| {
        let again = b().run(500, 500, 1).done(510, 500);
        [producer().add(10, 1), a().run(20, 20, 1), again, hole(at)]
    };
    assert_eq!(rules_if_steady(lost(100)), []);
    assert_eq!(rules_if_steady(lost(LATER)), [Rule::I8]);
}

/// Adds the key once, with a delay of 300 ms.
fn delayed() -> Process {
    let adding =
        Event::Adding { op: 1, key: "k".to_owned(), lane: 0, version: 1, delay: 300_000 };
    let receipt = Receipt { added: Added::Changed, rate_delay: None };
    let request = Request::Add(vec!["k".to_owned()]);
    let answer = Some((11, Answer::Added(vec![receipt])));
    let this = producer().at(10, adding).call(10, request, answer);
    this.at(11, Event::Added { op: 1, acknowledged: true })
}

#[test]
fn a_delay_that_no_waiter_notices_is_found() {
    let run = |at: u64| a().run(at, at, 1).done(at + 10, at);
    assert_eq!(rules_if_steady([delayed(), run(400_000)]), []);
    assert_eq!(rules_if_steady([delayed(), run(5_000_000)]), [Rule::I9]);
}

#[test]
fn an_add_that_is_buried_with_its_key_is_found() {
    let max = MAX_DELIVERIES.get();
    let last = || a().delivery(20, 20, 1, max);
    let dead = || operator().list_dead(900, max);
    let state = FinalState {
        dead: vec![dead_key("too many deliveries", max)],
        ..FinalState::default()
    };
    let check = |processes: Vec<Process>| check_with(&state, Kind::Postgres, processes);
    let buried = producer().add(10, 1).add(50, 2);
    assert_eq!(check(vec![buried, last(), dead()]), [Rule::I6]);
    assert_eq!(check(vec![producer().add(10, 1), last(), dead()]), []);
    // A lease call without an answer may have delivered the key after the add.
    let request = Request::Lease { owner: "b".to_owned(), lease: LEASE };
    let unanswered = b().call(600, request, None);
    let twice = producer().add(10, 1).add(50, 2);
    assert_eq!(check(vec![twice, last(), dead(), unanswered]), []);
}

#[test]
fn a_step_of_the_clock_may_end_a_lease() {
    let lines =
        [producer().add(10, 1), a().run(20, 20, 1), b().run(60, 60, 1).done(70, 60)];
    let lines = lines.into_iter().map(|process| process.lines).collect();
    let mut plan = plan(Scenario::new(Kind::Memory, Load::Busy, 0));
    plan.clock_steps = vec![ClockStep { at: 40, ahead: 1000 }];
    let verdict = check(History::merge(lines), &FinalState::default(), &plan);
    assert!(verdict.violations.is_empty(), "{:?}", verdict.violations);
}

/// Checks histories of a primary that fails over at this time.
fn rules_after_failover(
    at: u64,
    processes: impl IntoIterator<Item = Process>,
) -> Vec<Rule> {
    let nemesis = Process::new("nemesis").at(at, Event::FailoverBegins);
    let nemesis = nemesis.at(at + 10, Event::FailoverEnds);
    check_with(
        &FinalState::default(),
        Kind::Sentinel,
        processes.into_iter().chain([nemesis]),
    )
}

#[test]
fn a_failover_may_undo_answers_near_it() {
    let runs =
        || [producer().add(10, 1), a().run(20, 20, 1), b().run(60, 60, 1).done(70, 60)];
    assert_eq!(rules_after_failover(50, runs()), []);
    assert_eq!(rules_after_failover(LATER, runs()), [Rule::I4]);
}
