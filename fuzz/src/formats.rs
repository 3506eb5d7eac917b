//! Formats of what lies on disks: recipes, sealed bytes, proofs of segments, the metadata log, files of donors.

use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::merkle::{SegmentHashes, proof_len, proven_root, whole_segments};
use potluck_core::recipe;
use potluck_core::seal::{Meaning, RecoveryKey, SpaceKey};
use potluck_donor::fuzzing;
use potluck_recovery::log::block;

/// A page with its check (docs/format/recipe.md).
pub fn recipe_page(bytes: &[u8]) {
    let (digest, number) = (Digest([3; 32]), 0_u64);
    let mut hasher = blake3::Hasher::new_derive_key("potluck 2026-11 recipe page");
    hasher.update(&digest.0).update(&number.to_le_bytes()).update(bytes);
    let mut page = bytes.to_vec();
    page.extend_from_slice(&hasher.finalize().as_bytes()[..16]);
    let read = recipe::unpack_one(&digest, 0, &page);
    if let Ok(entries) = &read
        && !entries.is_empty()
    {
        let packed = recipe::pack(&digest, entries);
        assert_eq!(&recipe::unpack(&digest, packed.iter().map(Vec::as_slice)), &read);
    }
    let other = recipe::unpack_one(&Digest([4; 32]), 0, &page);
    assert!(other.is_err(), "a page of another file");
    let _ = recipe::unpack_page(bytes);
}

/// What nobody sealed opens as nothing.
pub fn sealed(bytes: &[u8]) {
    let (space, digest) = (SpaceKey::from_bytes([5; 32]), Digest([6; 32]));
    let mut body = bytes.to_vec();
    let opened = space.open(Meaning::Chunk, &digest, &mut body);
    assert!(opened.is_err() || bytes.is_empty());
    let mut inline = bytes.to_vec();
    assert!(space.open(Meaning::Inline, &digest, &mut inline).is_err() || bytes.is_empty());
    let recovery = RecoveryKey::from_bytes([8; 32]);
    assert!(recovery.open_record(&Digest([7; 32]), bytes).is_err());
}

pub fn segment_proof(bytes: &[u8]) {
    let Some((numbers, hashes)) = bytes.split_at_checked(16) else { return };
    let number = |at: usize| u32::from_le_bytes(numbers[at..at + 4].try_into().expect("4 bytes"));
    let (start, end, len) = (number(0), number(4), number(8));
    let whole = whole_segments(&(start..end), len);
    let range = match number(12) % 3 {
        0 => whole.unwrap_or_default(),
        _ => (start % 3000) as usize..(end % 3000) as usize,
    };
    let count = (len % 3000) as usize;
    let hashes = &hashes[..hashes.len() / 32 * 32];
    let split = (number(12) as usize % (hashes.len() / 32 + 1)) * 32;
    let (segments, proof) = hashes.split_at(split);
    let [segments, proof] = [segments, proof].map(SegmentHashes::from_bytes);
    let root = proven_root(count, &range, &segments, &proof);
    if root.is_some() {
        assert_eq!(proof_len(count, &range), proof.as_bytes().len());
    }
}

/// The text of a block after it was opened.
pub fn log_block(text: &[u8]) {
    if let Ok(header) = block::header(1, text) {
        assert_eq!(header.sequence, 1);
    }
    for record in block::records(text).flatten() {
        let told = serde_json::to_vec(&record).expect("what was read is written");
        let line = [b"\n", &told[..]].concat();
        let again =
            block::records(&line).next().expect("a line").expect("what was written is read");
        assert_eq!(serde_json::to_vec(&again).expect("written"), told);
    }
}

/// The end of a chunk file, with its sum (docs/format/chunk.md), and the files of a donor's own state.
pub fn donor_files(bytes: &[u8]) {
    if let Some(front) = bytes.first_chunk::<56>() {
        let sum = blake3::hash(front);
        let mut trailer = [0; 64];
        trailer[..56].copy_from_slice(front);
        trailer[56..].copy_from_slice(&sum.as_bytes()[..8]);
        fuzzing::trailer(&trailer, &ChunkName([9; 32]));
    }
    if let Some(len) = bytes.first_chunk::<8>() {
        fuzzing::chunk_file_len(u64::from_le_bytes(*len));
    }
    fuzzing::state_files(bytes);
}
