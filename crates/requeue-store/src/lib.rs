//! The queue of [`requeue`], durable or shared by many machines.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod answer;
mod error;
mod key;
pub mod machine;
mod memory;
mod moment;
mod race;
mod request;
mod store;

pub use answer::{
    Dead, Expired, Failing, Finished, Grant, Leased, Look, Phase, Receipt, Stats, Worker,
};
pub use error::{Error, ErrorKind};
#[cfg(feature = "serde")]
pub use key::Json;
pub use key::{Key, StoreKey};
pub use memory::MemoryStore;
pub use moment::{EngineClock, Moment, Now, micros_of};
pub use request::{
    Add, Backoff, End, Ending, Hold, LeaseRequest, Owner, Rate, Token, When, Which,
};
pub use store::{Reply, Store};
