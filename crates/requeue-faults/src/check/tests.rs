//! Small histories written by hand: good ones, and for each invariant bad ones.

use super::*;
use crate::event::{
    Added, Answer, Ending, Event, Finished, Grant, Line, Receipt, Request,
};
use crate::scene::{Durability, Load};
use crate::stores::Kind;

const LEASE: u64 = 400;

/// One process as it writes. Times and tokens are small numbers.
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

    /// An add of version `version` in lane 0 that changed something.
    fn add(self, at: u64, version: u64) -> Self {
        self.add_with(at, version, Some(Added::Changed))
    }

    fn add_with(self, at: u64, version: u64, answer: Option<Added>) -> Self {
        let key = "k".to_owned();
        let adding = Event::Adding { op: at, key, lane: 0, version, delay: 0 };
        let receipt = |added| Receipt { added, paced: None };
        let told = answer.map(|added| (at + 1, Answer::Added(vec![receipt(added)])));
        let this = self.at(at, adding).call(at, Request::Add(vec!["k".to_owned()]), told);
        match answer {
            Some(_) => this.at(at + 1, Event::Added { op: at, acknowledged: true }),
            None => this,
        }
    }

    /// An add that was told to wait so long for its share of a rate.
    fn add_paced(self, at: u64, delay: u64) -> Self {
        let receipt = Receipt { added: Added::Changed, paced: Some(delay) };
        let told = Some((at + 1, Answer::Added(vec![receipt])));
        self.call(at, Request::Add(vec!["k".to_owned()]), told)
    }

    /// A grant with this token at this time, and a run that sees `version`.
    fn run(self, at: u64, token: u64, version: u64) -> Self {
        self.delivery(at, token, version, 1)
    }

    fn delivery(self, at: u64, token: u64, version: u64, deliveries: u32) -> Self {
        let (owner, key) = (self.name.to_owned(), "k".to_owned());
        let grants = vec![Grant { key: key.clone(), token, deliveries }];
        let lease = Request::Lease { owner, lease: LEASE, waits: false };
        let this = self.call(at, lease, Some((at + 1, Answer::Leased(grants))));
        this.at(at + 2, Event::Run { key, token, versions: vec![version] })
    }

    fn end(
        self,
        sent: u64,
        token: u64,
        ending: Ending,
        told: Option<(u64, Finished)>,
    ) -> Self {
        let told = told.map(|(at, answer)| (at, Answer::Finished(vec![answer])));
        self.call(sent, Request::Finish(vec![("k".to_owned(), token, ending)]), told)
    }

    fn done(self, at: u64, token: u64) -> Self {
        self.end(at, token, Ending::Done, Some((at + 1, Finished::Accepted)))
    }

    fn refused(self, at: u64, token: u64) -> Self {
        self.end(at, token, Ending::Done, Some((at + 1, Finished::Refused)))
    }

    fn extend(self, at: u64, token: u64) -> Self {
        let held = vec![("k".to_owned(), token)];
        let request = Request::Extend { held, lease: LEASE };
        self.call(at, request, Some((at + 1, Answer::Extended(vec![true]))))
    }

    /// An end for good that made the key dead.
    fn bury(self, at: u64, token: u64) -> Self {
        self.end(at, token, Ending::Bury, Some((at + 1, Finished::Buried)))
    }

    /// A list of the dead with the key in it.
    fn finds_dead(self, at: u64, deliveries: u32) -> Self {
        let answer = Answer::Dead(vec![corpse("it failed", deliveries)]);
        self.call(at, Request::Dead, Some((at + 1, answer)))
    }

    fn revive(self, at: u64) -> Self {
        self.exhume(at, false)
    }

    fn drop_dead(self, at: u64) -> Self {
        self.exhume(at, true)
    }

    fn exhume(self, at: u64, drops: bool) -> Self {
        let request = Request::Exhume { keys: vec!["k".to_owned()], drops };
        self.call(at, request, Some((at + 1, Answer::Exhumed(1))))
    }

    fn reclaim(self, at: u64) -> Self {
        let request = Request::Reclaim { owner: self.name.to_owned(), held: Vec::new() };
        self.call(at, request, Some((at + 1, Answer::Reclaimed(1))))
    }
}

fn corpse(reason: &str, deliveries: u32) -> Corpse {
    Corpse { key: "k".to_owned(), reason: reason.to_owned(), deliveries }
}

fn judge(
    rest: &Rest,
    home: Home,
    processes: impl IntoIterator<Item = Process>,
) -> Vec<Rule> {
    let lines = processes.into_iter().map(|process| process.lines).collect();
    let store = if home == Home::Server { Kind::Postgres } else { Kind::Memory };
    let verdict = check(History::of(lines), rest, &Scene::new(store, Load::Busy, 0));
    verdict.violations.iter().map(|violation| violation.rule).collect()
}

fn rules_in(home: Home, processes: impl IntoIterator<Item = Process>) -> Vec<Rule> {
    judge(&Rest::default(), home, processes)
}

/// With the key dead in the end.
fn rules_of_dead(processes: impl IntoIterator<Item = Process>) -> Vec<Rule> {
    let rest = Rest { dead: vec![corpse("it failed", 1)], ..Rest::default() };
    judge(&rest, Home::Server, processes)
}

fn rules(processes: impl IntoIterator<Item = Process>) -> Vec<Rule> {
    rules_in(Home::Server, processes)
}

fn sexton() -> Process {
    Process::new("sexton")
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
fn a_run_that_sees_what_was_added_and_is_accepted_is_all_that_is_asked() {
    assert_eq!(rules([producer().add(10, 1), a().run(20, 20, 1).done(30, 20)]), []);
}

#[test]
fn an_add_that_no_run_has_seen_is_lost() {
    let runs = a().run(20, 20, 1).done(30, 20);
    assert_eq!(rules([producer().add(10, 1).add(25, 2), runs]), [Rule::I1]);
}

#[test]
fn a_run_that_was_refused_or_only_retried_has_seen_nothing() {
    let refused = a().run(20, 20, 1).refused(30, 20);
    assert_eq!(rules([producer().add(10, 1), refused]), [Rule::I1]);
    let accepted = Some((31, Finished::Accepted));
    let retried = a().run(20, 20, 1).end(30, 20, Ending::Retry, accepted);
    assert_eq!(rules([producer().add(10, 1), retried]), [Rule::I1]);
}

#[test]
fn an_end_that_found_the_key_busy_is_as_if_nobody_had_asked() {
    let busy =
        || a().run(20, 20, 1).end(30, 20, Ending::Done, Some((31, Finished::Busy)));
    assert_eq!(rules([producer().add(10, 1), busy().done(40, 20)]), []);
    assert_eq!(rules([producer().add(10, 1), busy()]), [Rule::I1]);
    let next = b().run(40, 40, 1).done(50, 40);
    assert_eq!(rules([producer().add(10, 1), busy(), next]), [Rule::I4]);
}

#[test]
fn an_add_without_an_answer_may_be_lost() {
    assert_eq!(rules([producer().add_with(10, 1, None)]), []);
}

/// The worker was killed before the answer came, and the key was gone: that looked like a
/// lost add until the end counted as in doubt.
#[test]
fn an_end_without_an_answer_is_in_doubt_and_excuses_the_store() {
    let doubt = a().run(20, 20, 1).end(30, 20, Ending::Done, None);
    assert_eq!(rules([producer().add(10, 1), doubt]), []);
    let asked_again = a().run(20, 20, 1).end(30, 20, Ending::Done, None).refused(60, 20);
    assert_eq!(rules([producer().add(10, 1), asked_again]), []);
}

#[test]
fn a_queue_that_does_not_come_to_rest_has_lost_something() {
    let rest = Rest { delayed: 1, ..Rest::default() };
    assert_eq!(judge(&rest, Home::Server, []), [Rule::I1]);
}

#[test]
fn an_add_for_an_hour_later_need_not_be_seen() {
    let key = "k".to_owned();
    let delay = AN_HOUR;
    let producer = producer()
        .at(10, Event::Adding { op: 1, key, lane: 0, version: 1, delay })
        .at(11, Event::Added { op: 1, acknowledged: true });
    assert_eq!(rules([producer]), []);
}

#[test]
fn a_token_that_is_granted_twice_is_found() {
    let adds = producer().add(10, 1).add(40, 2);
    let runs = [a().run(20, 20, 1).done(30, 20), b().run(50, 20, 2).refused(60, 20)];
    assert!(rules([adds].into_iter().chain(runs)).contains(&Rule::I2));
}

#[test]
fn tokens_that_start_again_are_found() {
    let adds = producer().add(10, 1).add(40, 2);
    let runs = a().run(20, 20, 1).done(30, 20).run(50, 1, 2).done(60, 1);
    assert!(rules([adds, runs]).contains(&Rule::I2));
}

#[test]
fn a_token_that_is_completed_twice_is_found() {
    let runs = a().run(20, 20, 1).done(30, 20).done(40, 20);
    assert_eq!(rules([producer().add(10, 1), runs]), [Rule::I2]);
}

/// A done of a dirty key that neither deletes nor requeues it: the key comes back when the
/// lease passes, as a second delivery, although its first was completed.
#[test]
fn a_completion_that_the_engine_forgot_is_found() {
    let adds = producer().add(10, 1).add(25, 2);
    let runs = a().run(20, 20, 1).done(30, 20).delivery(425, 425, 2, 2).done(430, 425);
    assert_eq!(rules([adds, runs]), [Rule::I2]);
}

#[test]
fn a_second_delivery_after_a_lease_that_nobody_logged_is_none() {
    let adds = producer().add(10, 1).add(25, 2);
    let runs = a().run(20, 20, 1).done(30, 20).delivery(440, 440, 2, 2).done(450, 440);
    assert_eq!(rules([adds, runs]), []);
}

#[test]
fn an_end_that_is_accepted_after_a_newer_grant_is_found() {
    let late = a().run(20, 20, 1).done(600, 20);
    let runs = [late, b().delivery(430, 430, 1, 2).refused(620, 430)];
    assert_eq!(rules([producer().add(10, 1)].into_iter().chain(runs)), [Rule::I3]);
}

#[test]
fn an_extension_after_a_newer_grant_is_found() {
    let late = a().run(20, 20, 1).extend(600, 20);
    let runs = [late, b().delivery(430, 430, 1, 2).done(620, 430)];
    let found = rules([producer().add(10, 1)].into_iter().chain(runs));
    assert!(found.contains(&Rule::I3), "{found:?}");
}

/// A worker was stopped between the answer and its line. By the times of the lines its end
/// came after the newer grant; it was sent before, and so it may have come before.
#[test]
fn an_answer_that_is_written_down_late_is_no_stale_end() {
    let stopped =
        a().run(20, 20, 1).end(30, 20, Ending::Done, Some((900, Finished::Accepted)));
    let adds = producer().add(10, 1).add(25, 2);
    assert_eq!(rules([adds, stopped, b().run(40, 40, 2).done(50, 40)]), []);
}

/// Runs are paired by their tokens: the first to be written down is not the first that was
/// granted.
#[test]
fn a_grant_that_is_written_down_after_a_newer_one_is_still_the_older() {
    let (key, owner) = ("k".to_owned(), "a".to_owned());
    let grants = vec![Grant { key: key.clone(), token: 20, deliveries: 1 }];
    let lease = Request::Lease { owner, lease: LEASE, waits: false };
    let stopped = a()
        .call(20, lease, Some((800, Answer::Leased(grants))))
        .at(801, Event::Run { key, token: 20, versions: vec![1] })
        .refused(810, 20);
    let next = b().delivery(430, 430, 1, 2).done(440, 430);
    assert_eq!(rules([producer().add(10, 1), stopped, next]), []);
}

#[test]
fn a_stale_end_that_is_refused_is_as_it_should_be() {
    let late = a().run(20, 20, 1).refused(600, 20);
    assert_eq!(
        rules([producer().add(10, 1), late, b().delivery(430, 430, 1, 2).done(440, 430)]),
        []
    );
}

#[test]
fn a_grant_before_the_lease_before_has_passed_is_found() {
    let early = b().delivery(300, 300, 1, 2).done(310, 300);
    let found =
        rules([producer().add(10, 1), a().run(20, 20, 1).refused(500, 20), early]);
    assert_eq!(found, [Rule::I4]);
}

#[test]
fn a_lease_passes_only_after_its_last_extension() {
    let held = a().run(20, 20, 1).extend(150, 20).refused(600, 20);
    let early = b().delivery(450, 450, 1, 2).done(460, 450);
    assert_eq!(rules([producer().add(10, 1), held, early]), [Rule::I4]);
}

#[test]
fn a_lease_that_may_have_been_ended_or_given_back_need_not_pass() {
    let ended = a().run(20, 20, 1).end(30, 20, Ending::Release, None);
    let next = || b().run(100, 100, 1).done(110, 100);
    assert_eq!(rules([producer().add(10, 1), ended, next()]), []);
    let reclaimed = a().run(20, 20, 1).reclaim(60);
    assert_eq!(rules([producer().add(10, 1), reclaimed, next()]), []);
}

#[test]
fn the_leases_of_an_embedded_store_pass_with_its_process() {
    let histories = || {
        let first = a().add(10, 1).run(20, 20, 1);
        [first, b().delivery(100, 100, 1, 2).done(110, 100)]
    };
    assert_eq!(rules_in(Home::Embedded, histories()), []);
    assert_eq!(rules_in(Home::Server, histories()), [Rule::I4]);
}

#[test]
fn a_run_that_nothing_asked_for_is_found() {
    let runs = a().run(20, 20, 1).done(30, 20).run(40, 40, 1).done(50, 40);
    assert_eq!(rules([producer().add(10, 1), runs]), [Rule::I5]);
}

#[test]
fn an_add_that_was_merged_asks_for_no_run_of_its_own() {
    let adds = producer().add(10, 1).add_with(15, 2, Some(Added::Duplicate));
    let runs = a().run(20, 20, 2).done(30, 20).run(40, 40, 2).done(50, 40);
    assert_eq!(rules([adds, runs]), [Rule::I5]);
}

#[test]
fn adds_in_doubt_retries_and_leases_that_passed_each_allow_one_more_run() {
    let adds = producer().add(10, 1).add_with(15, 2, None);
    let accepted = Some((41, Finished::Accepted));
    let first = a().run(20, 20, 2).done(25, 20).run(30, 30, 2).end(
        40,
        30,
        Ending::Retry,
        accepted,
    );
    let lost = first.run(50, 50, 2);
    assert_eq!(rules([adds, lost, b().delivery(460, 460, 2, 2).done(470, 460)]), []);
}

#[test]
fn a_key_that_died_after_its_add_is_not_lost_while_it_is_dead() {
    let histories = || [producer().add(10, 1), a().run(20, 20, 1).bury(30, 20)];
    assert_eq!(rules_of_dead(histories()), []);
    assert_eq!(rules(histories()), [Rule::I1, Rule::I6]);
}

#[test]
fn a_key_that_was_dropped_from_the_dead_is_not_lost() {
    let runs = || a().run(20, 20, 1).bury(30, 20);
    let dropped = || sexton().drop_dead(40);
    assert_eq!(rules([producer().add(10, 1), runs(), dropped()]), []);
    let later = producer().add(10, 1).add(50, 2);
    assert_eq!(rules([later, runs(), dropped()]), [Rule::I1]);
}

#[test]
fn a_dead_key_that_is_added_is_dead_no_more() {
    let adds = || producer().add(10, 1).add(50, 2);
    let buried = || a().run(20, 20, 1).bury(30, 20);
    assert_eq!(rules_of_dead([adds(), buried()]), [Rule::I6]);
    let again = || buried().run(60, 60, 2).bury(70, 60);
    assert_eq!(rules_of_dead([adds(), again()]), []);
    let revived = sexton().revive(55);
    assert_eq!(rules_of_dead([adds(), again(), revived]), [Rule::I6]);
}

#[test]
fn a_dead_key_that_is_revived_is_run_once_more() {
    let runs = || a().run(20, 20, 1).bury(30, 20).run(60, 60, 1).done(70, 60);
    assert_eq!(rules([producer().add(10, 1), runs(), sexton().revive(40)]), []);
    assert_eq!(rules([producer().add(10, 1), runs()]), [Rule::I5, Rule::I6]);
}

#[test]
fn a_key_is_dead_by_somebody_or_by_its_deliveries_and_says_why() {
    let worn_out = |deliveries| {
        [producer().add(10, 1), a().run(20, 20, 1), sexton().finds_dead(500, deliveries)]
    };
    let rest = |reason| {
        let dead = vec![corpse(reason, MOST_DELIVERIES.get())];
        Rest { dead, ..Rest::default() }
    };
    let enough = || worn_out(MOST_DELIVERIES.get());
    assert_eq!(judge(&rest("it wore out"), Home::Server, enough()), []);
    assert_eq!(judge(&rest(""), Home::Server, enough()), [Rule::I6]);
    assert_eq!(judge(&rest("it wore out"), Home::Server, worn_out(2)), [Rule::I6]);
}

#[test]
fn a_key_that_comes_before_its_share_of_the_rate_is_found() {
    let runs = || a().run(50, 50, 1).done(60, 50);
    assert_eq!(rules([producer().add_paced(10, 60), runs()]), [Rule::I7]);
    assert_eq!(rules([producer().add_paced(10, 40), runs()]), []);
}

/// The first call was not answered, and let the key come earlier than the second did.
#[test]
fn a_key_that_was_added_twice_may_come_by_the_earlier_share() {
    let adds = producer().add_with(5, 1, None).add_paced(10, 60);
    assert_eq!(rules([adds, a().run(50, 50, 1).done(60, 50)]), []);
}

/// With an engine that has only adds on disk, and is killed at that time.
fn rules_of_undone(kill: u64, processes: impl IntoIterator<Item = Process>) -> Vec<Rule> {
    let nemesis = Process::new("nemesis").at(kill, Event::KillingEngine);
    let lines = processes.into_iter().chain([nemesis]).map(|process| process.lines);
    let scene = Scene::new(Kind::Postgres, Load::Busy, 0);
    let scene = Scene { durability: Durability::Adds, ..scene };
    let verdict = check(History::of(lines.collect()), &Rest::default(), &scene);
    verdict.violations.iter().map(|violation| violation.rule).collect()
}

/// Long after all else.
const LATER: u64 = 10_000_000;

#[test]
fn an_end_may_be_undone_by_a_kill_if_only_adds_are_on_disk() {
    let runs = || {
        let first = a().run(20, 20, 1).done(30, 20);
        [producer().add(10, 1), first.delivery(500, 500, 1, 2).done(510, 500)]
    };
    assert_eq!(rules_of_undone(40, runs()), []);
    assert_eq!(rules_of_undone(LATER, runs()), rules(runs()));
    assert!(rules(runs()).contains(&Rule::I5));
}

#[test]
fn a_lease_may_be_undone_by_a_kill_if_only_adds_are_on_disk() {
    let runs =
        || [producer().add(10, 1), a().run(20, 20, 1), b().run(60, 60, 1).done(70, 60)];
    assert_eq!(rules_of_undone(50, runs()), []);
    assert_eq!(rules_of_undone(LATER, runs()), [Rule::I4]);
}

#[test]
fn a_death_may_be_undone_by_a_kill_if_only_adds_are_on_disk() {
    let runs = || {
        let first = a().run(20, 20, 1).bury(30, 20);
        [producer().add(10, 1), first.delivery(500, 500, 1, 2).done(510, 500)]
    };
    assert_eq!(rules_of_undone(40, runs()), []);
    assert!(rules_of_undone(LATER, runs()).contains(&Rule::I6));
}

#[test]
fn no_add_may_be_undone_by_a_kill_if_they_are_on_disk() {
    assert_eq!(rules_of_undone(15, [producer().add(10, 1)]), [Rule::I1]);
}
