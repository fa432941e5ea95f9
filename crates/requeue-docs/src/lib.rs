//! Runs the examples of the README files and of `docs/` as tests.
//!
//! They are outside the packages, so a crate that included them could not test itself once
//! it is published.

#![cfg(doctest)]

#[doc = include_str!("../../../README.md")]
struct Readme;
#[doc = include_str!("../../../crates/requeue/README.md")]
struct RequeueReadme;
#[doc = include_str!("../../../crates/requeue-fjall/README.md")]
struct RequeueFjallReadme;
#[doc = include_str!("../../../crates/requeue-postgres/README.md")]
struct RequeuePostgresReadme;
#[doc = include_str!("../../../crates/requeue-redis/README.md")]
struct RequeueRedisReadme;
#[doc = include_str!("../../../crates/requeue-store/README.md")]
struct RequeueStoreReadme;
#[doc = include_str!("../../../docs/ARCHITECTURE.md")]
struct Architecture;
#[doc = include_str!("../../../docs/COMPARE.md")]
struct Compare;
#[doc = include_str!("../../../docs/DESIGN.md")]
struct Design;
#[doc = include_str!("../../../docs/KUBERNETES.md")]
struct Kubernetes;
#[doc = include_str!("../../../docs/LIMITERS.md")]
struct Limiters;
#[doc = include_str!("../../../docs/METRICS.md")]
struct Metrics;
#[doc = include_str!("../../../docs/PERFORMANCE.md")]
struct Performance;
#[doc = include_str!("../../../docs/STORES.md")]
struct Stores;
#[doc = include_str!("../../../docs/TESTING.md")]
struct Testing;
