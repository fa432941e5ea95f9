//! Kubernetes controllers on kube-rs with the `requeue` work queue.
//!
//! A [`Controller`] watches objects and reconciles those that changed. It has the builder of
//! kube-runtime's `Controller`, and the queue of client-go: deduplicating, first in, first
//! out, with priorities, a backoff per object, an overall rate, metrics and draining.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use k8s_openapi::api::core::v1::{ConfigMap, Secret};
//! use kube::Api;
//! use kube::runtime::watcher;
//! use requeue_kube::{Action, Controller, Request};
//! # use requeue_kube::testing::FakeCluster;
//!
//! async fn reconcile(request: Request<ConfigMap>, client: Arc<kube::Client>) -> Result<Action, kube::Error> {
//!     let Some(map) = request.object else {
//!         println!("{} is gone", request.key);
//!         return Ok(Action::await_change());
//!     };
//!     let namespace = map.metadata.namespace.as_deref().unwrap_or_default();
//!     let secrets = Api::<Secret>::namespaced((*client).clone(), namespace);
//!     secrets.get_opt(&request.key.name).await?; // compare, and change what differs
//!     Ok(Action::requeue(Duration::from_secs(3600)))
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let client = FakeCluster::new().client();
//! let config = watcher::Config::default();
//! let controller = Controller::new(Api::<ConfigMap>::all(client.clone()), config.clone())
//!     .owns(Api::<Secret>::all(client.clone()), config)
//!     .start(reconcile, Arc::new(client))?;
//! controller.synced().await?;
//! // Until the process is to end:
//! let stopped = controller.drain(Duration::from_secs(25)).await;
//! assert!(stopped.in_time());
//! # Ok(())
//! # }
//! ```
//!
//! # Parts
//!
//! | | |
//! |---|---|
//! | [`Controller`], [`Request`], [`Action`], [`Handle`] | reconcile objects |
//! | [`Informer`], [`Index`] | share a watch and its store; look objects up by a function of them |
//! | [`feed()`] | lower level: other keys, several clusters |
//! | [`Election`], [`Candidate`], [`Term`] | reconcile in one process at a time, with a fencing token |
//! | [`finalizer()`], [`Recorder`], [`Health`] | clean up, publish events, answer probes |
//! | `testing::FakeCluster` (feature `testing`) | test controllers without a server |
//!
//! # Coming from kube-runtime
//!
//! Change `use kube::runtime::controller::{Action, Controller}` to
//! `use requeue_kube::{Action, Controller}`, and `finalizer` likewise. Reconcilers and error
//! policies stay as they are: [`Controller::run`] takes both. [`backoff`] is an error policy
//! with a backoff per object.
//!
//! # Guarantees
//!
//! * An object is reconciled by one worker at a time. Changes during a run cause one more
//!   run.
//! * The store shows a change before its key is queued. A list takes effect when it is
//!   complete, and objects that vanished while a watch was interrupted are reconciled.
//! * A watch that fails pauses alone. A reconciler that panics or hangs fails alone.
//! * Workers start when all caches are filled. With an election, they work only during a
//!   term, and its end cancels their runs.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `prometheus` | `requeue::metrics::Prometheus`, with the `workqueue_*` and `controller_runtime_*` metrics |
//! | `testing` | `testing::FakeCluster` |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod action;
mod controller;
mod election;
mod error;
mod feed;
pub mod finalizer;
mod handle;
mod health;
mod index;
mod informer;
mod object;
mod reasons;
mod recorder;
mod request;
#[cfg(feature = "testing")]
#[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
pub mod testing;

pub use self::action::Action;
pub use self::controller::{Config, Controller, Leader, backoff};
pub use self::election::{Candidate, Election, ElectionError, Ended, OnLoss, Term};
pub use self::error::{Error, SyncError};
pub use self::feed::{Change, LOW, Seen, WatchStatus, feed};
pub use self::finalizer::finalizer;
pub use self::handle::Handle;
pub use self::health::{Check, Health, HealthReport, HealthServer};
pub use self::index::Index;
pub use self::informer::Informer;
pub use self::object::Object;
pub use self::reasons::Reasons;
pub use self::recorder::{PublishError, Published, Recorder};
pub use self::request::Request;
/// The work queue.
pub use requeue;
