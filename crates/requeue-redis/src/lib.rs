//! x
mod builder;
mod fault;
mod link;
mod partition;
mod people;
mod reply;
mod script;
mod store;
mod wait;
mod wish;
mod work;

pub use builder::Builder;
pub use store::RedisStore;
