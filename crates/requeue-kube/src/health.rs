//! Liveness and readiness of controllers.
