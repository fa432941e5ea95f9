//! The queue of [`requeue`], durable or shared by many machines.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod answer;
mod batch;
mod builder;
#[cfg(feature = "conformance")]
#[cfg_attr(docsrs, doc(cfg(feature = "conformance")))]
pub mod conformance;
mod engine;
mod error;
#[macro_use]
mod forward;
mod getters;
mod held;
mod key;
mod lease;
pub mod machine;
mod memory;
mod moment;
mod queue;
mod race;
mod request;
mod source;
mod store;
mod sync;

pub use answer::{
    Dead, Expired, Failing, Finished, Grant, Leased, Look, Phase, Receipt, Stats, Worker,
};
pub use builder::SharedBuilder;
pub use error::{Error, ErrorKind};
#[cfg(feature = "serde")]
pub use key::Json;
pub use key::{Key, StoreKey};
pub use lease::{Finishing, SharedLease};
pub use memory::MemoryStore;
pub use moment::{EngineClock, Moment, Now, micros_of};
pub use queue::SharedQueue;
pub use request::{
    Add, Backoff, End, Ending, Hold, LeaseRequest, Owner, Rate, Token, When, Which,
};
pub use source::SharedGet;
pub use store::{Reply, Store};
