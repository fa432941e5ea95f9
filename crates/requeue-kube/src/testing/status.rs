//! Requests that the fake API server refuses.

use http::Method;
use serde_json::{Value, json};

use super::call::Call;

/// A refused request; becomes a `Status` object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(code: u16, message: impl Into<String>) -> Self {
        let reason = match code {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            405 => "MethodNotAllowed",
            409 => "Conflict",
            410 => "Expired",
            415 => "UnsupportedMediaType",
            422 => "Invalid",
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "InternalError",
        };
        Self { code, reason, message: message.into() }
    }

    pub(super) fn unknown_path(path: &str) -> Self {
        Self::new(404, format!("the fake API server does not serve {path}"))
    }

    pub(super) fn method(method: &Method) -> Self {
        Self::new(405, format!("the fake API server does not support {method} here"))
    }

    pub(super) fn not_found(plural: &str, name: &str) -> Self {
        Self::new(404, format!("{plural} \"{name}\" not found"))
    }

    pub(super) fn exists(plural: &str, name: &str) -> Self {
        let message = format!("{plural} \"{name}\" already exists");
        Self { reason: "AlreadyExists", ..Self::new(409, message) }
    }

    pub(super) fn conflict(plural: &str, name: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {plural} \"{name}\": the object has been \
             modified; please apply your changes to the latest version and try again"
        );
        Self::new(409, message)
    }

    pub(super) fn expired() -> Self {
        Self::new(410, "too old resource version")
    }

    /// Refuses a call as a real server would for this code.
    pub(super) fn of_call(code: u16, call: &Call) -> Self {
        let Call { verb, group, plural, .. } = call;
        let verb = format!("{verb:?}").to_lowercase();
        let message = match code {
            401 => "Unauthorized".to_owned(),
            403 => format!(
                "{plural} is forbidden: User \"test\" cannot {verb} resource \"{plural}\" \
                 in API group \"{group}\" at the cluster scope"
            ),
            404 => "the server could not find the requested resource".to_owned(),
            _ => format!("injected fault {code} for {verb} of {plural}"),
        };
        Self::new(code, message)
    }

    pub(super) fn to_value(&self) -> Value {
        json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        })
    }
}
