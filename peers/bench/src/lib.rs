//! requeue and the Rust crates around it, each measured in the scenarios of its kind.
//!
//! `scenario` says how a thing is measured, `system` which things are; the Go program
//! in `../go` has the same scenarios under the same names. A process measures one
//! system in one scenario once, so that CPU time and memory are its own.

pub mod cli;
pub mod keys;
pub mod measure;
pub mod scenario;
pub mod system;
