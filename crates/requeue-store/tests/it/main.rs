//! The promises of stores, kept by the one in memory.

mod conformance;
