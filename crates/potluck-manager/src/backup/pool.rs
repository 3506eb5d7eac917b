//! A checkpoint in the pool itself: sealed pieces of the copy, and a sealed head that names them.
//!
//! Pieces are sealed so that equal ones stay equal: of a catalog that changed little, little is sent.
//! The head is a record under the recovery key; who has that key and finds the head has everything.

use super::put::{PIECE, Put, prepared};
use super::{Taken, Trouble, checksum};
use crate::catalog::Error;
use crate::catalog::commit::PreparedFile;
use crate::catalog::entries::{self, Place};
use crate::catalog::names::{self, When};
use crate::catalog::walk::Walk;
use crate::service::Service;
use potluck_core::chunk::{ChunkKind, ChunkName, Digest, FileDigest, sealed_len};
use potluck_core::merkle::SegmentHashes;
use potluck_core::path::PoolPath;
use potluck_core::recipe::{self, Entry};
use potluck_core::seal::{Meaning, RecordKind, RecoveryKey, SpaceKey};
use potluck_wire::identity::fingerprint;
use potluck_wire::packed::Blob;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Take};
use std::path::Path;
use std::sync::Arc;

/// Checkpoints kept in the pool: the last, and the one before in case that it cannot be read.
const KEPT: usize = 2;
/// The directory of checkpoints.
pub const DIR: &str = "checkpoints";

/// What the head of a checkpoint says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Which checkpoint it is.
    pub taken: Taken,
    /// Bytes of the catalog.
    pub size: u64,
    /// Digest of these bytes.
    pub digest: Digest,
    /// Its pieces: packed pages of a recipe.
    pub pages: Vec<Blob>,
}

/// Stores the checkpoint in the file at `path`, and gives up all but the last few.
pub async fn store(
    service: &Arc<Service>,
    key: &RecoveryKey,
    taken: Taken,
    path: &Path,
) -> Result<(), Trouble> {
    let file = File::open(path)?;
    // Sealed pieces need no checksum.
    let size = checksum::pages_of(&file)?;
    let mut put = Put::open(service, size).await?;
    let (mut file, pieces_key) = (Some(file.take(size)), key.space_key());
    let (mut entries, mut chunks) = (Vec::new(), Vec::new());
    let mut digest = FileDigest::default();
    while let Some(open) = file.take() {
        let pieces_key = pieces_key.clone();
        let cut = service.env.offload.run(move || next_piece(open, &pieces_key)).await?;
        let Some((open, hashes, entry, sealed)) = cut else { break };
        file = Some(open);
        digest.push(&hashes);
        chunks.push(put.chunk(ChunkKind::Data, entry.name, &sealed).await?);
        entries.push(entry);
    }
    let digest = digest.finish();
    let pages = recipe::pack(&digest, &entries);
    let head = Head { taken, size, digest, pages: pages.iter().cloned().map(Blob).collect() };
    let text = serde_json::to_vec(&head).map_err(io::Error::other)?;
    let (pool, entropy) = (fingerprint(service.ca.certificate()), &*service.env.entropy);
    let record = key.seal_record(RecordKind::Checkpoint, &pool, taken.sequence, text, entropy);
    let name = ChunkName::of(&record);
    let entry = Entry { name, digest: Digest(name.0), len: record.len() as u32, sealed: false };
    let head = put.chunk(ChunkKind::Checkpoint, name, &record).await?;

    let number = format!("{:012}", taken.sequence);
    let (copies, mtime_ms) = (put.copies(), taken.wall_ms);
    let of = |what, digest, entries: &[Entry], chunks| -> Result<PreparedFile, Trouble> {
        let path = PoolPath::system(&[DIR, &number, what]).map_err(io::Error::other)?;
        Ok(prepared(path, digest, entries, chunks, copies, mtime_ms))
    };
    let files = vec![
        of("pieces", digest, &entries, chunks)?,
        of("head", entry.digest, &[entry], vec![head])?,
    ];
    let when = service.when();
    put.commit(files, move |db| give_up_old(db, when)).await
}

/// What is left of a file after a piece was cut off, and the piece: its segments, its entry, and it sealed.
type Cut = (Take<File>, SegmentHashes, Entry, Vec<u8>);

/// Reads, names and seals the next piece.
fn next_piece(mut file: Take<File>, key: &SpaceKey) -> io::Result<Option<Cut>> {
    let mut piece = Vec::with_capacity(sealed_len(PIECE as u32) as usize);
    file.by_ref().take(PIECE as u64).read_to_end(&mut piece)?;
    if piece.is_empty() {
        return Ok(None);
    }
    let (len, hashes) = (piece.len() as u32, SegmentHashes::of(&piece));
    let digest = Digest(hashes.root());
    key.seal(Meaning::Chunk, &digest, &mut piece);
    let name = ChunkName::of(&piece);
    Ok(Some((file, hashes, Entry { name, digest, len, sealed: true }, piece)))
}

fn give_up_old(db: &Connection, when: When) -> Result<(), Error> {
    let bad = |why: potluck_core::path::BadPath| Error::Bug(why.to_string());
    let dir = PoolPath::system(&[DIR]).map_err(bad)?;
    let Some(Place::Dir(root)) = entries::resolve(db, &dir)?.map(|found| found.place) else {
        return Ok(());
    };
    let mut walk = Walk::new(db, root, false, None)?;
    let mut numbers = Vec::new();
    while let Some(item) = walk.next()? {
        numbers.push(item.path);
    }
    let old = numbers.len().saturating_sub(KEPT);
    for number in &numbers[..old] {
        names::remove(db, &dir.join(number).map_err(bad)?, true, when)?;
    }
    Ok(())
}
