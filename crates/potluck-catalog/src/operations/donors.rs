//! Operations on the facts kept about donors, and on the chunks that they hold.

use crate::chunks::{
    counted_copies::{self, CountedCopies},
    placements::{self, Compared, HeldAt, ToldCopies},
    referrers::{self, Referrers},
    unused_chunks, {self, CatalogChunk},
};
use crate::log::{apply, records::Record};
use crate::pool_records::{
    donors, notes,
    stored_donor::{Goal, StoredDonor},
};
use crate::sql::Tx;
use crate::{Catalog, Durability, Error};
use potluck_core::chunk::{ChunkName, PARTS};
use potluck_core::ids::{ChunkId, DonorId};
use potluck_pool::{CircuitBreaker, UnlistedCopies};
use potluck_wire::addresses::Addresses;
use potluck_wire::control::Holding;
use std::sync::Arc;

/// The most rows of a donor's copies that are read in one step.
const PAGE_COPIES: usize = 65_536;

/// The most copies of a donor's report that one job of the writer writes down, which takes some ten milliseconds.
const TOLD_PER_JOB: usize = 1024;

/// A fact about a donor that outlives the manager's term.
#[derive(Debug, Clone)]
pub enum DonorNote {
    /// The addresses of the donor, for a manager that starts elsewhere.
    At(Addresses),
    /// The pool's time, in milliseconds, until which the donor is announced away; `None` if it is not away.
    AwayUntil(Option<u64>),
    /// The goal of the donor's give-back, while it gives space back; `None` if it lends its space.
    GivesBack(Option<Goal>),
    /// The reason why the donor is not trusted; `None` if it is trusted.
    Quarantined(Option<String>),
}

/// The consequences of a donor's report.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WrittenDown {
    /// The numbers of the unused chunks that the donor reported, in the order of its report.
    pub taken_in: Vec<ChunkId>,
    /// True if a copy that counted, and that a file needs, is not at the donor.
    pub lost: bool,
    /// The names of chunks that files need and whose copies at the donor counted, but are spoiled or cannot be read.
    pub spoiled: Vec<ChunkName>,
    /// The number of copies that are gone from the donor, of chunks that no file uses.
    pub unused_gone: u64,
    /// The names of chunks that the donor says it stored by order, but of which no copy counts at it.
    pub not_there: Vec<ChunkName>,
}

impl Catalog {
    /// Remembers a fact about a donor for the next term of the manager.
    pub async fn note_donor(&self, donor: DonorId, note: DonorNote) -> Result<(), Error> {
        // An address need not be on disk, for the donor says it again when it registers.
        let durability = match note {
            DonorNote::At(_) => Durability::Process,
            _ => Durability::Disk,
        };
        let note = move |db: &_| {
            change(db, donor, |known| match note.clone() {
                DonorNote::At(addresses) => known.addresses = addresses,
                DonorNote::AwayUntil(until_ms) => known.away_until_ms = until_ms,
                DonorNote::GivesBack(goal) => known.giving = goal,
                DonorNote::Quarantined(why) => known.quarantined = why,
            })
        };
        self.write(durability, note).await
    }

    /// Remembers the reason why an admin paused repair, if one did, and the donors for which the circuit breaker paused
    /// it.
    pub async fn note_repair(
        &self,
        paused: Option<String>,
        circuit_breaker: CircuitBreaker,
    ) -> Result<(), Error> {
        let note = move |db: &_| {
            let note = |key: &str, value| apply::write(db, Record::Note { key: key.into(), value });
            note(notes::REPAIR_PAUSED, paused.clone())?;
            let CircuitBreaker { tripped, declared_dead } = &circuit_breaker;
            note(notes::REPAIR_TRIPPED, notes::of_donors(tripped)?)?;
            note(notes::REPAIR_DECLARED_DEAD, notes::of_donors(declared_dead)?)
        };
        self.write(Durability::Disk, note).await
    }

    /// Compares the chunks that a donor lists with those that are counted at it.
    pub async fn compare(&self, donor: DonorId, holdings: Vec<Holding>) -> Result<Compared, Error> {
        self.read(move |db| placements::compare(db, donor, &holdings)).await
    }

    /// Returns the copies that count at a donor, up to about `most` of them. The donor's list is compared with these
    /// first, so that names are looked up in the catalog only where the two differ. They are read page by page, each of
    /// its own moment; the donor's heartbeats tell of changes meanwhile, or its next list shows them.
    pub async fn counted_at(&self, donor: DonorId, most: usize) -> Result<CountedCopies, Error> {
        let mut counted = CountedCopies::default();
        let mut after = Some(ChunkId::FIRST);
        while let Some(from) = after.filter(|_| counted.count() < most) {
            let page = move |db: &_| counted_copies::run(db, donor, from, PAGE_COPIES);
            let run = self.read(page).await?;
            after = run.next;
            counted.add(run);
        }
        Ok(counted)
    }

    /// Writes down what a donor told of its copies, in jobs of [`TOLD_PER_JOB`] copies one after the other. A caller
    /// that gets an error in between tells all of it again. A report with chunks that no session had offered survives a
    /// power cut, because a donor reports such a chunk only once.
    pub async fn tell(
        &self,
        donor: DonorId,
        mut told: ToldCopies,
        now_ms: u64,
    ) -> Result<WrittenDown, Error> {
        let durability =
            if told.unused.is_empty() { Durability::Process } else { Durability::Disk };
        let mut written = WrittenDown::default();
        while let Some(part) = told.next_part(TOLD_PER_JOB) {
            let tell = move |db: &_| {
                let taken_in = unused_chunks::take_in(db, &part.unused, now_ms)?;
                Ok((taken_in, placements::tell(db, donor, &part, now_ms)?))
            };
            let (taken_in, changes) = self.write(durability, tell).await?;
            written.taken_in.extend(taken_in);
            written.lost |= changes.lost;
            written.unused_gone += changes.unused_gone;
            written.spoiled.extend(changes.spoiled);
            written.not_there.extend(changes.not_there);
        }
        Ok(written)
    }

    /// Reads a page of the chunks that are counted at a donor, after `after`. Returns the last chunk of the page,
    /// `None` at the end, and the names of those chunks that are not among the `listed`, which must be in order.
    pub async fn unlisted_at(
        &self,
        donor: DonorId,
        listed: Arc<Vec<ChunkId>>,
        after: ChunkId,
        limit: usize,
    ) -> Result<(Option<ChunkId>, Vec<ChunkName>), Error> {
        let page = move |db: &_| {
            let mut page = placements::counted_at(db, donor, after, limit)?;
            let last = page.last().copied();
            page.retain(|chunk| listed.binary_search(chunk).is_err());
            Ok((last, placements::names_of(db, &page)?))
        };
        self.read(page).await
    }

    /// Counts copies at a donor as missing, or forgets them if its store is new, and returns how many copies were
    /// given. Returns `None`, and changes nothing, if one of them has arrived since they were found missing.
    ///
    /// A commit that proves a copy to be there either told the pool before this job looks, or comes after the job and
    /// counts the copy again.
    pub async fn mark_missing(
        &self,
        donor: DonorId,
        unlisted: UnlistedCopies,
    ) -> Result<Option<usize>, Error> {
        let mark = move |db: &_| {
            if !unlisted.is_current() {
                return Ok(None);
            }
            for name in &unlisted.names {
                let Some(chunk) = chunks::get(db, name)? else { continue };
                match unlisted.new_store {
                    true => placements::gone(db, donor, chunk.id)?,
                    false => placements::missing(db, donor, chunk.id)?,
                }
            }
            Ok(Some(unlisted.names.len()))
        };
        self.write(Durability::Process, mark).await
    }

    /// Returns the sums of what a donor holds, added up page by page, each of its own moment: good enough for a plan,
    /// and wrong by what changed meanwhile.
    pub async fn held_at(&self, donor: DonorId) -> Result<HeldAt, Error> {
        let mut held = HeldAt { used_chunks: 0, bytes_by_part: vec![0; PARTS as usize] };
        let mut after = Some(ChunkId::FIRST);
        while let Some(from) = after {
            let page = move |db: &_| {
                let mut held = held.clone();
                Ok((placements::add_held_at(db, donor, from, PAGE_COPIES, &mut held)?, held))
            };
            (after, held) = self.read(page).await?;
        }
        Ok(held)
    }

    /// Returns up to `count` of a donor's copies that count and that files use, spread over all of them; `offset` is
    /// the random number that decides which.
    pub async fn sample(
        &self,
        donor: DonorId,
        count: usize,
        offset: u64,
    ) -> Result<Vec<Holding>, Error> {
        self.read(move |db| placements::sample(db, donor, count, offset)).await
    }

    /// Returns the facts about those of the given chunks that the catalog knows, each as often as it is named.
    pub async fn chunks(&self, names: Vec<ChunkName>) -> Result<Vec<CatalogChunk>, Error> {
        let look = move |db: &_| {
            let known = names.iter().map(|name| chunks::facts(db, name));
            known.filter_map(Result::transpose).collect()
        };
        self.read(look).await
    }

    /// Returns a page of the versions that need copies at a donor, lost copies included: those of at most `limit`
    /// chunks after `after`.
    pub async fn referrers_at(
        &self,
        donor: DonorId,
        after: ChunkId,
        limit: usize,
    ) -> Result<Referrers, Error> {
        self.read(move |db| referrers::of_copies_at(db, donor, after, limit)).await
    }
}

/// Changes what is remembered about a donor.
pub(crate) fn change(
    db: &Tx,
    donor: DonorId,
    change: impl FnOnce(&mut StoredDonor),
) -> Result<(), Error> {
    let nothing = || StoredDonor { donor, ..StoredDonor::default() };
    let mut known = donors::get(db, donor)?.unwrap_or_else(nothing);
    change(&mut known);
    apply::write(db, Record::Donor(known))
}
