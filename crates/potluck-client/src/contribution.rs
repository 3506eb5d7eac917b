//! The contribution of one writer to a file that several write: its bytes in the order in which they came, and behind
//! them an index of where they belong (docs/format/contribution.md).

use potluck_core::byte_ranges::ByteRanges;
use potluck_core::recipe::LARGEST_FILE;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::BTreeMap;
use std::ops::Range;

/// The magic bytes with which each contribution ends.
const MAGIC: [u8; 8] = *b"POTCONT1";
/// The size of an extent in the index, in bytes.
const EXTENT: usize = 24;
/// The size of the footer behind the extents, in bytes.
pub const FOOTER: usize = 24;
/// The most extents of one contribution (24 MiB of index), and of all contributions to one version together.
pub const MOST_EXTENTS: usize = 1 << 20;

/// An extent: bytes that lie together both in the file and in the contribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenExtent {
    /// The offset in the file where the bytes belong.
    pub at: u64,
    /// The number of bytes.
    pub len: u64,
    /// The offset of the bytes in the contribution.
    pub from: u64,
}

impl WrittenExtent {
    /// Returns the range of the file that the extent covers.
    pub fn range(&self) -> Range<u64> {
        self.at..self.at + self.len
    }

    /// Returns whether `next` begins where this extent ends, both in the file and in the contribution.
    pub fn adjoins(&self, next: &Self) -> bool {
        self.at + self.len == next.at && self.from + self.len == next.from
    }
}

/// The index of a contribution: which bytes of the file it has, and where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Index {
    /// The extents in the order in which they were written: a later one hides earlier ones that it overlaps.
    pub extents: Vec<WrittenExtent>,
    /// The least size that the file is to have.
    pub size: u64,
}

impl Index {
    /// Encodes the index as it is written at the end of a contribution.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.extents.len() * EXTENT + FOOTER);
        for WrittenExtent { at, len, from } in &self.extents {
            [at, len, from].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        }
        bytes.extend((self.extents.len() as u64).to_le_bytes());
        bytes.extend(self.size.to_le_bytes());
        bytes.extend(MAGIC);
        bytes
    }

    /// Reads a footer: returns the number of bytes of the extents before it, and the least size that the contribution
    /// asks for.
    ///
    /// Errors: [`ErrorKind::Integrity`] where `footer` is no footer of a contribution.
    pub fn of_footer(footer: &[u8]) -> Result<(usize, u64), Failure> {
        let [count, size, magic] = footer.as_chunks::<8>().0 else { return Err(damaged()) };
        let count = u64::from_le_bytes(*count);
        if *magic != MAGIC || count > MOST_EXTENTS as u64 {
            return Err(damaged());
        }
        Ok((count as usize * EXTENT, u64::from_le_bytes(*size)))
    }

    /// Decodes the index whose extents are these `bytes`, behind `len` bytes of content.
    ///
    /// Errors: [`ErrorKind::Integrity`] where extents lie outside of the content, or they or `size` beyond the largest
    /// file.
    pub fn decode(bytes: &[u8], size: u64, len: u64) -> Result<Self, Failure> {
        let numbers: Vec<u64> =
            bytes.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number)).collect();
        let extents = numbers.as_chunks::<3>().0.iter();
        let extents: Vec<WrittenExtent> = extents
            .map(|[at, len, from]| WrittenExtent { at: *at, len: *len, from: *from })
            .collect();
        let fits = |extent: &WrittenExtent| {
            let WrittenExtent { at, len: bytes, from } = *extent;
            let is_of_file = at.checked_add(bytes).is_some_and(|end| end <= LARGEST_FILE);
            is_of_file && from.checked_add(bytes).is_some_and(|end| end <= len)
        };
        match size <= LARGEST_FILE && extents.iter().all(fits) {
            true => Ok(Self { extents, size }),
            false => Err(damaged()),
        }
    }
}

fn damaged() -> Failure {
    let what = "what a writer contributed to a shared file cannot be read";
    Failure::new(ErrorKind::Integrity, code::WRONG_BYTES, what)
        .hint("give the shared file up (`potluck write-shared abort`), and write it anew")
}

/// The source of a range of bytes of a new version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteSource {
    /// The contribution with this number has the bytes, from the offset `from` on.
    Contribution { number: usize, from: u64 },
    /// The bytes are those that the version before has at this place.
    Before,
    /// No writer wrote the bytes, and the version before does not have them.
    Zeros,
}

/// The reason why no version can be made of the contributions.
#[derive(Debug, PartialEq, Eq)]
pub enum NotComposed {
    /// Two contributions have bytes in common.
    Overlap {
        /// The range of bytes that both contributions have.
        range: Range<u64>,
        /// The numbers of the two contributions.
        numbers: (usize, usize),
    },
    /// The contributions have more extents than [`MOST_EXTENTS`] together.
    TooManyPieces {
        /// The number of the contribution that has the most extents.
        number: usize,
    },
}

/// The byte ranges that a new version is made of, and where each comes from.
#[derive(Debug, Default)]
pub struct Composition {
    /// Runs of contributed bytes by their start: their end, the number of their contribution, and their offset there.
    runs: BTreeMap<u64, (u64, usize, u64)>,
    claims: ByteRanges<usize>,
    /// The number of extents of each contribution.
    extents: Vec<usize>,
    before: u64,
    size: u64,
}

impl Composition {
    /// Begins the composition of a version that replaces one of `before` bytes.
    pub fn of_version(before: u64) -> Self {
        Self { before, size: before, ..Self::default() }
    }

    /// Returns the size of the new version in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Adds the next contribution, which may have no bytes in common with those added earlier.
    pub fn add(&mut self, index: &Index) -> Result<(), NotComposed> {
        let number = self.extents.len();
        self.extents.push(index.extents.len());
        if self.extents.iter().sum::<usize>() > MOST_EXTENTS {
            let most = self.extents.iter().enumerate().max_by_key(|(_, count)| **count);
            return Err(NotComposed::TooManyPieces { number: most.map_or(number, |(at, _)| at) });
        }
        self.size = self.size.max(index.size);
        for extent in index.extents.iter().filter(|extent| extent.len > 0) {
            let range = extent.range();
            if let Some((range, other)) = self.claims.taken(&range, number) {
                return Err(NotComposed::Overlap { range, numbers: (other, number) });
            }
            self.claims.add(range.clone(), number);
            self.lay(extent, number);
            self.size = self.size.max(range.end);
        }
        Ok(())
    }

    /// Places an extent over whatever it overlaps.
    fn lay(&mut self, extent: &WrittenExtent, number: usize) {
        let Range { start, end } = extent.range();
        let under = self.runs.range(..end).rev().take_while(|(_, (run_end, ..))| *run_end > start);
        let under: Vec<(u64, (u64, usize, u64))> = under.map(|(at, run)| (*at, *run)).collect();
        for (at, (run_end, of, from)) in under {
            self.runs.remove(&at);
            if at < start {
                self.runs.insert(at, (start, of, from));
            }
            if run_end > end {
                self.runs.insert(end, (run_end, of, from + (end - at)));
            }
        }
        // Extents that go on where others end are read together.
        let before = self.runs.range(..start).next_back();
        let goes_on = before.filter(|(at, (run_end, of, from))| {
            *run_end == start && *of == number && from + (start - **at) == extent.from
        });
        match goes_on.map(|(at, (_, _, from))| (*at, *from)) {
            Some((at, from)) => self.runs.insert(at, (end, number, from)),
            None => self.runs.insert(start, (end, number, extent.from)),
        };
    }

    /// Returns the run of bytes from `at` on that come from one source, and that source.
    pub fn run(&self, at: u64) -> (Range<u64>, ByteSource) {
        let last = self.runs.range(..=at).next_back();
        if let Some((start, (end, number, from))) = last.filter(|(_, (end, ..))| *end > at) {
            let source = ByteSource::Contribution { number: *number, from: from + (at - start) };
            return (at..*end, source);
        }
        let next = self.runs.range(at..).next().map_or(self.size, |(start, _)| *start);
        match at < self.before {
            true => (at..next.min(self.before), ByteSource::Before),
            false => (at..next, ByteSource::Zeros),
        }
    }
}

#[cfg(test)]
mod tests;
