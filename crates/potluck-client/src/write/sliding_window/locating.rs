//! Locating: which donors have the chunks of a file that is not visible yet, for whoever reads it in the meantime.

use super::{Event, Window};
use crate::fetch::LocatedChunks;
use crate::write::reservation::SessionCalls;
use potluck_core::chunk::ChunkName;
use potluck_core::ids::DonorId;
use potluck_core::policy::AckLevel;
use potluck_wire::error::Failure;
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::oneshot;

/// Names in one question where chunks are that the session does not remember.
const OFFERED_AT_ONCE: usize = 8192;

impl Window {
    /// Tells which donors have chunks of the session, by what they acknowledged or else by what the manager says.
    pub(super) fn locate(
        &mut self,
        chunks: Vec<ChunkName>,
        done: oneshot::Sender<Result<LocatedChunks, Failure>>,
    ) {
        let known = chunks.into_iter().map(|name| (name, self.groups.holders(&name))).collect();
        let (calls, ack) = (self.session.calls(), self.session.reserved.policy.ack);
        self.events.push(Box::pin(async move {
            let _ = done.send(ask_for_rest(calls, known, ack).await); // whoever asked may be gone
            Event::Located
        }));
    }
}

async fn ask_for_rest(
    calls: SessionCalls,
    mut holders: BTreeMap<ChunkName, Vec<DonorId>>,
    ack: AckLevel,
) -> Result<LocatedChunks, Failure> {
    let unknown = holders.iter().filter(|(_, donors)| donors.is_empty());
    let unknown: Vec<ChunkName> = unknown.map(|(name, _)| *name).collect();
    for names in unknown.chunks(OFFERED_AT_ONCE) {
        let offered = calls.clone().offer(names.to_vec(), ack).await?;
        let found = offered.held.into_iter();
        holders.extend(found.filter_map(|it| Some((*names.get(it.index as usize)?, it.donors))));
    }
    let all: BTreeSet<DonorId> = holders.values().flatten().copied().collect();
    let donors = calls.reach(all.into_iter().collect()).await?.donors;
    Ok(LocatedChunks { holders, donors })
}
