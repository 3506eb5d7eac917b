//! The contribution of one writer to a file that several write: its bytes in the order in which they came, and behind
//! them an index of where they belong (docs/format/contribution.md).

use potluck_core::byte_ranges::ByteRanges;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::collections::BTreeMap;
use std::ops::Range;

/// The last bytes of each contribution.
const MAGIC: [u8; 8] = *b"POTCONT1";
/// Bytes of an extent in the index.
const EXTENT: usize = 24;
/// Bytes of what is behind the extents.
pub const FOOTER: usize = 24;
/// The most extents of a contribution: 24 MiB of index.
pub const MOST_EXTENTS: usize = 1 << 20;

/// Bytes of a contribution that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrittenExtent {
    /// Where they belong in the file.
    pub at: u64,
    /// How many they are.
    pub len: u64,
    /// Where they are in the contribution.
    pub from: u64,
}

impl WrittenExtent {
    /// The bytes that both have.of the file.
    pub fn range(&self) -> Range<u64> {
        self.at..self.at + self.len
    }
}

/// Where the bytes of a contribution belong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Index {
    /// The extents in the order in which they were written: a later one lies over those before.
    pub extents: Vec<WrittenExtent>,
    /// The least size of the file.
    pub size: u64,
}

impl Index {
    /// The index as it is written at the end of a contribution.
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

    /// Bytes of the extents of a contribution with this footer, and the size that it asks for.
    ///
    /// Errors: [`ErrorKind::Integrity`] where it is none.
    pub fn of_footer(footer: &[u8]) -> Result<(usize, u64), Failure> {
        let [count, size, magic] = footer.as_chunks::<8>().0 else { return Err(damaged()) };
        let count = u64::from_le_bytes(*count);
        if *magic != MAGIC || count > MOST_EXTENTS as u64 {
            return Err(damaged());
        }
        Ok((count as usize * EXTENT, u64::from_le_bytes(*size)))
    }

    /// The index whose extents are these `bytes`, behind `len` bytes of content.
    ///
    /// Errors: [`ErrorKind::Integrity`] where extents lie outside.
    pub fn decode(bytes: &[u8], size: u64, len: u64) -> Result<Self, Failure> {
        let numbers: Vec<u64> =
            bytes.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number)).collect();
        let extents = numbers.as_chunks::<3>().0.iter();
        let extents: Vec<WrittenExtent> = extents
            .map(|[at, len, from]| WrittenExtent { at: *at, len: *len, from: *from })
            .collect();
        let fits = |extent: &WrittenExtent| {
            let WrittenExtent { at, len: bytes, from } = *extent;
            at.checked_add(bytes).is_some() && from.checked_add(bytes).is_some_and(|end| end <= len)
        };
        match extents.iter().all(fits) {
            true => Ok(Self { extents, size }),
            false => Err(damaged()),
        }
    }
}

fn damaged() -> Failure {
    let what = "what a writer contributed to a shared file cannot be read";
    Failure::new(ErrorKind::Integrity, code::WRONG_BYTES, what)
        .hint("give the shared file up (`potluck shared abort`), and write it anew")
}

/// Where bytes of a new version come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteSource {
    /// A contribution, from this place on.
    Contribution { number: usize, from: u64 },
    /// The same place of the version before.
    Before,
    /// Nobody wrote them, and the version before does not have them.
    Zeros,
}

/// Two contributions that have bytes in common.
#[derive(Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The bytes that both have.
    pub range: Range<u64>,
    /// The numbers of the contributions.
    pub numbers: (usize, usize),
}

/// The byte ranges that a new version is made of, and where each comes from.
#[derive(Debug, Default)]
pub struct Composition {
    /// The runs of contributed bytes, by where each begins: where it ends, whose it is, and where it is there.
    runs: BTreeMap<u64, (u64, usize, u64)>,
    claims: ByteRanges<usize>,
    before: u64,
    size: u64,
}

impl Composition {
    /// A version that is made of one before of so many bytes.
    pub fn of_version(before: u64) -> Self {
        Self { before, size: before, ..Self::default() }
    }

    /// Bytes of the new version.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Adds a contribution, whose bytes must be those of no other.
    pub fn add(&mut self, number: usize, index: &Index) -> Result<(), Overlap> {
        self.size = self.size.max(index.size);
        for extent in index.extents.iter().filter(|extent| extent.len > 0) {
            let range = extent.range();
            if let Some((range, other)) = self.claims.taken(&range, number) {
                return Err(Overlap { range, numbers: (other, number) });
            }
            self.claims.add(range.clone(), number);
            self.lay(extent, number);
            self.size = self.size.max(range.end);
        }
        Ok(())
    }

    /// Puts an extent over what is there.
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

    /// The bytes that both have.from `at` on that come from one source, and that source.
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
