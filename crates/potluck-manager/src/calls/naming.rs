//! Listings, facts, sums, and changes to names.

use super::{Answer, fsck, health};
use crate::callers::Caller;
use crate::held_up::donors_reported;
use crate::service::Service;
use potluck_pool::Pool;
use potluck_pool::redundancy::{chunk_facts, judge_file};
use potluck_wire::control::{
    Done, HealthLevel, List, Listing, MakeDir, Move, Remove, Removed, Stat, Stated, Usage, Used,
};
use potluck_wire::error::Failure;
use std::sync::Arc;

impl Answer for List {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Listing, Failure> {
        let Self { path, recursive, after } = self;
        Ok(service.catalog.list_directory(path, recursive, after).await?)
    }
}

impl Answer for Usage {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Used, Failure> {
        Ok(service.catalog.usage(self.path).await?)
    }
}

impl Answer for Stat {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Stated, Failure> {
        let facts = service.catalog.stat(self.path).await?;
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
            if version.chunks > 0 {
                donors_reported(&service, Pool::expects_listings).await;
            }
            let view = service.pool().view(service.time.tick());
            stated.donors = health::shares(&service, &facts.layout);
            stated.live_copies = health::live_copies(&facts.layout, &stated.donors);
            let (layout, list) = (facts.layout, self.chunks);
            // A file may be of any size.
            let judge = move || {
                let chunks = if list { chunk_facts(&layout, &view) } else { Vec::new() };
                (judge_file(&version, &layout, &view).health, chunks)
            };
            let (health, chunk_list) = service.env.offload.run(judge).await;
            stated.chunk_list = chunk_list;
            if matches!(health.level(), HealthLevel::Incomplete | HealthLevel::Unreadable) {
                fsck::see(&service);
            }
            stated.health = Some(health);
        }
        Ok(stated)
    }
}

impl Answer for MakeDir {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Done, Failure> {
        service.catalog.make_directory(self.path, self.parents, service.when()).await?;
        Ok(Done {})
    }
}

impl Answer for Move {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Done, Failure> {
        let Self { from, to, no_replace } = self;
        service.catalog.rename(from, to, no_replace, service.when()).await?;
        Ok(Done {})
    }
}

impl Answer for Remove {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<Removed, Failure> {
        let removed = service.catalog.remove(self.path, self.recursive, service.when()).await?;
        service.chores.notify_one();
        Ok(removed)
    }
}
