//! Excess copies: finds and marks those that can still be done without.

use crate::chunks::{
    placements::{self, CopyState},
    {self, ChunkState},
};
use crate::error::Error;
use crate::sql::Tx;
use crate::versions;
use potluck_core::chunk::ChunkName;
use potluck_core::ids::DonorId;
use potluck_pool::PoolView;
use potluck_pool::redundancy::Excess;

/// Marks those of `copies` that can still be done without as leaving, and returns them.
pub(crate) fn mark(
    db: &Tx,
    view: &PoolView,
    copies: &[((ChunkName, DonorId), Excess)],
) -> Result<Vec<(ChunkName, DonorId)>, Error> {
    let mut marked = Vec::new();
    for ((name, donor), excess) in copies {
        if can_go(db, view, name, *donor, excess)? {
            placements::mark_leaving(db, name, *donor)?;
            marked.push((*name, *donor));
        }
    }
    Ok(marked)
}

/// Returns whether the copy can still be done without, by the present catalog and the present state of donors.
pub(crate) fn can_go(
    db: &Tx,
    view: &PoolView,
    name: &ChunkName,
    donor: DonorId,
    excess: &Excess,
) -> Result<bool, Error> {
    let Some(chunk) = chunks::get(db, name)? else { return Ok(false) };
    if chunk.state != ChunkState::Here || chunk.refs != excess.uses() {
        return Ok(false);
    }
    let copy = placements::state_of(db, chunk.id, donor)?;
    if !matches!(copy, Some(CopyState::Here | CopyState::Leaving)) {
        return Ok(false);
    }
    for vote in &excess.votes {
        let Some(version) = versions::find(db, vote.version)? else { return Ok(false) };
        if (version.redundancy(), version.goal) != vote.judged_by
            || !vote.ground.holds(view.get(donor), name, &version)
        {
            return Ok(false);
        }
    }
    for (relied, holder) in &excess.keep {
        let Some(chunk) = chunks::get(db, relied)? else { return Ok(false) };
        if placements::state_of(db, chunk.id, *holder)? != Some(CopyState::Here)
            || !view.counts(*holder, relied)
        {
            return Ok(false);
        }
    }
    Ok(true)
}
