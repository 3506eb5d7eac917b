//! The staged files that programs of this mount have open for writing.

use potluck_core::clock::Tick;
use std::collections::HashMap;

/// The handles of staged files that programs have open for writing.
#[derive(Default)]
pub struct StagedHandles {
    /// The number of the staging directory that each handle's file is in.
    pub dirs: HashMap<u64, u64>,
    /// The time at which a file in each staging directory was closed last, while the authority over its locks is kept.
    pub closed: HashMap<u64, Tick>,
}
