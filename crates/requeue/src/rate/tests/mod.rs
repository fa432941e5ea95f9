//! Behaviour that all limiters share: goodput under timeouts, their bounds, and waiting.

mod bounds;
mod goodput;
mod hostile;
mod tasks;
mod waiting;
