//! The fault of the disk that holds the catalog, while the disk takes no writes.

use crate::error::Error;
use std::sync::Mutex;

/// The error of the last write that the disk did not take, until [`Self::end`] is called.
///
/// A write that succeeds does not end the fault: a small write may fit where the next does not.
#[derive(Debug, Default)]
pub struct CatalogDiskFault(Mutex<Option<Error>>);

impl CatalogDiskFault {
    /// Notes why a write failed, if that is the disk's fault.
    pub fn note(&self, why: &Error) {
        if why.is_disks() {
            *self.0.lock().expect("no holder panics") = Some(why.clone());
        }
    }

    /// Notes that the disk takes writes again.
    pub fn end(&self) {
        *self.0.lock().expect("no holder panics") = None;
    }

    /// Returns the fault of the disk, if it has one.
    pub fn get(&self) -> Option<Error> {
        self.0.lock().expect("no holder panics").clone()
    }
}
