//! Finds the shares of a file that donors hold.

use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_pool::redundancy::{Layout, LayoutChunk};
use potluck_pool::{DonorContact, Pool};
use potluck_wire::control::{DonorState, Share};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the donors that have a chunk and are to keep it.
fn holders(piece: &LayoutChunk) -> impl Iterator<Item = DonorId> {
    piece.holders.iter().filter(|(_, leaving)| !leaving).map(|(donor, _)| *donor)
}

/// Returns each donor's share of a file, without copies that are to leave.
pub fn shares(pool: &Pool, layout: &Layout, now: Tick) -> Vec<Share> {
    let everybody: BTreeSet<DonorId> = layout.pieces.iter().flat_map(holders).collect();
    let empty = |donor| {
        let DonorContact { name, rates, load, .. } = pool.contact(donor, now)?;
        let state = pool.donor_state(donor, now);
        Some((donor, Share { donor, name, state, chunks: 0, bytes: 0, rates, load }))
    };
    let mut shares: BTreeMap<DonorId, Share> = everybody.into_iter().filter_map(empty).collect();
    for piece in &layout.pieces {
        for donor in holders(piece) {
            let Some(share) = shares.get_mut(&donor) else { continue };
            share.chunks += 1;
            share.bytes += u64::from(piece.len);
        }
    }
    shares.into_values().collect()
}

/// Returns the fewest live holders of any one data chunk; 0 for a file without data chunks.
pub fn live_copies(layout: &Layout, shares: &[Share]) -> u32 {
    let is_live = |share: &&Share| share.state == DonorState::Live;
    let live: BTreeSet<DonorId> = shares.iter().filter(is_live).map(|share| share.donor).collect();
    let copies = |piece| holders(piece).filter(|donor| live.contains(donor)).count() as u32;
    layout.pieces[..layout.data].iter().map(copies).min().unwrap_or(0)
}
