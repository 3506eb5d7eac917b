//! The decoders of files that no other crate reads, for the fuzzer. Each reads or refuses any bytes; what it reads it
//! writes so that it reads the same again.

use crate::scrub::Round;
use crate::state::{HeardManager, Own};
use crate::store::marker::Marker;
use crate::store::trailer::{TRAILER, Trailer, file_len, stored_len};
use potluck_core::chunk::ChunkName;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Reads the trailer of a chunk file.
pub fn trailer(bytes: &[u8; TRAILER], name: &ChunkName) {
    if let Some(read) = Trailer::decode(bytes) {
        assert_eq!(Trailer::decode(&read.encode()), Some(read));
        let _ = read.is_of(name, read.len);
    }
}

/// Reads from the length of a chunk file how long its chunk is.
pub fn chunk_file_len(file: u64) {
    if let Some(stored) = stored_len(file) {
        assert_eq!(file_len(stored), file);
    }
}

/// Reads the marker of a store, and the files of a donor's state.
pub fn state_files(text: &[u8]) {
    reads::<Marker>(text);
    reads::<Own>(text);
    reads::<HeardManager>(text);
    reads::<Round>(text);
}

fn reads<T: Serialize + DeserializeOwned>(text: &[u8]) {
    if let Ok(read) = serde_json::from_slice::<T>(text) {
        let told = serde_json::to_vec(&read).expect("what was read is written");
        let again: T = serde_json::from_slice(&told).expect("what was written is read");
        assert_eq!(serde_json::to_vec(&again).expect("written"), told);
    }
}
