//! Listing files that are not as safe as they should be (promise L1).

use super::Answer;
use crate::callers::Caller;
use crate::held_up::{donors_reported, none_overdue};
use crate::service::Service;
use potluck_catalog::PageLimit;
use potluck_catalog::units::Met;
use potluck_core::chunk::ChunkName;
use potluck_core::ids::DonorId;
use potluck_core::path::{PoolPath, SYSTEM_SPACE};
use potluck_pool::redundancy::{Layout, Piece, Version, judge_file, judge_own_file};
use potluck_pool::{Pool, PoolView};
use potluck_wire::control::{Damage, Fsck, FsckReport, Health, HealthLevel, SpaceHealth};
use potluck_wire::error::Failure;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The most that is looked at for one reply.
const PAGE: PageLimit = PageLimit { chunks: 20_000, entries: 5000 };

impl Answer for Fsck {
    async fn answer(self, service: Arc<Service>, _: Caller) -> Result<FsckReport, Failure> {
        donors_reported(&service, Pool::expects_listings).await;
        none_overdue(&service).await;
        let (view, doubted) = {
            let (pool, now) = (service.pool(), service.time.tick());
            (pool.view(now), pool.asked_about(now))
        };
        let page = service.catalog.files_at(self.path.clone(), self.after.clone(), PAGE).await?;
        let report = FsckReport { next: page.next, ..FsckReport::default() };
        let mut look = Look { view, doubted, asked: self, report };
        let judge = move || {
            page.files.into_iter().for_each(|(at, met)| look.file(&at, met));
            look.report
        };
        let report = service.env.offload.run(judge).await;
        if !report.found.is_empty() {
            see(&service);
        } else if report.next.is_none() && is_known_worse(&service) {
            // Things may be better by now than the last scan found.
            service.scan_state.look_again(service.time.tick());
        }
        Ok(report)
    }
}

struct Look {
    view: PoolView,
    /// Copies that their donors are to look at.
    doubted: BTreeSet<(DonorId, ChunkName)>,
    asked: Fsck,
    report: FsckReport,
}

impl Look {
    fn file(&mut self, at: &str, met: Met) {
        let path = self.asked.path.clone();
        match met {
            Met::Dir => {}
            Met::File(version, layout) if is_metadata(&path, at) => {
                let judged = judge_own_file(&version, &layout, &self.view);
                let ails = judged.health.unreadable > 0 || judged.is_incomplete();
                self.report.metadata += u64::from(ails);
            }
            Met::File(version, layout) => self.sound(below(&path, at), &version, &layout),
            Met::Damaged(_) if is_metadata(&path, at) => self.report.metadata += 1,
            Met::Damaged(why) => self.damaged(below(&path, at), why),
        }
    }

    /// A file of which it is known what it is made of.
    fn sound(&mut self, path: String, version: &Version, layout: &Layout) {
        self.report.files += 1;
        let judged = judge_file(version, layout, &self.view);
        let doubted = |piece: &Piece| {
            let mut holders = piece.holders.iter();
            holders.any(|(donor, _)| self.doubted.contains(&(*donor, piece.name)))
        };
        let in_doubt = !self.doubted.is_empty() && layout.pieces.iter().any(doubted);
        self.report.in_doubt += u64::from(in_doubt);
        let incomplete = self.asked.incomplete && judged.is_incomplete();
        self.report.waiting += u64::from(judged.health.level() == HealthLevel::Waiting);
        if judged.health.unreadable > 0 || incomplete {
            let may_return = judged.health.unreadable > 0 && judged.may_return;
            let health = judged.health;
            self.report.found.push(Damage { path, health, may_return, damaged: None });
        }
    }

    /// A file of which the catalog does not know any more what it is made of.
    fn damaged(&mut self, path: String, why: String) {
        self.report.files += 1;
        let health = Health { unreadable: 1, ..Health::default() };
        self.report.found.push(Damage { path, health, may_return: false, damaged: Some(why) });
    }
}

/// Notes files that are found less safe than they should be, and were not by the last scan: the pool is not
/// called healthy until the next.
pub fn see(service: &Service) {
    if !is_known_worse(service) {
        service.scan_state.worse(service.time.tick(), "a file was found less safe than promised");
    }
}

/// Whether the last scan found files less safe than promised.
fn is_known_worse(service: &Service) -> bool {
    let worse = |space: &SpaceHealth| space.incomplete + space.unreadable > 0;
    service.scan_state.kept().spaces.values().any(worse)
}

/// Whether what lies at `relative` is the pool's own: no path that people write leads there.
fn is_metadata(path: &PoolPath, relative: &str) -> bool {
    path.space().is_empty() && relative.split('/').next() == Some(SYSTEM_SPACE)
}

fn below(path: &PoolPath, relative: &str) -> String {
    match (path.space(), relative) {
        (_, "") => path.to_string(),
        ("", _) => format!("{path}{relative}"),
        _ => format!("{path}/{relative}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pools_own_files_are_apart() {
        let lab = PoolPath::space_root("lab").expect("a path");
        assert!(is_metadata(&PoolPath::root(), ".potluck/log/1"));
        assert!(!is_metadata(&lab, ".potluck/log/1"));
        assert!(!is_metadata(&PoolPath::root(), "lab/.potluck"));
    }
}
