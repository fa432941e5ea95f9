//! Benchmarks of requeue and comparable Rust crates.
//!
//! `scenario` contains the measured loops and `system` the measured systems. The Go program
//! in `../go` has the same scenarios under the same ids. A process measures one system in
//! one scenario once, so CPU time and memory belong to that system alone.

pub mod cli;
pub mod keys;
pub mod measure;
pub mod scenario;
pub mod system;
