//! An in-process API server for tests.
