//! What belongs to the process that made it. Threads do not live on in a forked process, so that nothing that waits for
//! them may be used there, or be dropped.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::mem::ManuallyDrop;
use std::process;

/// A value of the process that made it.
pub struct OwnProcess<T> {
    value: ManuallyDrop<T>,
    process: u32,
}

impl<T> OwnProcess<T> {
    /// Makes a value of this process.
    pub fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), process: process::id() }
    }

    /// Returns the value, in the process that made it.
    pub fn get(&self) -> Option<&T> {
        (self.process == process::id()).then_some(&*self.value)
    }

    /// Returns the value, or the exception that it was made before a fork.
    pub fn here(&self) -> PyResult<&T> {
        self.get().ok_or_else(|| {
            PyRuntimeError::new_err("this was opened before the process forked: open it again")
        })
    }
}

impl<T> Drop for OwnProcess<T> {
    fn drop(&mut self) {
        if self.process == process::id() {
            // SAFETY: the value is not used after this, which is its only drop.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}
