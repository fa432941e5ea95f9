//! Liveness and readiness of controllers.

mod server;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

pub use self::server::HealthServer;

/// The checks behind `/healthz` and `/readyz`.
///
/// A controller registers its checks through
/// [`Controller::health`](crate::Controller::health); add others with
/// [`add_live`](Self::add_live) and [`add_ready`](Self::add_ready). Clones share the checks.
///
/// # Examples
///
/// ```
/// use requeue_kube::Health;
///
/// let health = Health::new();
/// health.add_ready("database", || Err("not connected".to_owned()));
/// assert!(health.live().is_ok());
/// assert_eq!(health.ready().to_string(), "[-]database failed: not connected\nnot ok\n");
/// ```
#[derive(Clone, Default)]
pub struct Health(Arc<RwLock<Checks>>);

#[derive(Default)]
struct Checks {
    live: Vec<Named>,
    ready: Vec<Named>,
}

#[derive(Clone)]
struct Named {
    name: String,
    check: Arc<Check>,
}

/// A check: an error says what is wrong. It must not block.
pub type Check = dyn Fn() -> Result<(), String> + Send + Sync;

/// The results of all checks of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthReport {
    /// Names of the checks, and what is wrong.
    pub checks: Vec<(String, Result<(), String>)>,
}

impl Health {
    /// Creates a set of checks without any check. It is live and ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check of `/healthz`. If it fails, Kubernetes restarts the container.
    pub fn add_live(
        &self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        let named = Named { name: name.into(), check: Arc::new(check) };
        self.0.write().unwrap_or_else(PoisonError::into_inner).live.push(named);
    }

    /// Adds a check of `/readyz`.
    pub fn add_ready(
        &self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        let named = Named { name: name.into(), check: Arc::new(check) };
        self.0.write().unwrap_or_else(PoisonError::into_inner).ready.push(named);
    }

    /// Runs the checks of `/healthz`.
    pub fn live(&self) -> HealthReport {
        let checks = self.0.read().unwrap_or_else(PoisonError::into_inner).live.clone();
        HealthReport::run(checks)
    }

    /// Runs the checks of `/readyz`.
    pub fn ready(&self) -> HealthReport {
        let checks = self.0.read().unwrap_or_else(PoisonError::into_inner).ready.clone();
        HealthReport::run(checks)
    }

    /// Answers `GET /healthz` and `GET /readyz` on `address` until the returned value is
    /// dropped.
    ///
    /// The status is 200 if all checks pass, else 503; the body lists the checks. At most 16
    /// connections are served at once, and each has 5 s.
    ///
    /// # Errors
    ///
    /// If the address cannot be bound.
    pub async fn serve(&self, address: SocketAddr) -> std::io::Result<HealthServer> {
        HealthServer::start(self.clone(), address).await
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let names =
            |checks: &[Named]| checks.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
        f.debug_struct("Health")
            .field("live", &names(&checks.live))
            .field("ready", &names(&checks.ready))
            .finish()
    }
}

impl HealthReport {
    fn run(checks: Vec<Named>) -> Self {
        let checks =
            checks.into_iter().map(|Named { name, check }| (name, check())).collect();
        Self { checks }
    }

    /// Returns whether all checks passed.
    pub fn is_ok(&self) -> bool {
        self.checks.iter().all(|(_, result)| result.is_ok())
    }
}

impl fmt::Display for HealthReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, result) in &self.checks {
            match result {
                Ok(()) => writeln!(f, "[+]{name} ok")?,
                Err(error) => writeln!(f, "[-]{name} failed: {error}")?,
            }
        }
        f.write_str(if self.is_ok() { "ok\n" } else { "not ok\n" })
    }
}
