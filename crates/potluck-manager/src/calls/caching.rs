//! Answers the calls about cached files.

use super::Answer;
use crate::access::Access;
use crate::callers::CallingMember;
use crate::handles::handles;
use crate::trim::Trim;
use potluck_catalog::{Catalog, EvictedPage};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::DonorId;
use potluck_core::rights::Right;
use potluck_pool::redundancy::{Excess, Ground, Vote};
use potluck_wire::control::{Evict, Evicted};
use potluck_wire::error::Failure;
use std::collections::BTreeMap;

handles! {
    /// The handles for answering calls about cached files.
    pub struct CachingCalls {
        catalog: Catalog,
        trim: Trim,
        access: Access,
    }
}

impl Answer<Evict> for CachingCalls {
    async fn answer(self, call: Evict, caller: CallingMember) -> Result<Evicted, Failure> {
        let Evict { path, after } = call;
        self.access.need_in_a_space(&caller, Right::Write, &path).await?;
        let page = self.catalog.evict(path, after).await?;
        // What is still used by others, or offered at this moment, stays. The scan finds what may go later.
        self.trim.run(excess_of(&page)).await?;
        let EvictedPage { files, bytes, pinned, next, .. } = page;
        Ok(Evicted { files, bytes, pinned, next })
    }
}

/// Returns the copies of evicted versions, each with the votes of those that can do without it.
fn excess_of(page: &EvictedPage) -> BTreeMap<(ChunkName, DonorId), Excess> {
    let mut all = BTreeMap::<_, Excess>::new();
    for (seen, (version, layout)) in page.versions.iter().enumerate() {
        for unit in &layout.units {
            let Some(piece) = unit.shards.first().map(|piece| &layout.pieces[*piece]) else {
                continue;
            };
            for (donor, _) in &piece.holders {
                let excess = all.entry((piece.name, *donor)).or_default();
                (excess.refs, excess.len) = (piece.refs, piece.len);
                let vote = Vote {
                    version: version.id,
                    seen: seen as u64,
                    judged_by: (version.redundancy(), version.goal),
                    ground: Ground::Evicted,
                    uses: 1,
                };
                excess.add(vote, []);
            }
        }
    }
    all
}
