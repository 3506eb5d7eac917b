//! Operations on the redundancy that versions have, and on the redundancy to which they are being changed.

use crate::chunks::{excess, units};
use crate::log::changes::{self, ChangeOp};
use crate::policies::conversions::{self, Computed};
use crate::sql::Tx;
use crate::{Catalog, Durability, Error, versions};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{DonorId, VersionId};
use potluck_core::policy::Redundancy;
use potluck_pool::redundancy::{Excess, reaches_goal};
use potluck_pool::{DonorSnapshot, InUseAgain, PoolView};

/// The number of chunks of versions after which a job stops, so that commits do not wait long.
const CHUNKS_PER_JOB: u64 = 4096;

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
        let arrive = move |db: &_| arrive_some(db, &snapshot.current(), &found, now_ms);
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

/// Changes the first versions of `found` to their goals where they have all that these ask for, and gives up their
/// earlier redundancy. Returns how many it looked at, at least one if there is any, and how many it changed.
///
/// Each version is judged again: since it was found complete, a donor may have died that the new redundancy relies on,
/// and then the earlier redundancy keeps the file.
pub(crate) fn arrive_some(
    db: &Tx,
    view: &PoolView,
    found: &[(VersionId, Redundancy)],
    now_ms: u64,
) -> Result<(usize, u64), Error> {
    let (mut looked_at, mut chunks, mut arrived) = (0, 0, 0);
    for (id, goal) in found {
        looked_at += 1;
        let version = versions::find(db, *id)?.filter(|version| version.goal == Some(*goal));
        if let Some(version) = version {
            chunks += version.chunks;
            let there = reaches_goal(&units::layout(db, &version)?, view);
            if there && arrive(db, *id, *goal, now_ms)? {
                tracing::debug!(version = %id, %goal, "a version has the redundancy it was to have");
                arrived += 1;
            }
        }
        if chunks >= CHUNKS_PER_JOB {
            break;
        }
    }
    Ok((looked_at, arrived))
}

/// Changes a version to its goal as [`conversions::arrive`] does, and has the log tell of it.
pub(crate) fn arrive(db: &Tx, id: VersionId, goal: Redundancy, now_ms: u64) -> Result<bool, Error> {
    let is_changed = conversions::arrive(db, id, goal, now_ms)?;
    if is_changed {
        changes::append(db, &ChangeOp::Version(id))?;
    }
    Ok(is_changed)
}
