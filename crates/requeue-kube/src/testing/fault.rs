//! Faults on demand.

use std::time::Duration;

use super::call::{Call, Verb};

/// A fault that the fake API server injects into matching requests.
///
/// A fault matches every request until it is restricted. The first fault that matches
/// applies, in the order of injection.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue_kube::testing::{Fault, Verb};
///
/// // The next two lists of secrets are forbidden.
/// let forbidden = Fault::status(403).on(Verb::List).of("secrets").times(2);
/// // Every other request takes half a second.
/// let slow = Fault::delay(Duration::from_millis(500));
/// # drop((forbidden, slow));
/// ```
#[derive(Clone, Debug)]
#[must_use = "a fault has an effect only if it is injected"]
pub struct Fault {
    effect: Effect,
    verb: Option<Verb>,
    plural: Option<String>,
    name: Option<String>,
    left: Option<usize>,
}

/// What a fault does to a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
    Status(u16),
    Delay(Duration),
    Hang,
    Reset,
}

impl Fault {
    fn new(effect: Effect) -> Self {
        Self { effect, verb: None, plural: None, name: None, left: None }
    }

    /// Refuses the request with this HTTP status, such as 403, 404, 410, 429 or 500.
    pub fn status(code: u16) -> Self {
        Self::new(Effect::Status(code))
    }

    /// Delays the request on tokio's clock, then processes it.
    pub fn delay(delay: Duration) -> Self {
        Self::new(Effect::Delay(delay))
    }

    /// Never answers the request, and does not process it.
    pub fn hang() -> Self {
        Self::new(Effect::Hang)
    }

    /// Drops the connection, and does not process the request.
    pub fn reset() -> Self {
        Self::new(Effect::Reset)
    }

    /// Restricts the fault to a verb.
    pub fn on(mut self, verb: Verb) -> Self {
        self.verb = Some(verb);
        self
    }

    /// Restricts the fault to a kind, named by its plural.
    pub fn of(mut self, plural: impl Into<String>) -> Self {
        self.plural = Some(plural.into());
        self
    }

    /// Restricts the fault to requests for the object with this name.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Limits how many requests are affected.
    pub fn times(mut self, times: usize) -> Self {
        self.left = Some(times);
        self
    }

    fn matches(&self, call: &Call) -> bool {
        self.left != Some(0)
            && self.verb.is_none_or(|verb| verb == call.verb)
            && self.plural.as_ref().is_none_or(|plural| *plural == call.plural)
            && self.name.as_ref().is_none_or(|name| call.name.as_ref() == Some(name))
    }
}

/// The injected faults, in order.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    pub(super) fn inject(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the effect on a call, and counts it.
    pub(super) fn apply(&mut self, call: &Call) -> Option<Effect> {
        let fault = self.0.iter_mut().find(|fault| fault.matches(call))?;
        if let Some(left) = &mut fault.left {
            *left -= 1;
        }
        Some(fault.effect)
    }
}
