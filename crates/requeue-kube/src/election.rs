//! Leader election on Leases of coordination.k8s.io.
