//! Kubernetes controllers on kube-rs with the `requeue` work queue.
