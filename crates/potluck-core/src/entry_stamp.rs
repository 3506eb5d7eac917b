//! A stamp is a short hash of the entry behind a name. A client sends the stamps of the entries that it remembers, and
//! the manager answers with the entries whose stamps differ.

use crate::chunk::Digest;
use crate::ids::hex_id;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

hex_id!(
    /// The stamp of the entry behind a name: entries that differ have different stamps.
    EntryStamp,
    16
);

impl EntryStamp {
    /// The stamp of a name that leads to nothing.
    pub const NOTHING: Self = Self([0; 16]);

    /// Returns the stamp of an entry with these facts, encoded as bytes.
    pub fn of(facts: &[u8]) -> Self {
        let Digest(digest) = Digest::of(facts);
        let mut stamp = [0; 16];
        stamp.copy_from_slice(&digest[..16]);
        Self(stamp)
    }
}
