//! Memory of Python that calls read or fill without a copy, while other threads of Python run.
//!
//! As with `readinto` and `write` of Python's own files, a program must not change a buffer while a call uses it.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::slice;

/// A buffer of bytes that is read.
pub struct ReadableBuffer(PyBuffer<u8>);

/// A buffer of bytes that is filled.
pub struct WritableBuffer(PyBuffer<u8>);

/// An object `bytes` that nothing of Python sees before it is filled.
pub struct UnfilledBytes<'py>(Bound<'py, PyBytes>);

fn contiguous(object: &Bound<'_, PyAny>) -> PyResult<PyBuffer<u8>> {
    let buffer = PyBuffer::<u8>::get(object)?;
    match buffer.is_c_contiguous() {
        true => Ok(buffer),
        false => Err(PyBufferError::new_err("the bytes of the buffer lie apart")),
    }
}

impl ReadableBuffer {
    /// Takes the bytes of an object that has the buffer interface.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        contiguous(object).map(Self)
    }
}

impl AsRef<[u8]> for ReadableBuffer {
    fn as_ref(&self) -> &[u8] {
        match self.0.len_bytes() {
            0 => &[],
            // SAFETY: the exporter keeps the memory in place as long as the buffer is held; see the note of the module on
            // its content.
            len => unsafe { slice::from_raw_parts(self.0.buf_ptr().cast(), len) },
        }
    }
}

impl WritableBuffer {
    /// Takes the bytes of an object that has the buffer interface and may be changed.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = contiguous(object)?;
        match buffer.readonly() {
            true => Err(PyBufferError::new_err("the buffer cannot be written to")),
            false => Ok(Self(buffer)),
        }
    }
}

impl AsMut<[u8]> for WritableBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        match self.0.len_bytes() {
            0 => &mut [],
            // SAFETY: as for what is read; the exporter said that the memory may be written to.
            len => unsafe { slice::from_raw_parts_mut(self.0.buf_ptr().cast(), len) },
        }
    }
}

impl<'py> UnfilledBytes<'py> {
    /// Makes an object of so many bytes.
    pub fn new(py: Python<'py>, len: usize) -> PyResult<Self> {
        // SAFETY: without content the object is new and has one owner, or the call returns NULL with an exception.
        let object = unsafe {
            let new = ffi::PyBytes_FromStringAndSize(std::ptr::null(), len as ffi::Py_ssize_t);
            Bound::from_owned_ptr_or_err(py, new)?
        };
        let mut bytes = Self(object.cast_into::<PyBytes>()?);
        bytes.as_mut().fill(0);
        Ok(bytes)
    }

    /// Returns the object.
    pub fn object(&self) -> Bound<'py, PyAny> {
        self.0.clone().into_any()
    }
}

impl AsMut<[u8]> for UnfilledBytes<'_> {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: nothing else has the object before the call that fills it returns.
        unsafe {
            let start = ffi::PyBytes_AsString(self.0.as_ptr());
            slice::from_raw_parts_mut(start.cast(), self.0.as_bytes().len())
        }
    }
}
