//! Decoders of files of a machine's own: states, keys and records in JSON, the record of a mount, and cached
//! chunks.

use crate::decoder::Decoder;
use crate::json::{self, Json};
use potluck_client::fuzzing::CachedChunk;
use potluck_donor::fuzzing::{HeardManager, Marker, Own, Round};
use potluck_mount::fuzzing::unpublished_in;
use potluck_mount::{RecordedMount, Unpublished, UnpublishedState};
use potluck_recovery::kit::Kit;
use potluck_wire::control::{AuditEntry, Source};
use potluck_wire::identity::About;
use potluck_wire::whereabouts::{SignedWhereabouts, Whereabouts};
use tempfile::TempDir;

pub const DECODERS: [Decoder; 3] = [
    Decoder { name: "state-files", read: state_file, seeds: || json::seeds_of_all(STATE_FILES) },
    Decoder { name: "mount-record", read: mount_record, seeds: mount_records },
    Decoder { name: "cached-chunk", read: cached_chunk, seeds: cached_chunks },
];

/// The files of donors, members and managers in JSON, and what a client says of a donor to which another forwards.
const STATE_FILES: &[Json] = &[
    Json::of::<Marker>(),
    Json::of::<Own>(),
    Json::of::<HeardManager>(),
    Json::of::<Round>(),
    Json::of::<Kit>(),
    Json::of::<About>(),
    Json::of::<SignedWhereabouts>(),
    Json::of::<Whereabouts>(),
    Json::of::<AuditEntry>(),
    Json::of::<RecordedMount>(),
    Json::of::<Source>(),
];

fn state_file(bytes: &[u8]) -> bool {
    json::read_one(STATE_FILES, bytes)
}

fn mount_record(bytes: &[u8]) -> bool {
    !unpublished_in(bytes).is_empty()
}

fn mount_records() -> Vec<Vec<u8>> {
    let path = || "pot://lab/a".parse().expect("a path");
    let states = [
        UnpublishedState::Open,
        UnpublishedState::Publishing,
        UnpublishedState::Failed { why: "full".into() },
    ];
    let record = states.map(|state| {
        let unpublished = Unpublished { path: path(), state };
        let told = serde_json::to_string(&unpublished).expect("written");
        format!("\n{{\"draft\":1,\"unpublished\":{told}}}\n{{\"draft\":2}}\n").into()
    });
    record.into()
}

/// The size of the chunk in the cache, in bytes.
const CACHED: usize = 100;

fn with_cache<T>(look: impl FnOnce(&CachedChunk) -> T) -> T {
    thread_local! {
        static DIR: TempDir = tempfile::tempdir().expect("a directory");
        static CACHE: CachedChunk =
            DIR.with(|dir| CachedChunk::new(dir.path(), CACHED as u32)).expect("a cache");
    }
    CACHE.with(look)
}

/// Reads a file of a chunk cache, which any program of the same user may have changed, and checks that bytes which
/// are read are those of which the file has the hashes.
fn cached_chunk(bytes: &[u8]) -> bool {
    let read = with_cache(|cache| cache.read(bytes)).expect("the directory is there");
    if let Some(read) = &read {
        assert_eq!(read[..], bytes[bytes.len().min(32)..][..CACHED]);
    }
    read.is_some()
}

fn cached_chunks() -> Vec<Vec<u8>> {
    vec![with_cache(|cache| cache.file(&[3; CACHED])).expect("written")]
}
