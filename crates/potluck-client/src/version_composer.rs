//! The composing of a version from contributions: whole rows are taken over by the names of their chunks, other rows
//! are read and written.

use crate::contribution::{ByteSource, Composition};
use crate::file::File;
use crate::writer::Writer;
use futures_util::stream::{StreamExt, TryStreamExt};
use potluck_wire::error::Failure;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// The number of bytes of a block. Rows that are not taken over whole are read in blocks.
const BLOCK: u64 = 256 << 10;
/// The most blocks that are kept between rows: where writers wrote in turn, a block has pieces of many rows.
const BLOCKS_KEPT: usize = 128;
/// The most blocks that are read at a time.
const READ_AT_ONCE: usize = 16;

/// The composer of a version, which feeds its writer row by row.
pub struct Composer {
    composition: Composition,
    files: Vec<File>,
    before: Option<File>,
    blocks: Blocks,
    unit: u64,
}

/// The place of a block: the number of its contribution, or `None` for the version before, and its number there.
type BlockPlace = (Option<usize>, u64);

/// The blocks that were read last.
#[derive(Default)]
struct Blocks {
    kept: HashMap<BlockPlace, Arc<Vec<u8>>>,
    order: VecDeque<BlockPlace>,
}

/// A part of a row, and the source of its bytes.
struct Piece {
    range: Range<u64>,
    file: Option<usize>,
    from: u64,
}

impl Composer {
    /// Makes a composer of rows of `unit` bytes; `files` are the contributions by their numbers, beside the version
    /// before.
    pub fn new(
        composition: Composition,
        files: Vec<File>,
        before: Option<File>,
        unit: u64,
    ) -> Self {
        Self { composition, files, before, blocks: Blocks::default(), unit }
    }

    /// Writes the whole version with `writer`, and finishes it.
    ///
    /// Errors: those of reading and of writing.
    pub async fn write(mut self, mut writer: Writer) -> Result<(), Failure> {
        let (mut at, size) = (0, self.composition.size());
        // A row that was read while one before it was written, with its offset in the file.
        let mut ahead: Option<(u64, Vec<u8>)> = None;
        while at < size {
            let (run, source) = self.composition.run(at);
            let len = run.end - run.start;
            let hole_len = match (source, &self.before) {
                (ByteSource::Contribution { number, from }, _) => {
                    self.files[number].hole_in(&(from..from + len)).await?
                }
                (ByteSource::Before, Some(before)) => before.hole_in(&run).await?,
                (ByteSource::Before | ByteSource::Zeros, _) => len,
            };
            // What is less than a row is read as other bytes are, with those beside it.
            let hole = if run.end == size { hole_len } else { hole_len / self.unit * self.unit };
            if hole >= self.unit {
                writer.write_zeros(hole).await?;
                at += hole;
                continue;
            }
            let kept = match (source, &self.before) {
                (ByteSource::Contribution { number, from }, _) => {
                    writer.keep_rows(&self.files[number], from..from + len).await?
                }
                (ByteSource::Before, Some(before)) => writer.keep_rows(before, run).await?,
                (ByteSource::Before | ByteSource::Zeros, _) => 0,
            };
            at += kept;
            if kept > 0 {
                continue;
            }
            let end = size.min(at + self.unit);
            let bytes = match ahead.take_if(|(start, _)| *start == at) {
                Some((_, bytes)) => bytes,
                None => self.row(at..end).await?,
            };
            at = end;
            let next = if ahead.is_none() { self.next_mixed_row(at) } else { None };
            let reading = async {
                match next {
                    Some(row) => Ok::<_, Failure>(Some((row.start, self.row(row).await?))),
                    None => Ok(ahead),
                }
            };
            let ((), read) = tokio::try_join!(writer.write_owned(bytes), reading)?;
            ahead = read;
        }
        writer.finish().await.map(drop)
    }

    /// Returns the first row from the row at `at` on that has bytes of several sources, or is the short row at the end:
    /// such a row cannot be taken over whole.
    fn next_mixed_row(&self, mut at: u64) -> Option<Range<u64>> {
        let size = self.composition.size();
        while at < size {
            let (run, _) = self.composition.run(at);
            let whole_rows = (run.end - at) / self.unit * self.unit;
            if whole_rows == 0 {
                return Some(at..size.min(at + self.unit));
            }
            at += whole_rows;
        }
        None
    }

    /// Returns the bytes of a row that is not taken over whole, from all its sources; bytes without a source are zeros.
    async fn row(&mut self, row: Range<u64>) -> Result<Vec<u8>, Failure> {
        let mut pieces = Vec::new();
        let mut at = row.start;
        while at < row.end {
            let (run, source) = self.composition.run(at);
            let range = at..run.end.min(row.end);
            at = range.end;
            match source {
                ByteSource::Contribution { number, from } => {
                    pieces.push(Piece { range, file: Some(number), from });
                }
                ByteSource::Before => pieces.push(Piece { from: range.start, range, file: None }),
                ByteSource::Zeros => {}
            }
        }
        let numbers = |piece: &Piece| {
            let last = (piece.from + (piece.range.end - piece.range.start) - 1) / BLOCK;
            let file = piece.file;
            (piece.from / BLOCK..=last).map(move |number| (file, number))
        };
        let needed: BTreeSet<BlockPlace> = pieces.iter().flat_map(numbers).collect();
        let blocks = self.read(needed.into_iter()).await?;
        let mut bytes = vec![0; (row.end - row.start) as usize];
        for Piece { range, file, from } in pieces {
            let (mut at, mut from) = (range.start, from);
            while at < range.end {
                let block = &blocks[&(file, from / BLOCK)];
                let skip = (from % BLOCK) as usize;
                let len = (block.len() - skip).min((range.end - at) as usize);
                let to = (at - row.start) as usize;
                bytes[to..to + len].copy_from_slice(&block[skip..skip + len]);
                (at, from) = (at + len as u64, from + len as u64);
            }
        }
        Ok(bytes)
    }

    /// Returns these blocks; those that are not kept are read from donors.
    async fn read(
        &mut self,
        places: impl Iterator<Item = BlockPlace>,
    ) -> Result<HashMap<BlockPlace, Arc<Vec<u8>>>, Failure> {
        let mut blocks = HashMap::new();
        let mut missing = Vec::new();
        for place in places {
            match self.blocks.kept.get(&place) {
                Some(block) => drop(blocks.insert(place, Arc::clone(block))),
                None => missing.push(place),
            }
        }
        let (files, before) = (&self.files, &self.before);
        let read = |place: BlockPlace| async move {
            let file = match place.0 {
                Some(number) => Some(&files[number]),
                None => before.as_ref(),
            };
            let bytes = match file {
                Some(file) => file.read_at(place.1 * BLOCK, BLOCK as usize).await?,
                None => Vec::new(),
            };
            Ok::<_, Failure>((place, Arc::new(bytes)))
        };
        let read = futures_util::stream::iter(missing).map(read).buffer_unordered(READ_AT_ONCE);
        let read: Vec<_> = read.try_collect().await?;
        for (place, block) in read {
            self.blocks.kept.insert(place, Arc::clone(&block));
            self.blocks.order.push_back(place);
            blocks.insert(place, block);
        }
        while self.blocks.order.len() > BLOCKS_KEPT {
            let oldest = self.blocks.order.pop_front();
            oldest.and_then(|place| self.blocks.kept.remove(&place));
        }
        Ok(blocks)
    }
}
