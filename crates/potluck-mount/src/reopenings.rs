//! The calls of open() that programs of this mount wait for while the kernel looks the name up again.

use crate::inodes::NamePlace;
use potluck_client::File;
use potluck_core::clock::Tick;
use std::collections::HashMap;

/// The calls of open() with which the kernel is going to come back, by the threads that made them. A thread makes one
/// call at a time.
pub type Reopenings = HashMap<u32, Reopening>;

/// A call of open() with which the kernel is going to come back.
pub struct Reopening {
    /// The name that is opened.
    pub place: NamePlace,
    /// The time of the first call.
    pub since: Tick,
    /// The version that the second look-up found.
    pub found: Option<File>,
}
