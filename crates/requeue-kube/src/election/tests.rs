//! Elections with a fake clock and an in-memory Lease.

use std::sync::{Mutex, MutexGuard};

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::core::Status;
use requeue::testing::FakeClock;

use super::rules::{Rules, Step};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A Lease on a server that can fail.
#[derive(Clone, Default)]
struct FakeLeases(Arc<Mutex<Server>>);

#[derive(Default)]
struct Server {
    lease: Option<Lease>,
    version: u64,
    fault: Fault,
    writes: u32,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Fault {
    #[default]
    None,
    /// Requests fail.
    Down,
    /// Requests never return and have no effect.
    Hang,
    /// Writes succeed, but their replies never arrive.
    LoseReplies,
}

impl FakeLeases {
    fn server(&self) -> MutexGuard<'_, Server> {
        self.0.lock().unwrap()
    }

    fn set(&self, fault: Fault) {
        self.server().fault = fault;
    }

    fn holder(&self) -> Option<String> {
        let server = self.server();
        let spec = server.lease.as_ref()?.spec.clone()?;
        spec.holder_identity.filter(|holder| !holder.is_empty())
    }

    /// Changes the stored Lease as another client would.
    fn edit(&self, change: impl FnOnce(&mut Lease)) {
        let mut server = self.server();
        let mut lease = server.lease.clone().unwrap();
        change(&mut lease);
        server.store(lease);
    }

    async fn call<T>(
        &self,
        act: impl FnOnce(&mut Server) -> Result<T, kube::Error>,
    ) -> Result<T, kube::Error> {
        let fault = self.server().fault;
        match fault {
            Fault::None => act(&mut self.server()),
            Fault::Down => Err(status(503)),
            Fault::Hang => std::future::pending().await,
            Fault::LoseReplies => {
                drop(act(&mut self.server()));
                std::future::pending().await
            }
        }
    }
}

impl Server {
    fn store(&mut self, mut lease: Lease) -> Lease {
        self.version += 1;
        self.writes += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        lease.metadata.uid.get_or_insert_with(|| format!("uid-{}", self.version));
        self.lease = Some(lease.clone());
        lease
    }
}

fn status(code: u16) -> kube::Error {
    kube::Error::Api(Box::new(Status { code, ..Status::failure("refused", "Refused") }))
}

impl Leases for FakeLeases {
    async fn get(&self) -> Result<Option<Lease>, kube::Error> {
        self.call(|server| Ok(server.lease.clone())).await
    }

    async fn create(&self, lease: &Lease) -> Result<Lease, kube::Error> {
        let exists = status(409);
        self.call(|server| match server.lease {
            Some(_) => Err(exists),
            None => Ok(server.store(lease.clone())),
        })
        .await
    }

    async fn replace(&self, lease: &Lease) -> Result<Lease, kube::Error> {
        self.call(|server| {
            let stored = server.lease.as_ref().ok_or_else(|| status(404))?;
            if stored.metadata.resource_version != lease.metadata.resource_version {
                return Err(status(409));
            }
            Ok(server.store(lease.clone()))
        })
        .await
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        futures::stream::pending().boxed()
    }
}

fn settings(identity: &str) -> Settings {
    Settings {
        lease: "default/test".to_owned(),
        identity: identity.to_owned(),
        duration: 15 * SECOND,
        renew_within: 10 * SECOND,
        retry_every: 2 * SECOND,
        release_on_stop: true,
        on_loss: OnLoss::Rejoin,
    }
}

fn join(leases: &FakeLeases, clock: &FakeClock, identity: &str) -> Candidate {
    start(leases.clone(), settings(identity), Arc::new(clock.clone()))
}

/// Lets all tasks run until they wait.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

/// Advances the clock in small steps, and lets all tasks run after each.
async fn pass(clock: &FakeClock, time: Duration) {
    settle().await;
    let step = Duration::from_millis(100);
    let mut passed = Duration::ZERO;
    while passed < time {
        clock.advance(step);
        passed += step;
        settle().await;
    }
}

#[tokio::test]
async fn the_first_candidate_wins_and_renews() {
    let (leases, clock) = (FakeLeases::default(), FakeClock::new());
    let one = join(&leases, &clock, "one");
    settle().await;
    let two = join(&leases, &clock, "two");
    pass(&clock, 60 * SECOND).await;
    let term = one.term().unwrap();
    assert_eq!((term.number(), term.uid()), (0, "uid-1"));
    assert!(two.term().is_none());
    let writes = leases.server().writes;
    assert!((25..=31).contains(&writes), "{writes} writes in 60 s");
}

#[tokio::test]
async fn a_dead_holder_is_replaced_after_the_lease_duration() {
    let (leases, clock) = (FakeLeases::default(), FakeClock::new());
    let one = join(&leases, &clock, "one");
    settle().await;
    let two = join(&leases, &clock, "two");
    pass(&clock, 5 * SECOND).await;
    let old = one.term().unwrap();
    drop(one);
    settle().await;
    assert!(!old.is_held(), "an aborted candidacy ends its term");
    pass(&clock, 10 * SECOND).await;
    assert!(two.term().is_none(), "took over before the lease expired");
    pass(&clock, 10 * SECOND).await;
    let term = two.term().unwrap();
    assert_eq!(term.number(), 1);
    assert_eq!(term.uid(), old.uid());
}

// The holder stops before others can take over: 10 s after the start of its last renewal.
#[tokio::test]
async fn a_holder_without_a_server_stops_in_time() {
    for fault in [Fault::Down, Fault::Hang] {
        let (leases, clock) = (FakeLeases::default(), FakeClock::new());
        let one = join(&leases, &clock, "one");
        pass(&clock, 3 * SECOND).await;
        let term = one.term().unwrap();
        leases.set(fault); // the last renewal started at 2 s
        pass(&clock, 8 * SECOND).await;
        assert!(term.is_held());
        pass(&clock, 2 * SECOND).await;
        assert!(!term.is_held());
        assert!(one.term().is_none());
        term.ended().await;
        leases.set(Fault::None);
        pass(&clock, 10 * SECOND).await;
        assert_eq!(one.term().unwrap().number(), 1, "a new term has a new number");
    }
}

#[tokio::test]
async fn a_lease_survives_one_hung_renewal() {
    let (leases, clock) = (FakeLeases::default(), FakeClock::new());
    let one = join(&leases, &clock, "one");
    pass(&clock, 3 * SECOND).await;
    for fault in [Fault::Hang, Fault::LoseReplies] {
        leases.set(fault);
        pass(&clock, 2 * SECOND).await;
        leases.set(Fault::None);
        pass(&clock, 30 * SECOND).await;
        assert_eq!(one.term().map(|term| term.number()), Some(0));
    }
}

// A stopped process that resumes: the check must say so before the task has run.
#[tokio::test]
async fn a_paused_holder_knows_at_once_that_its_term_is_over() {
    let (leases, clock) = (FakeLeases::default(), FakeClock::new());
    let one = join(&leases, &clock, "one");
    pass(&clock, SECOND).await;
    let term = one.term().unwrap();
    clock.advance(20 * SECOND);
    assert!(!term.is_held());
    assert!(one.term().is_none());
}

#[tokio::test]
async fn never_two_holders_at_once() {
    let (leases, clock) = (FakeLeases::default(), FakeClock::new());
    let candidates: Vec<_> =
        (0..4).map(|n| join(&leases, &clock, &format!("candidate-{n}"))).collect();
    let mut highest = 0;
    let mut terms = Vec::new();
    for round in 0_u32..600 {
        leases.set(match round % 60 {
            20..40 => Fault::Hang,
            45..50 => Fault::LoseReplies,
            _ => Fault::None,
        });
        pass(&clock, SECOND).await;
        let held: Vec<_> = candidates.iter().filter_map(Candidate::term).collect();
        assert!(held.len() <= 1, "two holders after {round} s: {held:?}");
        for term in held {
            assert!(term.number() >= highest, "{term:?} after {highest}");
            highest = term.number();
            terms.push(term.number());
        }
    }
    terms.dedup();
    assert!(terms.len() >= 5, "too few changes of the holder: {terms:?}");
}

#[tokio::test]
async fn another_holder_in_the_lease_ends_the_term() {
    let (leases, clock) = (FakeLeases::default(), FakeClock::new());
    let one = join(&leases, &clock, "one");
    pass(&clock, SECOND).await;
    let term = one.term().unwrap();
    leases.edit(|lease| {
        let spec = lease.spec.as_mut().unwrap();
        spec.holder_identity = Some("intruder".to_owned());
        spec.lease_transitions = Some(7);
    });
    pass(&clock, 2 * SECOND).await;
    assert!(!term.is_held());
    assert_eq!(leases.holder().as_deref(), Some("intruder"));
    pass(&clock, 20 * SECOND).await;
    assert_eq!(one.term().unwrap().number(), 8);
}

#[tokio::test]
async fn an_edited_label_does_not_end_the_term() {
    let (leases, clock) = (FakeLeases::default(), FakeClock::new());
    let one = join(&leases, &clock, "one");
    pass(&clock, SECOND).await;
    leases.edit(|lease| {
        lease.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    });
    pass(&clock, 10 * SECOND).await;
    assert_eq!(one.term().unwrap().number(), 0);
    assert!(leases.server().lease.as_ref().unwrap().metadata.labels.is_some());
}

#[tokio::test]
async fn a_deleted_lease_ends_the_term() {
    let (leases, clock) = (FakeLeases::default(), FakeClock::new());
    let one = join(&leases, &clock, "one");
    pass(&clock, SECOND).await;
    let term = one.term().unwrap();
    leases.server().lease = None;
    pass(&clock, 20 * SECOND).await;
    assert!(!term.is_held());
    assert_ne!(one.term().unwrap().uid(), term.uid());
}

#[tokio::test]
async fn a_stop_releases_the_lease_when_the_work_has_ended() {
    let (leases, clock) = (FakeLeases::default(), FakeClock::new());
    let one = join(&leases, &clock, "one");
    settle().await;
    let two = join(&leases, &clock, "two");
    pass(&clock, SECOND).await;
    let work = one.term().unwrap();
    let stop = tokio::spawn(async move { one.stop(30 * SECOND).await });
    settle().await;
    assert!(!work.is_held(), "the term has ended");
    assert_eq!(leases.holder().as_deref(), Some("one"), "released while work runs");
    drop(work);
    assert!(stop.await.unwrap());
    assert_eq!(leases.holder(), None);
    pass(&clock, 5 * SECOND).await;
    assert_eq!(two.term().unwrap().number(), 1);
}

#[tokio::test]
async fn a_stop_does_not_release_while_work_runs() {
    let (leases, clock) = (FakeLeases::default(), FakeClock::new());
    let one = join(&leases, &clock, "one");
    pass(&clock, SECOND).await;
    let work = one.term().unwrap();
    let stop = tokio::spawn(async move { one.stop(5 * SECOND).await });
    pass(&clock, 6 * SECOND).await;
    assert!(!stop.await.unwrap());
    assert_eq!(leases.holder().as_deref(), Some("one"));
    drop(work);
}

#[tokio::test]
async fn a_waiting_candidate_stops_at_once() {
    let (leases, clock) = (FakeLeases::default(), FakeClock::new());
    let one = join(&leases, &clock, "one");
    settle().await;
    let two = join(&leases, &clock, "two");
    settle().await;
    assert!(two.stop(SECOND).await);
    assert_eq!(two.won().await, Err(Ended));
    assert!(one.term().is_some());
}

#[tokio::test]
async fn a_loss_can_end_the_candidacy() {
    let (leases, clock) = (FakeLeases::default(), FakeClock::new());
    let settings = Settings { on_loss: OnLoss::Stop, ..settings("one") };
    let one = start(leases.clone(), settings, Arc::new(clock.clone()));
    pass(&clock, SECOND).await;
    leases.set(Fault::Down);
    pass(&clock, 12 * SECOND).await;
    one.ended().await;
    assert_eq!(one.won().await, Err(Ended));
}

fn held_by(holder: &str, wall: Timestamp) -> Lease {
    let spec = LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(15),
        renew_time: Some(MicroTime(wall)),
        ..LeaseSpec::default()
    };
    Lease { spec: Some(spec), ..Lease::default() }
}

// A wall clock that is wrong by years changes nothing: only sightings count.
#[test]
fn wall_clocks_are_not_compared() {
    let start = FakeClock::new().now();
    for wall in [Timestamp::UNIX_EPOCH, "2100-01-01T00:00:00Z".parse().unwrap()] {
        let mut rules = Rules::new("me", 15 * SECOND);
        rules.see(Some(held_by("other", wall)), start);
        let step = |rules: &mut Rules, after| {
            rules.acquire(start + after, &MicroTime(Timestamp::UNIX_EPOCH))
        };
        assert_eq!(step(&mut rules, Duration::ZERO), Step::Wait(start + 15 * SECOND));
        rules.see(Some(held_by("other", wall)), start + 14 * SECOND);
        assert_eq!(step(&mut rules, 14 * SECOND), Step::Wait(start + 15 * SECOND));
        assert!(matches!(step(&mut rules, 15 * SECOND), Step::Replace(_)));
    }
}

// After a restart, the identity in the Lease may be that of a process that still runs.
#[test]
fn the_own_identity_alone_is_not_a_claim() {
    let now = FakeClock::new().now();
    let mut rules = Rules::new("me", 15 * SECOND);
    rules.see(Some(held_by("me", Timestamp::UNIX_EPOCH)), now);
    let step = rules.acquire(now, &MicroTime(Timestamp::UNIX_EPOCH));
    assert_eq!(step, Step::Wait(now + 15 * SECOND));
}

#[test]
fn contradicting_settings_are_refused() {
    let check = |change: fn(&mut Settings)| {
        let mut settings = settings("one");
        change(&mut settings);
        settings.check().unwrap_err()
    };
    assert!(settings("one").check().is_ok());
    assert!(matches!(
        check(|s| s.renew_within = s.duration),
        ElectionError::RenewTooLate { .. }
    ));
    assert!(matches!(
        check(|s| s.retry_every = 6 * SECOND),
        ElectionError::TooFewAttempts { .. }
    ));
    assert!(matches!(
        check(|s| s.duration = Duration::from_millis(15_500)),
        ElectionError::FractionalDuration(_)
    ));
    assert_eq!(check(|s| s.identity.clear()), ElectionError::EmptyIdentity);
}
