//! Fixed-size records in bulk, as one base64 text: names and receipts travel by the hundred thousand, and JSON arrays
//! of hex would be half as long again.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A record of a fixed number of bytes.
pub trait PackedRecord: Sized {
    /// The number of bytes of one record.
    const SIZE: usize;
    /// Appends exactly [`PackedRecord::SIZE`] bytes.
    fn write(&self, out: &mut Vec<u8>);
    /// Reads exactly [`PackedRecord::SIZE`] bytes; `None` where they mean nothing.
    fn read(bytes: &[u8]) -> Option<Self>;
}

/// Plain bytes as base64 text.
pub mod bytes {
    use super::{Deserialize, Deserializer, Engine, STANDARD, Serializer};

    /// Writes bytes as text.
    pub fn serialize<S: Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&STANDARD.encode(bytes))
    }

    /// Reads bytes from text.
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(d)?;
        STANDARD.decode(text.as_bytes()).map_err(serde::de::Error::custom)
    }
}

/// A field of a message that is plain bytes, as base64 text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Blob(#[serde(with = "bytes")] pub Vec<u8>);

/// A list of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed<T>(pub Vec<T>);

impl<T> Packed<T> {
    /// Returns whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for Packed<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: PackedRecord> Serialize for Packed<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut raw = Vec::with_capacity(self.0.len() * T::SIZE);
        self.0.iter().for_each(|record| record.write(&mut raw));
        bytes::serialize(&raw, s)
    }
}

impl<'de, T: PackedRecord> Deserialize<'de> for Packed<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let raw = bytes::deserialize(d)?;
        if raw.len() % T::SIZE != 0 {
            return Err(serde::de::Error::custom("a packed list ends inside a record"));
        }
        let records = raw.chunks_exact(T::SIZE).map(T::read).collect::<Option<Vec<T>>>();
        records.map(Self).ok_or_else(|| serde::de::Error::custom("a packed record means nothing"))
    }
}

impl PackedRecord for potluck_core::chunk::ChunkName {
    const SIZE: usize = 32;
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl PackedRecord for potluck_core::chunk::Digest {
    const SIZE: usize = 32;
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl PackedRecord for potluck_core::ids::SessionId {
    const SIZE: usize = 16;
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}
