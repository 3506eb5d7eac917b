//! Failures of the pool as exceptions of Python.

use potluck_client::{PoolError, PoolErrorReason};
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError, PyValueError};
use pyo3::prelude::*;
use std::cell::RefCell;

thread_local! {
    /// The exception that a signal raised while a call of this thread waited.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Returns whether a signal came whose handler raised an exception, so that the call of this thread is to end.
pub fn signal_came() -> bool {
    let checked = Python::try_attach(|py| py.check_signals());
    match checked {
        Some(Err(error)) => RAISED.with(|raised| {
            *raised.borrow_mut() = Some(error);
            true
        }),
        Some(Ok(())) | None => false,
    }
}

/// Makes a call that waits while other threads of Python run.
pub fn raising<T: Send>(
    py: Python<'_>,
    call: impl FnOnce() -> Result<T, PoolError> + Send,
) -> PyResult<T> {
    py.detach(call).map_err(|error| raised(py, error))
}

/// Returns the exception for a failure: of `OSError` the class that its number chooses, as from the system.
pub fn raised(_py: Python<'_>, error: PoolError) -> PyErr {
    let number = match error.reason {
        PoolErrorReason::Interrupted => {
            let pending = RAISED.with(|raised| raised.borrow_mut().take());
            return pending.unwrap_or_else(|| PyKeyboardInterrupt::new_err(()));
        }
        PoolErrorReason::Invalid => return PyValueError::new_err(error.to_string()),
        PoolErrorReason::NotFound => libc::ENOENT,
        PoolErrorReason::Exists => libc::EEXIST,
        PoolErrorReason::IsDirectory => libc::EISDIR,
        PoolErrorReason::WrongKind => libc::ENOTDIR,
        PoolErrorReason::NotEmpty => libc::ENOTEMPTY,
        PoolErrorReason::Changed => libc::ESTALE,
        PoolErrorReason::NoSpace => libc::ENOSPC,
        PoolErrorReason::Denied => libc::EACCES,
        PoolErrorReason::Unavailable => libc::ETIMEDOUT,
        PoolErrorReason::Damaged | PoolErrorReason::Other => libc::EIO,
    };
    PyOSError::new_err((number, error.to_string()))
}
