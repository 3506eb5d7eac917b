//! The copies that count at a donor, by name and in memory, so that the donor's list is compared with them without the
//! catalog.
//!
//! Names that are adjacent in a donor's list are far apart in the index of all names: with a thousand donors, each
//! name that is looked up costs a page of a file that no cache holds. In the order of their numbers, the copies of a
//! donor are read from few pages, because files were committed whole.

use crate::Error;
use crate::chunks::{placements, unlisted::start};
use crate::sql::Tx;
use potluck_core::ids::{ChunkId, DonorId};
use potluck_wire::control::Holding;

/// The copies that count at a donor, or the first of them. Only eight bytes of each name are kept: another chunk is
/// taken for a given copy with a probability of 2^-64.
#[derive(Debug, Default)]
pub struct CountedCopies {
    /// The copies that each step read, in the order of names.
    runs: Vec<Vec<(u64, ChunkId)>>,
}

impl CountedCopies {
    /// Returns the number of the copies.
    pub fn count(&self) -> usize {
        self.runs.iter().map(Vec::len).sum()
    }

    /// Splits what a donor lists into the numbers of chunks that count there, and the other chunks, for which the
    /// catalog is to be asked.
    pub fn part(&self, listed: Vec<Holding>) -> (Vec<ChunkId>, Vec<Holding>) {
        let mut known = Vec::with_capacity(listed.len());
        let mut others = Vec::new();
        for holding in listed {
            match self.find(start(&holding.name)) {
                Some(chunk) => known.push(chunk),
                None => others.push(holding),
            }
        }
        (known, others)
    }

    fn find(&self, start: u64) -> Option<ChunkId> {
        self.runs.iter().find_map(|run| {
            let at = run.binary_search_by_key(&start, |(start, _)| *start).ok()?;
            run.get(at).map(|(_, chunk)| *chunk)
        })
    }

    pub(crate) fn add(&mut self, run: CountedRun) {
        self.runs.push(run.copies);
    }
}

/// The copies that count at a donor, as far as one step read them.
pub(crate) struct CountedRun {
    copies: Vec<(u64, ChunkId)>,
    /// The last chunk of this step, after which the next one begins; `None` at the end.
    pub next: Option<ChunkId>,
}

/// Reads up to `limit` of the copies that count at a donor, after the chunk `after`.
pub(crate) fn run(
    db: &Tx,
    donor: DonorId,
    after: ChunkId,
    limit: usize,
) -> Result<CountedRun, Error> {
    let read = placements::names_counted_at(db, donor, after, limit)?;
    let next = read.last().filter(|_| read.len() == limit).map(|(chunk, _)| *chunk);
    let mut copies: Vec<_> = read.iter().map(|(chunk, name)| (start(name), *chunk)).collect();
    copies.sort_unstable();
    Ok(CountedRun { copies, next })
}
