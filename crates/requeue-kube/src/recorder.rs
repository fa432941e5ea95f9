//! A rate-limited recorder of Kubernetes events.
