//! Tests against a real API server: `scripts/test-kube`, or
//! `scripts/with-apiserver cargo test -p requeue-kube --test server`.
//!
//! Without the variable `REQUEUE_APISERVER` every test is skipped. Tests that take minutes
//! run only with `REQUEUE_KUBE_SLOW=1`, which `scripts/test-kube` sets.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests are not recognised as tests"
)]

mod cluster;
mod crd;
mod election;
mod examples;
mod helpers;
mod journal;
mod outage;
mod relist;
mod support;
mod watches;
mod workers;
