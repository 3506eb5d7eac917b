//! Answers the call that lists files which are not as safe as they should be (promise L1).

use super::Answer;
use crate::access::Access;
use crate::call_turns::CallTurns;
use crate::callers::CallingMember;
use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::scan_state::ScanState;
use crate::shared_pool::SharedPool;
use crate::waiting_for_donors::WaitingForDonors;
use potluck_catalog::{Catalog, Met, PageLimit};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{DonorId, VersionId};
use potluck_core::kept_place::is_reserved;
use potluck_core::path::{PoolPath, SYSTEM_SPACE};
use potluck_pool::redundancy::{Layout, LayoutChunk, Version, judge_file, judge_own_file};
use potluck_pool::{Pool, PoolView};
use potluck_wire::control::{Damage, Fsck, FsckOutcome, FsckReport, Health, HealthLevel};
use potluck_wire::env::Env;
use potluck_wire::error::Failure;
use std::collections::BTreeSet;
use std::sync::Arc;

handles! {
    /// The handles for listing files that are not safe.
    pub struct FsckCalls {
        env: Env,
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        scan_state: Arc<ScanState>,
        call_turns: Arc<CallTurns>,
        wait_until: WaitingForDonors,
        access: Access,
    }
}

/// The most chunks and entries that are looked at for one reply.
const PAGE: PageLimit = PageLimit { chunks: 20_000, entries: 5000 };

impl Answer<Fsck> for FsckCalls {
    async fn answer(self, call: Fsck, caller: CallingMember) -> Result<FsckReport, Failure> {
        let seen = self.access.seen_at(&caller, &call.path).await?;
        self.wait_until.donors_reported(Pool::expects_listings).await;
        self.wait_until.none_overdue().await;
        // To judge a page takes a thread as well as to read it, and memory.
        let _turn = self.call_turns.take_for_call(&caller).await?;
        let (view, doubted) = {
            let (pool, now) = (self.pool.lock(), self.time.tick());
            (pool.view(now), pool.asked_about(now))
        };
        let (path, after) = (call.path.clone(), call.after.clone());
        let page = self.catalog.files_at(path, after, PAGE, seen).await?;
        let report = FsckReport { next: page.next, ..FsckReport::default() };
        let mut look = Look { view, doubted, asked: call, report, less_safe: Vec::new() };
        let judge = move || {
            page.files.into_iter().for_each(|(at, met)| look.file(&at, met));
            (concluded(look.report), look.less_safe)
        };
        let (report, less_safe) = self.env.offload.run(judge).await;
        let now = self.time.tick();
        if !report.found.is_empty() {
            self.scan_state.found_worse(now, less_safe);
            if report.outcome == FsckOutcome::Damaged {
                self.scan_state.changed_anywhere(now); // nobody can say whose records these are
            }
        } else if report.next.is_none() && self.scan_state.is_known_worse() {
            // Files may be safer than the last scan found, and each scan looks again at those that were less safe.
            self.scan_state.look_again(now);
        }
        Ok(report)
    }
}

struct Look {
    view: PoolView,
    /// The copies that their donors were asked to verify.
    doubted: BTreeSet<(DonorId, ChunkName)>,
    asked: Fsck,
    report: FsckReport,
    /// The versions, of files or of parts, that were found less safe than they should be.
    less_safe: Vec<VersionId>,
}

impl Look {
    fn file(&mut self, at: &str, met: Met) {
        let path = self.asked.path.clone();
        match met {
            Met::File(version, layout) if is_metadata(&path, at) => {
                let judged = judge_own_file(&version, &layout, &self.view);
                let ails = judged.health.unreadable > 0 || judged.is_incomplete();
                self.report.metadata += u64::from(ails);
            }
            Met::File(version, layout) => {
                self.count(at);
                self.sound(below(&path, at), &version, &layout);
            }
            Met::Part(version, layout) => self.sound(below(&path, at), &version, &layout),
            Met::Damaged(_) if is_metadata(&path, at) => self.report.metadata += 1,
            Met::Damaged(why) => {
                self.count(at);
                self.damaged(below(&path, at), why);
            }
        }
    }

    /// Counts a file: one that was replaced or removed is none that listings show and readers read.
    fn count(&mut self, at: &str) {
        match at.split('/').any(is_reserved) {
            true => self.report.kept_files += 1,
            false => self.report.files += 1,
        }
    }

    /// Notes a file, or a part of one, whose chunks are known.
    fn sound(&mut self, path: String, version: &Version, layout: &Layout) {
        let judged = judge_file(version, layout, &self.view);
        let doubted = |piece: &LayoutChunk| {
            let mut holders = piece.holders.iter();
            holders.any(|(donor, _)| self.doubted.contains(&(*donor, piece.name)))
        };
        let in_doubt = !self.doubted.is_empty() && layout.pieces.iter().any(doubted);
        self.report.in_doubt += u64::from(in_doubt);
        let incomplete = self.asked.incomplete && judged.is_incomplete();
        self.report.waiting += u64::from(judged.health.level == HealthLevel::Waiting);
        if judged.health.unreadable > 0 || incomplete {
            let may_return = judged.health.unreadable > 0 && judged.may_return;
            let health = judged.health;
            self.less_safe.push(version.id);
            if let Some(last) = self.report.found.last_mut().filter(|last| last.path == path) {
                if health.unreadable > 0 {
                    last.may_return =
                        may_return && (last.may_return || last.health.unreadable == 0);
                }
                last.health = std::mem::take(&mut last.health).with(health);
                return;
            }
            self.report.found.push(Damage { path, health, may_return, damaged: None });
        }
    }

    /// Notes a file whose records in the catalog are damaged, so that its chunks are unknown.
    fn damaged(&mut self, path: String, why: String) {
        let level = HealthLevel::Unreadable;
        let health = Health { level, unreadable: 1, ..Health::default() };
        self.report.found.push(Damage { path, health, may_return: false, damaged: Some(why) });
    }
}

/// Concludes a page: adds its outcome, which is that of its worst file, and the advice.
fn concluded(report: FsckReport) -> FsckReport {
    let unreadable = |damage: &&Damage| damage.health.level == HealthLevel::Unreadable;
    let worst = |damage: &Damage| match (&damage.damaged, damage.may_return) {
        (Some(_), _) => FsckOutcome::Damaged,
        (None, true) => FsckOutcome::Away,
        (None, false) => FsckOutcome::Lost,
    };
    let less_safe = report.found.len() as u64 + report.waiting + report.metadata;
    let outcome = match report.found.iter().filter(unreadable).map(worst).max() {
        Some(worst) => worst,
        None if less_safe > 0 => FsckOutcome::LessSafe,
        None if report.in_doubt > 0 => FsckOutcome::InDoubt,
        None => FsckOutcome::Well,
    };
    let advice = match outcome {
        FsckOutcome::Damaged => {
            "stop the manager and bring its catalog back with `potluck manager restore`"
        }
        FsckOutcome::Away => "bring back the donors that do not answer: `potluck nodes ls`",
        FsckOutcome::Lost => {
            "what is missing is on no donor: store these files again from their source"
        }
        FsckOutcome::LessSafe | FsckOutcome::InDoubt | FsckOutcome::Well => "",
    };
    FsckReport { outcome, advice: advice.into(), ..report }
}

/// Returns true for an entry at `relative` of the pool's root that belongs to the pool's own metadata, to which no path
/// of a person leads.
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
    fn fsck_page_outcome_is_the_worst_of_its_files() {
        let found = |level, may_return, damaged: Option<&str>| Damage {
            path: "pot://lab/a".into(),
            health: Health { level, ..Health::default() },
            may_return,
            damaged: damaged.map(Into::into),
        };
        let outcome = |found: Vec<Damage>, waiting, in_doubt| {
            let report =
                concluded(FsckReport { found, waiting, in_doubt, ..FsckReport::default() });
            assert_eq!(report.advice.is_empty(), report.outcome <= FsckOutcome::LessSafe);
            report.outcome
        };
        let less_safe = || found(HealthLevel::Incomplete, false, None);
        let away = || found(HealthLevel::Unreadable, true, None);
        let lost = || found(HealthLevel::Unreadable, false, None);
        let damaged = || found(HealthLevel::Unreadable, false, Some("a torn page"));
        assert_eq!(outcome(vec![], 0, 0), FsckOutcome::Well);
        assert_eq!(outcome(vec![], 0, 1), FsckOutcome::InDoubt);
        assert_eq!(outcome(vec![], 1, 1), FsckOutcome::LessSafe);
        assert_eq!(outcome(vec![less_safe()], 0, 1), FsckOutcome::LessSafe);
        assert_eq!(outcome(vec![less_safe(), lost()], 0, 0), FsckOutcome::Lost);
        assert_eq!(outcome(vec![away(), lost()], 0, 0), FsckOutcome::Away);
        assert_eq!(outcome(vec![damaged(), away()], 0, 0), FsckOutcome::Damaged);
    }

    #[test]
    fn the_pools_own_files_are_apart() {
        let lab = PoolPath::space_root("lab").expect("a path");
        assert!(is_metadata(&PoolPath::root(), ".potluck/log/1"));
        assert!(!is_metadata(&lab, ".potluck/log/1"));
        assert!(!is_metadata(&PoolPath::root(), "lab/.potluck"));
    }
}
