//! Operations on the facts kept about donors, and on the chunks that they hold.

use crate::counted_copies::{self, CountedCopies};
use crate::donors::{self, Goal};
use crate::placements::{self, Compared, CopyState, DrawnCopy, ToldCopies};
use crate::referrers::{self, Referrers};
use crate::{Catalog, Durability, Error, chunks, notes, unused_chunks};
use potluck_core::chunk::{ChunkName, PARTS};
use potluck_core::ids::{ChunkId, DonorId};
use potluck_pool::{CircuitBreaker, UnlistedCopies};
use potluck_wire::addresses::Addresses;
use potluck_wire::control::Holding;
use std::sync::Arc;

/// Rows of a donor's copies read in one step.
const PAGE_COPIES: usize = 65_536;

/// Copies that a donor told of, written down in one job of the writer: some ten milliseconds.
const TOLD_PER_JOB: usize = 1024;

/// A fact about a donor that outlives the manager's term.
#[derive(Debug)]
pub enum DonorNote {
    /// The addresses of the donor, for a manager that starts elsewhere.
    At(Addresses),
    /// It is announced away until then; `None`: it is not.
    AwayUntil(Option<u64>),
    /// It gives its space back; `None`: it lends it.
    GivesBack(Option<Goal>),
    /// It is not trusted for this reason; `None`: it is.
    Quarantined(Option<String>),
}

/// What came of a donor's report.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WrittenDown {
    /// The numbers of its unused chunks, in their order.
    pub taken_in: Vec<ChunkId>,
    /// Whether a copy that counted and that a file needs is not there.
    pub lost: bool,
    /// Copies of chunks that no file uses, which are gone.
    pub unused_gone: u64,
    /// Names of chunks that it says to have stored by order and of which no copy counts there.
    pub not_there: Vec<ChunkName>,
}

impl Catalog {
    /// Remembers a fact about a donor for the next term of the manager.
    pub async fn note_donor(&self, donor: DonorId, note: DonorNote) -> Result<(), Error> {
        // Where a donor is, it says itself when it registers again.
        let durability = match note {
            DonorNote::At(_) => Durability::Process,
            _ => Durability::Disk,
        };
        let note = move |db: &_| match &note {
            DonorNote::At(addresses) => donors::located(db, donor, addresses),
            DonorNote::AwayUntil(until_ms) => donors::announce(db, donor, *until_ms),
            DonorNote::GivesBack(goal) => donors::give_back(db, donor, goal.as_ref()),
            DonorNote::Quarantined(why) => donors::quarantine(db, donor, why.as_deref()),
        };
        self.write(durability, note).await
    }

    /// Remembers why repair is paused, if it is, and the donors that went at once.
    pub async fn note_repair(
        &self,
        paused: Option<String>,
        circuit_breaker: CircuitBreaker,
    ) -> Result<(), Error> {
        let note = move |db: &_| {
            match &paused {
                Some(why) => notes::set(db, notes::REPAIR_PAUSED, why)?,
                None => notes::clear(db, notes::REPAIR_PAUSED)?,
            }
            let CircuitBreaker { tripped, declared_dead } = &circuit_breaker;
            notes::set_donors(db, notes::REPAIR_TRIPPED, tripped)?;
            notes::set_donors(db, notes::REPAIR_DECLARED_DEAD, declared_dead)
        };
        self.write(Durability::Disk, note).await
    }

    /// Compares what a donor says it holds with what is counted at it.
    pub async fn compare(&self, donor: DonorId, holdings: Vec<Holding>) -> Result<Compared, Error> {
        self.read(move |db| placements::compare(db, donor, &holdings)).await
    }

    /// The copies that count at a donor, up to about `most` of them: what its list is compared with first, so that names are
    /// looked up in the catalog only where the two differ. They are read page by page, each of its own moment; what
    /// changes meanwhile is told of by the donor's heartbeats, or seen by its next list.
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

    /// Writes down what a donor told of its copies, in jobs of [`TOLD_PER_JOB`] one after the other. Who fails in between
    /// tells all of it again. A donor tells only once which session stored a chunk that nobody
    /// had offered: no power cut undoes that such a chunk is known.
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
            written.not_there.extend(changes.not_there);
        }
        Ok(written)
    }

    /// A page of the chunks that are counted at a donor, after `after`: the last of the page, `None` at the end,
    /// and the names of those that are not among the `listed`, which are in order.
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

    /// Counts copies at a donor as missing, or forgets them where its store is new; how many. `None` if
    /// one of them has arrived since they were found missing: then nothing is changed.
    ///
    /// A commit that proves one of them there was either told to the pool before this looks, or comes
    /// after this and counts it again.
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

    /// Chunks and bytes that are counted at a donor.
    pub async fn used_at(&self, donor: DonorId) -> Result<(u64, u64), Error> {
        self.read(move |db| placements::used_at(db, donor)).await
    }

    /// The bytes that are counted at a donor, by the part that their names are in. Added up page by page, each
    /// of its own moment: a sum to plan by, off by what changed meanwhile.
    pub async fn bytes_by_part(&self, donor: DonorId) -> Result<Vec<u64>, Error> {
        let mut bytes = vec![0_u64; PARTS as usize];
        let mut after = Some(ChunkId::FIRST);
        while let Some(from) = after {
            let page = move |db: &_| {
                let mut bytes = bytes.clone();
                let last = placements::bytes_by_part(db, donor, from, PAGE_COPIES, &mut bytes)?;
                Ok((last, bytes))
            };
            (after, bytes) = self.read(page).await?;
        }
        Ok(bytes)
    }

    /// Some of a donor's chunks, spread over all it holds.
    pub async fn sample(
        &self,
        donor: DonorId,
        count: usize,
        offset: u64,
    ) -> Result<Vec<DrawnCopy>, Error> {
        self.read(move |db| placements::sample(db, donor, count, offset)).await
    }

    /// Those of some chunks that no file needs, or that a donor has.
    pub async fn dispensable(&self, names: Vec<ChunkName>) -> Result<Vec<ChunkName>, Error> {
        let is_dispensable = |db: &_, name: &ChunkName| {
            let Some(chunk) = chunks::get(db, name)? else { return Ok(true) };
            Ok::<_, Error>(chunk.refs == 0 || !placements::holders(db, chunk.id)?.is_empty())
        };
        let select = move |db: &_| {
            let mut dispensable = Vec::new();
            for name in &names {
                if is_dispensable(db, name)? {
                    dispensable.push(*name);
                }
            }
            Ok(dispensable)
        };
        self.read(select).await
    }

    /// The stored bytes of a chunk that a donor is known to have, so that a reader may have been sent there, and whether the copy
    /// counts: one that is being deleted, because others are enough, does not.
    pub async fn held_bytes(
        &self,
        name: ChunkName,
        donor: DonorId,
    ) -> Result<Option<(u32, bool)>, Error> {
        let held = move |db: &_| {
            let Some(chunk) = chunks::get(db, &name)? else { return Ok(None) };
            let state = placements::state_of(db, chunk.id, donor)?;
            let held = state.filter(|it| matches!(it, CopyState::Here | CopyState::Leaving));
            Ok(held.map(|state| (chunk.len, state == CopyState::Here)))
        };
        self.read(held).await
    }
    /// A page of the versions that need copies at a donor, also such as it has lost: of `limit` chunks after `after`.
    pub async fn referrers_at(
        &self,
        donor: DonorId,
        after: ChunkId,
        limit: usize,
    ) -> Result<Referrers, Error> {
        self.read(move |db| referrers::of_copies_at(db, donor, after, limit)).await
    }
}
