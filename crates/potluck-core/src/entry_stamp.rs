//! Short stand-ins for what is behind names, by which two sides find what one of them does not know.

use crate::chunk::Digest;
use crate::ids::hex_id;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

hex_id!(
    /// Stands for what is behind a name: what differs has another stamp.
    EntryStamp,
    16
);

impl EntryStamp {
    /// Stands for nothing being there.
    pub const NOTHING: Self = Self([0; 16]);

    /// The stamp of an entry with these facts.
    pub fn of(facts: &[u8]) -> Self {
        let Digest(digest) = Digest::of(facts);
        let mut stamp = [0; 16];
        stamp.copy_from_slice(&digest[..16]);
        Self(stamp)
    }
}
