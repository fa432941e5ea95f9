//! Panics in user code, contained.
//!
//! User code runs between two steps of a call: the wakers of other tasks, an order, the
//! `Drop` of a key. Where the caller has nothing to do with that code, its panic must not
//! reach the caller or skip the steps that follow.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `code` and contains its panic. Returns `None` if it panicked.
///
/// The panic hook still prints the message.
#[inline]
pub(crate) fn contain<R>(code: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(result) => Some(result),
        Err(payload) => {
            discard(payload);
            None
        }
    }
}

/// Drops the payload of a panic, which is user code as well.
///
/// A payload whose `Drop` panics leaves another payload behind. That one is leaked: its
/// `Drop` could panic again, without end.
#[cold]
pub(crate) fn discard(payload: Box<dyn Any + Send>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        Box::leak(second);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;

    use super::*;

    struct PanicsOnDrop(u32);

    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            if self.0 > 0 {
                panic_any(PanicsOnDrop(self.0 - 1));
            }
        }
    }

    #[test]
    fn result_or_panic_is_reported() {
        assert_eq!(contain(|| 7), Some(7));
        assert_eq!(contain(|| panic!("on purpose")), None::<()>);
    }

    #[test]
    fn payload_whose_drop_panics_is_contained() {
        assert_eq!(contain(|| panic_any(PanicsOnDrop(3))), None::<()>);
    }
}
