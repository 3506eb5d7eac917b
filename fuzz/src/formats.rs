//! Decoders of formats that are not plain JSON: recipes, sealed bytes, proofs of segments, the metadata log and its
//! file, the ends of chunk files, and contributions to shared files.

use crate::decoder::Decoder;
use crate::json;
use potluck_catalog::{Authority, Record};
use potluck_client::fuzzing::{Composition, FOOTER, Index};
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::chunk_file::{file_len, stored_len};
use potluck_core::entropy::SystemEntropy;
use potluck_core::ids::Epoch;
use potluck_core::merkle::{SegmentHashes, proof_len, proven_root, whole_segments};
use potluck_core::recipe::{self, Entry};
use potluck_core::seal::RecoveryKey;
use potluck_donor::fuzzing::Trailer;
use potluck_recovery::log::backup_file::{BackupReader, Next};
use potluck_recovery::log::block::{self, BlockPart, Header};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

pub const DECODERS: [Decoder; 7] = [
    Decoder { name: "recipe-page", read: recipe_page, seeds: pages },
    Decoder { name: "sealed", read: sealed, seeds: || vec![vec![0; 100]] },
    Decoder { name: "segment-proof", read: segment_proof, seeds: || vec![vec![0; 16 + 5 * 32]] },
    Decoder { name: "log-block", read: log_block, seeds: blocks },
    Decoder { name: "backup-file", read: backup_file, seeds: backups },
    Decoder { name: "chunk-trailer", read: chunk_trailer, seeds: trailers },
    Decoder { name: "contribution", read: contribution, seeds: contributions },
];

/// The size of the check at the end of a page, in bytes.
const CHECK: usize = 16;

/// Reads a page of a recipe, to which its check is added (docs/format/recipe.md).
fn recipe_page(bytes: &[u8]) -> bool {
    let (digest, number) = (Digest([3; 32]), 0_u64);
    let mut hasher = blake3::Hasher::new_derive_key("potluck 2026-11 recipe page");
    hasher.update(&digest.0).update(&number.to_le_bytes()).update(bytes);
    let mut page = bytes.to_vec();
    page.extend_from_slice(&hasher.finalize().as_bytes()[..CHECK]);
    let read = recipe::unpack_one(&digest, 0, &page);
    if let Ok(content) = &read {
        let packed = recipe::pack(&digest, content);
        let _ = (content.digest(), content.size());
        assert_eq!(&recipe::unpack(&digest, packed.iter().map(Vec::as_slice)), &read);
    }
    let other = recipe::unpack_one(&Digest([4; 32]), 0, &page);
    assert!(other.is_err(), "a page of another file");
    let _ = recipe::unpack_page(bytes);
    read.is_ok()
}

fn pages() -> Vec<Vec<u8>> {
    let entry =
        |sealed| Entry { name: ChunkName([1; 32]), digest: Digest([1; 32]), len: 4096, sealed };
    let page = |sealed| {
        let mut content = recipe::Content::default();
        content.push(entry(sealed));
        content.push_hole(1 << 40);
        content.push(entry(sealed));
        let page = recipe::pack(&Digest([3; 32]), &content).swap_remove(0);
        page[..page.len() - CHECK].to_vec()
    };
    [false, true].map(page).into()
}

/// Checks that a record which nobody sealed cannot be opened.
fn sealed(bytes: &[u8]) -> bool {
    let recovery = RecoveryKey::from_bytes([8; 32]);
    assert!(recovery.open_record(&Digest([7; 32]), bytes).is_err());
    true
}

fn segment_proof(bytes: &[u8]) -> bool {
    let Some((numbers, hashes)) = bytes.split_at_checked(16) else { return false };
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
    true
}

/// Reads the text of a block of the metadata log, as it is after the block was opened.
fn log_block(text: &[u8]) -> bool {
    let header = block::header(1, text);
    if let Ok(header) = &header {
        assert_eq!(header.sequence, 1);
    }
    for record in block::records(text).flatten() {
        let told = serde_json::to_vec(&record).expect("what was read is written");
        let line = [b"\n", &told[..]].concat();
        let again =
            block::records(&line).next().expect("a line").expect("what was written is read");
        assert_eq!(serde_json::to_vec(&again).expect("written"), told);
    }
    header.is_ok()
}

/// Makes the text of a block for each kind of record.
fn blocks() -> Vec<Vec<u8>> {
    let header = first_header();
    json::seeds::<Record>().iter().map(|record| [&header, &b"\n"[..], record].concat()).collect()
}

/// Makes the header of a log's first block.
fn first_header() -> Vec<u8> {
    let header = Header {
        sequence: 1,
        generation: 1,
        part: BlockPart::BaseEnd,
        before: None,
        epoch: Epoch(1),
        attempt: 1,
        wall_ms: 1,
        start: 1,
        files: 0,
        may_lack: false,
    };
    serde_json::to_vec(&header).expect("written")
}

const POOL: Digest = Digest([7; 32]);

fn recovery_key() -> RecoveryKey {
    RecoveryKey::from_bytes([8; 32])
}

/// Reads a file of the metadata log. If the first byte is 0, the rest is the file; otherwise it is the text of one
/// block, which gets a good heading and a good seal.
fn backup_file(bytes: &[u8]) -> bool {
    thread_local! {
        static DIR: TempDir = tempfile::tempdir().expect("a directory");
    }
    let Some((is_sealed, bytes)) = bytes.split_first() else { return false };
    let file = if *is_sealed == 0 { bytes.to_vec() } else { with_one_block(bytes.to_vec()) };
    DIR.with(|dir| {
        let path = dir.path().join("log");
        fs::write(&path, file).expect("written");
        let (kit, ours) = (Path::new("kit"), Authority::new("lab", &POOL));
        let Ok(mut reader) = BackupReader::open(&path, kit, recovery_key(), &ours) else {
            return false;
        };
        loop {
            match reader.next_block().expect("the file is there") {
                Next::Block(..) => {}
                Next::End => return true,
                Next::Unreadable(..) => return false,
            }
        }
    })
}

fn with_one_block(text: Vec<u8>) -> Vec<u8> {
    let key = recovery_key().name();
    let heading = format!(
        "{{\"potluck_log\":2,\"pool\":\"lab\",\"authority\":\"{POOL}\",\"key\":\"{key}\"}}\n"
    );
    let sealed = recovery_key().seal_record(&POOL, 1, text, &SystemEntropy);
    [heading.as_bytes(), &(sealed.len() as u32).to_le_bytes(), &sealed].concat()
}

fn backups() -> Vec<Vec<u8>> {
    let header = first_header();
    vec![[&[0][..], &with_one_block(header.clone())].concat(), [&[1][..], &header].concat()]
}

/// Reads the end of a chunk file, to which its sum is added (docs/format/chunk.md). Fewer bytes are read as the
/// length of such a file.
fn chunk_trailer(bytes: &[u8]) -> bool {
    let Some(front) = bytes.first_chunk::<56>() else {
        let stored = bytes.first_chunk().map(|len| stored_len(u64::from_le_bytes(*len)));
        return stored.flatten().is_some_and(|stored| file_len(stored).to_le_bytes() == bytes[..8]);
    };
    let sum = blake3::hash(front);
    let mut trailer = [0; 64];
    trailer[..56].copy_from_slice(front);
    trailer[56..].copy_from_slice(&sum.as_bytes()[..8]);
    let Some(read) = Trailer::decode(&trailer) else { return false };
    let _ = read.is_of(&ChunkName([9; 32]), read.len);
    assert_eq!(Trailer::decode(&read.encode()), Some(read));
    true
}

fn trailers() -> Vec<Vec<u8>> {
    let mut front = b"POTCHUNK".to_vec();
    front.extend_from_slice(&[2, 0, 0, 0]);
    front.extend_from_slice(&1000_u32.to_le_bytes());
    front.resize(56, 1);
    vec![front, file_len(1000).to_le_bytes().to_vec()]
}

/// Reads two contributions to a shared file. The first byte is the length of the first; each has some content
/// before its index.
fn contribution(bytes: &[u8]) -> bool {
    let Some((split, bytes)) = bytes.split_first() else { return false };
    let (one, other) = bytes.split_at(usize::from(*split).min(bytes.len()));
    let indices = [one, other].map(|bytes| {
        let (extents, footer) = bytes.split_at(bytes.len().saturating_sub(FOOTER));
        let (len, size) = Index::of_footer(footer).ok()?;
        let extents = &extents[extents.len().checked_sub(len)?..];
        let index = Index::decode(extents, size, 1000).ok()?;
        assert_eq!(index.encode(), [extents, footer].concat());
        Some(index)
    });
    let [Some(one), Some(other)] = indices else { return false };
    let mut version = Composition::of_version(500);
    if version.add(&one).and_then(|()| version.add(&other)).is_err() {
        return false;
    }
    let mut at = 0;
    while at < version.size() {
        let (range, _) = version.run(at);
        assert!(range.start == at && range.end > at, "nothing goes on at {at}: {range:?}");
        at = range.end;
    }
    true
}

fn contributions() -> Vec<Vec<u8>> {
    let encoded = |extents: &[[u64; 3]], size: u64| {
        let mut bytes: Vec<u8> =
            extents.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
        bytes.extend((extents.len() as u64).to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend(b"POTCONT1");
        bytes
    };
    let one = encoded(&[[0, 100, 0], [50, 10, 100], [400, 200, 300]], 0);
    let other = encoded(&[[100, 300, 0]], 2000);
    vec![[&[one.len() as u8][..], &one, &other].concat()]
}
