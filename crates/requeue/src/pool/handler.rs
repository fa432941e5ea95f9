//! What a handler returns.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::Finish;

/// A value that a handler can return.
///
/// | a handler returns | the run | the lease ends with |
/// |---|---|---|
/// | `()`, `Ok(())` | succeeded | [`Finish::Succeed`] |
/// | `finish`, `Ok(finish)` | depends on the [`Finish`] | that finish |
/// | `Err(error)` | failed | [`Finish::Retry`] |
/// | `Err(failed)`, a [`Failed`] | failed | the finish that it carries |
///
/// An error is any type that converts into a `Box<dyn Error + Send + Sync>`: those that
/// implement [`Error`], strings, and the error types of crates such as `anyhow`.
///
/// # Examples
///
/// Functions that can be handlers of a pool on a `Queue<String>`:
///
/// ```
/// use std::error::Error;
/// use std::io;
/// use std::time::Duration;
///
/// use requeue::Finish;
/// use requeue::pool::{Failed, HandlerResult, Run};
///
/// fn infallible(_run: &Run<String>) {}
///
/// fn poll(_run: &Run<String>) -> Finish {
///     Finish::RequeueAfter(Duration::from_secs(60))
/// }
///
/// fn read(run: &Run<String>) -> io::Result<()> {
///     std::fs::read(run.key()).map(drop)
/// }
///
/// fn check(run: &Run<String>) -> Result<(), String> {
///     if run.is_empty() { Err("no name".to_owned()) } else { Ok(()) }
/// }
///
/// fn boxed(run: &Run<String>) -> Result<Finish, Box<dyn Error + Send + Sync>> {
///     let seconds = run.parse()?;
///     Ok(Finish::RequeueAfter(Duration::from_secs(seconds)))
/// }
///
/// // `Failed` takes any error from `?` and can choose the finish.
/// fn mixed(run: &Run<String>) -> Result<(), Failed> {
///     let text = std::fs::read_to_string(run.key())?;
///     let port: u16 = text.parse().map_err(Failed::give_up)?;
///     if port < 1024 {
///         return Err(Failed::retry_after("reserved port", Duration::from_secs(5)));
///     }
///     Ok(())
/// }
/// # fn is_handler<R: HandlerResult>(_: fn(&Run<String>) -> R) {}
/// # is_handler(infallible);
/// # is_handler(poll);
/// # is_handler(read);
/// # is_handler(check);
/// # is_handler(boxed);
/// # is_handler(mixed);
/// ```
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    label = "the result of a handler",
    note = "return `()`, a `Finish`, or a `Result` of one of them whose error is a `Failed` \
            or implements `Error + Send + Sync`"
)]
pub trait HandlerResult {
    /// Converts the value into a finish, or into an error with its finish.
    ///
    /// # Errors
    ///
    /// If the run failed.
    fn into_result(self) -> Result<Finish, Failed>;
}

impl HandlerResult for () {
    fn into_result(self) -> Result<Finish, Failed> {
        Ok(Finish::Succeed)
    }
}

impl HandlerResult for Finish {
    fn into_result(self) -> Result<Finish, Failed> {
        Ok(self)
    }
}

impl<O: Into<Finish>, E: Into<Failed>> HandlerResult for Result<O, E> {
    fn into_result(self) -> Result<Finish, Failed> {
        self.map(Into::into).map_err(Into::into)
    }
}

/// The error of a handler, and how its lease ends.
///
/// `?` converts any error into a `Failed` that is retried. The constructors choose another
/// finish. As with `anyhow::Error`, this type does not implement [`Error`] itself: the
/// conversion for all errors would otherwise conflict with the one from `Failed` to
/// `Failed`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use requeue::Finish;
/// use requeue::pool::Failed;
///
/// fn send(status: u16, wait: Duration) -> Result<(), Failed> {
///     match status {
///         200 => Ok(()),
///         410 => Err(Failed::give_up("the receiver is gone")),
///         503 => Err(Failed::retry_after("the receiver is busy", wait)),
///         other => Err(format!("unexpected status {other}").into()),
///     }
/// }
///
/// let minute = Duration::from_secs(60);
/// assert_eq!(send(410, minute).unwrap_err().finish(), Finish::GiveUp);
/// assert_eq!(send(503, minute).unwrap_err().finish(), Finish::RetryAfter(minute));
/// assert_eq!(send(500, minute).unwrap_err().finish(), Finish::Retry);
/// ```
#[doc(alias = "TerminalError")]
pub struct Failed {
    error: Box<dyn Error + Send + Sync>,
    finish: Finish,
}

impl Failed {
    /// Returns a failure whose lease ends as `finish` says.
    ///
    /// A finish that is a success, such as [`Finish::RequeueAfter`], is applied as well: the
    /// error is reported, but it does not count as a failure of the key.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>, finish: Finish) -> Self {
        Self { error: error.into(), finish }
    }

    /// Returns a failure that is retried after `delay`, for example from an HTTP
    /// `Retry-After`.
    pub fn retry_after(
        error: impl Into<Box<dyn Error + Send + Sync>>,
        delay: Duration,
    ) -> Self {
        Self::new(error, Finish::RetryAfter(delay))
    }

    /// Returns a permanent failure: the key is dead.
    #[doc(alias = "TerminalError")]
    pub fn give_up(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(error, Finish::GiveUp)
    }

    /// Returns the error.
    pub fn error(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.error
    }

    /// Returns how the lease ends.
    pub fn finish(&self) -> Finish {
        self.finish
    }

    /// Returns the error and discards the finish.
    pub fn into_error(self) -> Box<dyn Error + Send + Sync> {
        self.error
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self::new(error, Finish::Retry)
    }
}

impl fmt::Debug for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failed")
            .field("error", &self.error)
            .field("finish", &self.finish)
            .finish()
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}
