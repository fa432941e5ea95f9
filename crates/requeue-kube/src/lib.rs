//! Kubernetes controllers on kube-rs with the `requeue` work queue.

mod action;
mod controller;
mod election;
mod error;
mod feed;
mod finalizer;
mod health;
mod recorder;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use self::action::Action;
pub use self::controller::Controller;
pub use self::error::{Error, SyncError};
