//! Listings, facts, sums, and changes to names.

use super::{Answer, ticketing};
use crate::catalog::{Durability, lists, names};
use crate::members::Caller;
use crate::pool::Contact;
use crate::service::Service;
use potluck_core::ids::DonorId;
use potluck_wire::control::{
    Done, Holding, List, Listing, MakeDir, Move, Remove, Removed, Share, Stat, Stated, Usage, Used,
};
use potluck_wire::error::Failure;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Answer for List {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Listing, Failure> {
        let list = move |db: &_| lists::list(db, &self.path, self.recursive, self.after.as_deref());
        Ok(service.catalog.read(list).await?)
    }
}

impl Answer for Usage {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Used, Failure> {
        Ok(service.catalog.read(move |db| lists::usage(db, &self.path)).await?)
    }
}

impl Answer for Stat {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Stated, Failure> {
        let facts = service.catalog.read(move |db| lists::stat(db, &self.path)).await?;
        let mut stated = Stated {
            entry: facts.entry,
            policy: facts.policy,
            inline: false,
            chunks: 0,
            chunk_size: 0,
            live_copies: 0,
            donors: Vec::new(),
            health: None,
            chunk_list: Vec::new(),
        };
        if let Some(version) = facts.version {
            stated.inline = version.inline;
            stated.chunks = version.chunks;
            stated.chunk_size = version.chunk_size;
            (stated.live_copies, stated.donors) = shares(&service, &facts.copies);
        }
        Ok(stated)
    }
}

/// The fewest live copies of any chunk, and each donor's share.
fn shares(service: &Service, copies: &[(Holding, Vec<DonorId>)]) -> (u32, Vec<Share>) {
    let everybody: BTreeSet<DonorId> =
        copies.iter().flat_map(|(_, donors)| donors).copied().collect();
    let now = service.time.tick();
    let contacts = ticketing::contacts(&service.pool(), everybody, now);
    let mut shares: BTreeMap<DonorId, Share> = contacts
        .into_iter()
        .map(|contact| {
            let Contact { donor, name, live, .. } = contact;
            (donor, Share { donor, name, live, chunks: 0, bytes: 0 })
        })
        .collect();
    let mut fewest = u32::MAX;
    for (holding, donors) in copies {
        let mut live = 0;
        for donor in donors {
            let Some(share) = shares.get_mut(donor) else { continue };
            live += u32::from(share.live);
            share.chunks += 1;
            share.bytes += u64::from(holding.len);
        }
        fewest = fewest.min(live);
    }
    let fewest = if copies.is_empty() { 0 } else { fewest };
    (fewest, shares.into_values().collect())
}

impl Answer for MakeDir {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Done, Failure> {
        let when = service.when();
        let make = move |db: &_| names::make_dir(db, &self.path, self.parents, when);
        service.catalog.write(Durability::Disk, make).await?;
        Ok(Done {})
    }
}

impl Answer for Move {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Done, Failure> {
        let when = service.when();
        let go = move |db: &_| names::move_entry(db, &self.from, &self.to, self.no_replace, when);
        service.catalog.write(Durability::Disk, go).await?;
        Ok(Done {})
    }
}

impl Answer for Remove {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Removed, Failure> {
        let when = service.when();
        let remove = move |db: &_| names::remove(db, &self.path, self.recursive, when);
        let removed = service.catalog.write(Durability::Disk, remove).await?;
        service.chores.notify_one();
        Ok(removed)
    }
}
