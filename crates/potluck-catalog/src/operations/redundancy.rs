//! Operations on the redundancy that versions have, and on the redundancy to which they are being changed.

use crate::chunks::excess;
use crate::policies::conversions::{self, Computed};
use crate::{Catalog, Durability, Error};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{DonorId, VersionId};
use potluck_core::policy::Redundancy;
use potluck_pool::redundancy::Excess;
use potluck_pool::{DonorSnapshot, InUseAgain};

/// The outcome of writing parity down.
#[derive(Debug, Default)]
pub struct Learnt {
    /// The chunks that were condemned or gone and are in use again.
    pub again: Vec<InUseAgain>,
    /// The donors that hold the parity, each with the number of chunks that the catalog counts there only from now on.
    pub claimed: Vec<(DonorId, u64)>,
}

impl Catalog {
    /// Notes that the versions `open` lack some of their redundancy, and that the versions `safe` have all of it since
    /// the wall time `wall_ms`.
    pub async fn set_safe(
        &self,
        open: Vec<VersionId>,
        safe: Vec<VersionId>,
        wall_ms: i64,
    ) -> Result<(), Error> {
        let set = move |db: &_| {
            conversions::open(db, &open)?;
            conversions::safe(db, &safe, wall_ms)
        };
        self.write(Durability::Process, set).await
    }

    /// Ends the former redundancy of the first of the given versions, where all of their new one is still there.
    /// Returns how many versions were looked at, at least one, and how many changed.
    pub async fn arrive(
        &self,
        snapshot: DonorSnapshot,
        found: Vec<(VersionId, Redundancy)>,
        now_ms: u64,
    ) -> Result<(usize, u64), Error> {
        let arrive =
            move |db: &_| conversions::arrive_some(db, &snapshot.current(), &found, now_ms);
        self.write(Durability::Disk, arrive).await
    }

    /// Writes parity down: believed parity for its version, and doubtful parity so that garbage collection takes it.
    pub async fn learn_parity(
        &self,
        computed: Vec<Computed>,
        now_ms: u64,
    ) -> Result<Learnt, Error> {
        let learn = move |db: &_| {
            let mut learnt = Learnt::default();
            for computed in &computed {
                let (Computed::Believed(encoded) | Computed::Doubtful(encoded)) = computed;
                learnt.claimed.extend(encoded.uncounted(db)?);
                match computed {
                    Computed::Believed(encoded) => {
                        learnt.again.push(conversions::learn(db, encoded, now_ms)?);
                    }
                    Computed::Doubtful(encoded) => conversions::discard(db, encoded, now_ms)?,
                }
            }
            Ok(learnt)
        };
        self.write(Durability::Disk, learn).await
    }

    /// Marks those of the given copies that can still be done without as leaving, and returns them.
    pub async fn mark_excess(
        &self,
        snapshot: DonorSnapshot,
        copies: Vec<((ChunkName, DonorId), Excess)>,
    ) -> Result<Vec<(ChunkName, DonorId)>, Error> {
        let mark = move |db: &_| excess::mark(db, &snapshot.current(), &copies);
        self.write(Durability::Disk, mark).await
    }
}
