//! Operations on the facts kept about donors, and on the chunks that they hold.

use crate::donors::{self, Goal, StoredDonor};
use crate::placements::{self, Compared, CopyState, DrawnCopy, ToldCopies};
use crate::{Catalog, Durability, Error, chunks, notes};
use potluck_core::chunk::{ChunkName, PARTS};
use potluck_core::ids::{ChunkId, DonorId};
use potluck_pool::UnlistedCopies;
use potluck_wire::addresses::Addresses;
use potluck_wire::control::Holding;
use std::collections::BTreeSet;

/// Rows of a donor's copies read in one step.
const PAGE_COPIES: usize = 65_536;

impl Catalog {
    /// The donors there are.
    pub async fn donors(&self) -> Result<Vec<StoredDonor>, Error> {
        self.read(donors::all).await
    }

    /// Remembers where a donor is, for a manager that starts elsewhere.
    pub async fn locate_donor(&self, donor: DonorId, at: Addresses) -> Result<(), Error> {
        self.write(Durability::Process, move |db| donors::located(db, donor, &at)).await
    }

    /// Remembers until when a donor is announced away; `None`: it is not.
    pub async fn announce_away(&self, donor: DonorId, until_ms: Option<u64>) -> Result<(), Error> {
        self.write(Durability::Disk, move |db| donors::announce(db, donor, until_ms)).await
    }

    /// Remembers that a donor gives its space back; `None`: that it lends it.
    pub async fn give_back(&self, donor: DonorId, goal: Option<Goal>) -> Result<(), Error> {
        self.write(Durability::Disk, move |db| donors::give_back(db, donor, goal.as_ref())).await
    }

    /// Remembers why a donor is not trusted; `None`: it is.
    pub async fn quarantine(&self, donor: DonorId, why: Option<String>) -> Result<(), Error> {
        self.write(Durability::Disk, move |db| donors::quarantine(db, donor, why.as_deref())).await
    }

    /// Remembers why repair is paused; `None`: it is not.
    pub async fn pause_repair(&self, why: Option<String>) -> Result<(), Error> {
        let note = move |db: &_| match &why {
            Some(why) => notes::set(db, notes::REPAIR_PAUSED, why),
            None => notes::clear(db, notes::REPAIR_PAUSED),
        };
        self.write(Durability::Disk, note).await
    }

    /// Remembers donors that went at once.
    pub async fn note_circuit_breaker(
        &self,
        tripped: BTreeSet<DonorId>,
        declared_dead: BTreeSet<DonorId>,
    ) -> Result<(), Error> {
        let note = move |db: &_| {
            notes::set_donors(db, notes::REPAIR_TRIPPED, &tripped)?;
            notes::set_donors(db, notes::REPAIR_DECLARED_DEAD, &declared_dead)
        };
        self.write(Durability::Process, note).await
    }

    /// Compares what a donor says it holds with what is counted at it.
    pub async fn compare(&self, donor: DonorId, holdings: Vec<Holding>) -> Result<Compared, Error> {
        self.read(move |db| placements::compare(db, donor, &holdings)).await
    }

    /// Takes down what a donor told of its copies; whether that changes how safe a file is.
    pub async fn tell(&self, donor: DonorId, told: ToldCopies, now_ms: u64) -> Result<bool, Error> {
        self.write(Durability::Process, move |db| placements::tell(db, donor, &told, now_ms)).await
    }

    /// A page of the chunks that are counted at a donor.
    pub async fn counted_at(
        &self,
        donor: DonorId,
        after: ChunkId,
        limit: usize,
    ) -> Result<Vec<ChunkId>, Error> {
        self.read(move |db| placements::counted_at(db, donor, after, limit)).await
    }

    /// The names of chunks, those that are forgotten by now left out.
    pub async fn names_of(&self, chunks: Vec<ChunkId>) -> Result<Vec<ChunkName>, Error> {
        self.read(move |db| placements::names_of(db, &chunks)).await
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

    /// One of the chunks of a donor, and who else has it.
    pub async fn drawn(&self, donor: DonorId, random: u64) -> Result<Option<DrawnCopy>, Error> {
        self.read(move |db| placements::drawn(db, donor, random)).await
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

    /// Remembers that a donor has chunks on its disk.
    pub async fn on_disk(&self, donor: DonorId, names: Vec<ChunkName>) -> Result<(), Error> {
        let note =
            move |db: &_| names.iter().try_for_each(|name| placements::on_disk(db, name, donor));
        self.write(Durability::Process, note).await
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

    /// The stored bytes of a chunk that a donor is known to have, so that a reader may have been sent there.
    pub async fn held_bytes(&self, name: ChunkName, donor: DonorId) -> Result<Option<u32>, Error> {
        let held = move |db: &_| {
            let Some(chunk) = chunks::get(db, &name)? else { return Ok(None) };
            let state = placements::state_of(db, chunk.id, donor)?;
            let held = matches!(state, Some(CopyState::Here | CopyState::Leaving));
            Ok(held.then_some(chunk.len))
        };
        self.read(held).await
    }
}
