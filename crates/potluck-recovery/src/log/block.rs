//! Blocks: the parts of the metadata log, sealed under the recovery key.
//!
//! A block is a header and records. It names the block before it, so that no block can be left out,
//! exchanged or put elsewhere unseen. A generation begins with a base, the whole state of one moment,
//! and goes on with the changes since.

use potluck_catalog::{CatalogSnapshot, ChangeNumber, Error, Position, Record};
use potluck_core::chunk::{ChunkName, Digest};
use potluck_core::entropy::Entropy;
use potluck_core::ids::Epoch;
use potluck_core::seal::RecoveryKey;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::path::Path;

/// The plaintext bytes of records from which a block is closed: with its last record it is within [`PIECE`].
const FULL: usize = 3 << 20;

/// The most plaintext bytes of a block.
pub const PIECE: usize = 4 << 20;

/// The part of a generation that a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockPart {
    /// The block holds state, and more of the state follows.
    Base,
    /// The block holds the last of the state.
    BaseEnd,
    /// The block holds changes.
    Log,
}

/// The header in which a block describes itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The number of the block in its copy of the log, one more than that of the block before it. A generation in a
    /// file begins at 1; a generation on donors begins beyond 2³² times the epoch and beyond the generation before.
    pub sequence: u64,
    /// The sequence of the first block of the block's generation.
    pub generation: u64,
    /// The part of the generation that the block belongs to.
    pub part: BlockPart,
    /// The name of the block before it; `None` for the first of a generation.
    pub before: Option<ChunkName>,
    /// The epoch of the manager that wrote the block.
    pub epoch: Epoch,
    /// The number of the write in its epoch, counting all writes, whether they were committed or not; 0 in files.
    pub attempt: u64,
    /// The wall time of the write, for people.
    pub wall_ms: i64,
    /// The number that the manager which wrote the block drew at its start; 0 in files.
    pub start: u64,
    /// The number of files that the catalog had when the block was written.
    pub files: u64,
    /// True if the block is of the base of a catalog that may lack changes which another log has, and that no admin has
    /// accepted yet.
    pub may_lack: bool,
}

/// A block that is not what a manager writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a block of the log cannot be read: {0}")]
pub struct BadBlock(String);

/// The records of a block, a line of JSON each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lines {
    /// The bytes of the lines, each with its end.
    pub text: Vec<u8>,
    /// The number of records.
    pub count: u64,
}

/// A cutter of records into blocks.
#[derive(Debug, Default)]
pub struct BlockCutter {
    full: VecDeque<Lines>,
    open: Lines,
}

impl BlockCutter {
    /// Adds records, closing a block each time that one is full.
    pub fn add(&mut self, records: &[Record]) -> Result<(), Error> {
        for record in records {
            serde_json::to_writer(&mut self.open.text, record)
                .map_err(|why| Error::Bug(why.to_string()))?;
            self.open.text.push(b'\n');
            self.open.count += 1;
            if self.open.text.len() >= FULL {
                self.full.push_back(std::mem::take(&mut self.open));
            }
        }
        Ok(())
    }

    /// Returns all blocks that were not taken yet, the last with what is left.
    pub fn finish(mut self) -> Vec<Lines> {
        self.close();
        self.full.into()
    }

    fn close(&mut self) {
        if self.open.count > 0 {
            self.full.push_back(std::mem::take(&mut self.open));
        }
    }
}

/// Changes of a catalog, cut into blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutChanges {
    /// The last of the changes.
    pub last: ChangeNumber,
    /// The number of files that the catalog had when the changes were read.
    pub files: u64,
    /// The blocks, at least one.
    pub blocks: Vec<Lines>,
}

/// Cuts the records of changes into blocks.
pub fn cut(records: &[Record]) -> Result<Vec<Lines>, Error> {
    let mut cutter = BlockCutter::default();
    cutter.add(records)?;
    Ok(cutter.finish())
}

/// The state of a catalog as blocks, cut one by one.
pub struct Base {
    snapshot: Option<CatalogSnapshot>,
    /// The number of the last change that the state covers.
    pub change: ChangeNumber,
    /// The manager's epoch at the moment of the state.
    pub epoch: Epoch,
    /// The size in bytes of the pages that the catalog uses; its records are about as long.
    pub bytes: u64,
    /// The number of files that the catalog has.
    pub files: u64,
    /// True if the catalog may lack changes that another log has, and no admin has accepted it yet.
    pub may_lack: bool,
    cutter: BlockCutter,
}

impl Base {
    /// Begins to read the catalog in the file at `path`.
    pub fn begin(path: &Path) -> Result<Self, Error> {
        let snapshot = CatalogSnapshot::begin(path)?;
        let (change, epoch, bytes) = (snapshot.last, snapshot.epoch()?, snapshot.bytes()?);
        let (files, may_lack) = (snapshot.files()?, snapshot.may_lack()?);
        let cutter = BlockCutter::default();
        Ok(Self { snapshot: Some(snapshot), change, epoch, bytes, files, may_lack, cutter })
    }

    /// Returns the name of the pool.
    pub fn pool_name(&self) -> Result<String, Error> {
        match &self.snapshot {
            Some(snapshot) => snapshot.pool_name(),
            None => Err(Error::Bug("the base was read to its end".into())),
        }
    }

    /// Returns the next block; `None` after the last. The base of an empty catalog is one empty block.
    pub fn next_lines(&mut self) -> Result<Option<(BlockPart, Lines)>, Error> {
        // One block more than is given is read, so that it is known which is the last.
        while self.cutter.full.len() < 2
            && let Some(snapshot) = &mut self.snapshot
        {
            let records = snapshot.next_records()?;
            if records.is_empty() {
                self.cutter.close();
                if self.cutter.full.is_empty() {
                    self.cutter.full.push_back(Lines::default());
                }
                self.snapshot = None;
            }
            self.cutter.add(&records)?;
        }
        let Some(lines) = self.cutter.full.pop_front() else { return Ok(None) };
        let is_last = self.snapshot.is_none() && self.cutter.full.is_empty();
        Ok(Some((if is_last { BlockPart::BaseEnd } else { BlockPart::Base }, lines)))
    }
}

/// A sealed block, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The sequence number of the block.
    pub sequence: u64,
    /// The name of the block.
    pub name: ChunkName,
    /// The bytes of the block as they are stored.
    pub bytes: Vec<u8>,
}

/// A sealer of blocks, each of which names the one before.
pub struct Sealer {
    /// The key that seals the blocks.
    pub key: RecoveryKey,
    /// The pool whose blocks these are, by the fingerprint of its authority.
    pub pool: Digest,
    /// The epoch of the manager.
    pub epoch: Epoch,
    /// The number of this write in the epoch; 0 in files.
    pub attempt: u64,
    /// The wall time of the write, for people.
    pub wall_ms: i64,
    /// The position after the last block; `None` before a generation's first.
    pub position: Option<Position>,
    /// The number of a generation's first block.
    pub first: u64,
    /// The number that the manager drew at its start; 0 in files.
    pub start: u64,
    /// The number of files that the catalog has.
    pub files: u64,
    /// True for the base of a catalog that may lack changes which another log has.
    pub may_lack: bool,
}

impl Sealer {
    /// Makes the sealer of a copy in a file, which goes on after `position` or begins there.
    pub fn of_file(
        key: RecoveryKey,
        pool: Digest,
        epoch: Epoch,
        wall_ms: i64,
        position: Option<Position>,
    ) -> Self {
        let (attempt, first, start, files, may_lack) = (0, 1, 0, 0, false);
        Self { key, pool, epoch, attempt, wall_ms, position, first, start, files, may_lack }
    }

    /// Seals the next block.
    pub fn seal(
        &mut self,
        part: BlockPart,
        lines: &Lines,
        entropy: &dyn Entropy,
    ) -> Result<Sealed, Error> {
        let (epoch, attempt, wall_ms) = (self.epoch, self.attempt, self.wall_ms);
        let (sequence, generation, before) = match &self.position {
            Some(position) => (position.sequence + 1, position.generation, Some(position.last)),
            None => (self.first, self.first, None),
        };
        let (start, files, may_lack) = (self.start, self.files, self.may_lack);
        let header = Header {
            sequence,
            generation,
            part,
            before,
            epoch,
            attempt,
            wall_ms,
            start,
            files,
            may_lack,
        };
        let text = text(&header, lines)?;
        let bytes = self.key.seal_record(&self.pool, sequence, text, entropy);
        let name = ChunkName::of(&bytes);
        let before = self.position.take();
        let mut position = match before {
            Some(position) => Position { sequence, last: name, epoch, attempt, ..position },
            None => Position::first(self.key.name(), sequence, name, epoch, attempt, wall_ms),
        };
        let extent = if part == BlockPart::Log { &mut position.log } else { &mut position.base };
        extent.add_block(lines.count, bytes.len() as u64);
        self.position = Some(position);
        Ok(Sealed { sequence, name, bytes })
    }
}

/// Returns the plaintext of a block.
fn text(header: &Header, lines: &Lines) -> Result<Vec<u8>, Error> {
    let mut text = serde_json::to_vec(header).map_err(|why| Error::Bug(why.to_string()))?;
    text.push(b'\n');
    text.extend_from_slice(&lines.text);
    Ok(text)
}

/// Reads a block's header, which must have the number it was sealed with.
pub fn header(sequence: u64, text: &[u8]) -> Result<Header, BadBlock> {
    let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let header: Header = serde_json::from_slice(first).map_err(|why| BadBlock(why.to_string()))?;
    if header.sequence != sequence {
        return Err(BadBlock("it has another number than it was sealed with".into()));
    }
    Ok(header)
}

/// Reads a block's records.
pub fn records(text: &[u8]) -> impl Iterator<Item = Result<Record, BadBlock>> {
    let lines = text.split(|byte| *byte == b'\n').skip(1).filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).map_err(|why| BadBlock(why.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::entropy::SystemEntropy;

    fn record(n: u64) -> Record {
        Record::SpaceRemoved { name: format!("lab-{n}") }
    }

    #[test]
    fn log_block_binds_its_number() {
        let said: Vec<Record> = (1..4).map(record).collect();
        let cut = cut(&said).expect("cut");
        assert_eq!((cut.len(), cut[0].count), (1, 3));
        let (key, pool) = (RecoveryKey::generate(&SystemEntropy), Digest([7; 32]));
        let (epoch, position) = (Epoch(2), None);
        let (attempt, wall_ms, first, start, files, may_lack) = (3, 1, 5, 77, 9, false);
        let mut sealer = Sealer {
            key: key.clone(),
            pool,
            epoch,
            attempt,
            wall_ms,
            position,
            first,
            start,
            files,
            may_lack,
        };
        let base =
            sealer.seal(BlockPart::BaseEnd, &Lines::default(), &SystemEntropy).expect("sealed");
        let sealed = sealer.seal(BlockPart::Log, &cut[0], &SystemEntropy).expect("sealed");
        let (sequence, text) = key.open_record(&pool, &sealed.bytes).expect("opened");
        let expected = Header {
            sequence: 6,
            generation: 5,
            part: BlockPart::Log,
            before: Some(base.name),
            epoch,
            attempt,
            wall_ms,
            start,
            files,
            may_lack,
        };
        assert_eq!((sequence, header(6, &text)), (6, Ok(expected)));
        assert!(header(7, &text).is_err());
        let read: Vec<Record> = records(&text).collect::<Result<_, _>>().expect("records");
        assert_eq!(read, said);
        assert!(records(&text[..text.len() - 3]).any(|record| record.is_err()), "cut");
        let position = sealer.position.expect("after two blocks");
        assert_eq!((position.base.blocks, position.log.lines), (1, 3));
        assert_eq!((position.begun_ms, position.log.bytes), (1, sealed.bytes.len() as u64));
    }

    #[test]
    fn blocks_are_cut_before_they_outgrow_a_chunk() {
        let mut cutter = BlockCutter::default();
        while cutter.full.is_empty() {
            cutter.add(&[record(1)]).expect("added");
        }
        let full = cutter.finish();
        assert_eq!(full.len(), 1);
        assert!((FULL..4 << 20).contains(&full[0].text.len()));
    }
}
