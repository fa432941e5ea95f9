//! A rate-limited recorder of Kubernetes events.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{self, Event, Reporter};
use requeue::rate::{Keyed, Limit};
use thiserror::Error;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Requests that run at once.
const REQUESTS: usize = 4;
/// Objects whose limit is tracked. The least recently used are forgotten.
const OBJECTS: usize = 10_000;

/// Publishes Kubernetes events, at a limited rate per object.
///
/// kube's recorder sends one request per event, without a limit: a controller in an error loop
/// floods the API server. This one has client-go's limit: each object may have 25 events at
/// once, and one more every 5 minutes. Further events are dropped and counted.
///
/// At most 4 requests run at once, and each is given up after 10 s. Clones share the limits.
///
/// # Rights
///
/// `create` and `patch` on `events` of the API group `events.k8s.io`.
///
/// # Examples
///
/// ```no_run
/// use kube::runtime::events::{Event, EventType};
/// use kube::Resource;
/// use requeue_kube::Recorder;
/// # use k8s_openapi::api::core::v1::ConfigMap;
///
/// # async fn f(client: kube::Client, object: &ConfigMap) -> Result<(), Box<dyn std::error::Error>> {
/// let recorder = Recorder::new(client, "my-controller".into());
/// let event = Event {
///     type_: EventType::Normal,
///     reason: "Synced".into(),
///     note: Some("copied to 3 namespaces".into()),
///     action: "Sync".into(),
///     secondary: None,
/// };
/// recorder.publish(&event, &object.object_ref(&())).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Recorder(Arc<Inner>);

struct Inner {
    recorder: events::Recorder,
    limits: Keyed<String>,
    slots: Semaphore,
    within: Duration,
    dropped: AtomicU64,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// The server has stored it.
    Sent,
    /// The object has had too many events, so it was not sent.
    Limited,
}

/// An event was not stored. It is not retried.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The server refused the event, or could not be reached.
    #[error("cannot publish an event: {0}")]
    Request(#[source] kube::Error),
    /// The server did not answer in time.
    #[error("no reply to an event within {0:?}")]
    TimedOut(Duration),
}

impl Recorder {
    /// Creates a recorder with client-go's limit: 25 events per object, then one in 5 minutes.
    pub fn new(client: Client, reporter: Reporter) -> Self {
        Self::with_limit(client, reporter, Limit::every(Duration::from_secs(300)), 25)
    }

    /// Creates a recorder with another limit per object.
    pub fn with_limit(
        client: Client,
        reporter: Reporter,
        limit: Limit,
        burst: u32,
    ) -> Self {
        Self(Arc::new(Inner {
            recorder: events::Recorder::new(client, reporter),
            limits: Keyed::new(limit, burst).max_keys(OBJECTS),
            slots: Semaphore::new(REQUESTS),
            within: Duration::from_secs(10),
            dropped: AtomicU64::new(0),
        }))
    }

    /// Publishes an event about `object`, unless the object has had too many.
    ///
    /// Reconcilers should log an error and go on: an event is best effort.
    ///
    /// # Errors
    ///
    /// [`PublishError`] if the server refuses the event or does not answer.
    ///
    /// # Cancel safety
    ///
    /// A dropped future may have published the event.
    pub async fn publish(
        &self,
        event: &Event,
        object: &ObjectReference,
    ) -> Result<Published, PublishError> {
        let Inner { recorder, limits, slots, within, dropped } = &*self.0;
        if !limits.allow(&identify(object)) {
            dropped.fetch_add(1, Ordering::Relaxed);
            return Ok(Published::Limited);
        }
        let request = async {
            // The semaphore is never closed.
            let _slot = slots.acquire().await;
            recorder.publish(event, object).await
        };
        match timeout(*within, request).await {
            Ok(result) => result.map(|()| Published::Sent).map_err(PublishError::Request),
            Err(_elapsed) => Err(PublishError::TimedOut(*within)),
        }
    }

    /// Returns how many events were dropped because of the limit.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("dropped", &self.dropped())
            .finish_non_exhaustive()
    }
}

/// The uid tells objects of the same name apart; references made by hand may lack it.
fn identify(object: &ObjectReference) -> String {
    object.uid.clone().unwrap_or_else(|| {
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        format!(
            "{}/{}/{}",
            part(&object.kind),
            part(&object.namespace),
            part(&object.name)
        )
    })
}
