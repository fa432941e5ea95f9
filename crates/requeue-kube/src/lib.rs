//! Kubernetes controllers on kube-rs with the `requeue` work queue.

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
