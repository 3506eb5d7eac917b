//! The scan judges units by where their copies are and by the states of the donors at that moment, and finds the copies
//! to make, the copies that are too many, and the files that are lost.
//!
//! When donors change it follows their copies to the files that need them, and looks at these and at those that were
//! not as they should be; the figures of all others are remembered. Now and then, and whenever it is not known which
//! files may have changed, it walks over all spaces and remembers nothing, so that nothing stays overlooked. It goes a
//! page at a time, each page in a snapshot of its own, and rests between pages: a walk over millions of files holds up
//! no other work.

use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::scan_state::{Priority, ScanScope, ScanState};
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use potluck_catalog::{
    Catalog, Error, Followed, Met, PageLimit, SomeUnits, Space, ToFollow, judge_files,
};
use potluck_core::chunk::PARTS;
use potluck_core::clock::Tick;
use potluck_core::ids::{ChunkId, DonorId, SpaceId, VersionId};
use potluck_pool::redundancy::{Findings, Remembered};
use potluck_pool::{PoolView, Shrinking};
use potluck_wire::env::Env;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

handles! {
    /// The handles for a scan.
    pub struct Scan {
        settings: Arc<Settings>,
        env: Env,
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        scan_state: Arc<ScanState>,
    }
}

/// The most that a scan looks at in one page, which takes some ten milliseconds.
const PAGE: PageLimit = PageLimit { chunks: 2048, entries: 2048 };

/// The number of copies of a donor that are followed in one page.
const COPIES: usize = 4096;
/// The most uses of chunks that are followed; if there are more, all files are walked over.
const MAX_FOLLOWED: usize = 1 << 20;

impl Scan {
    /// Looks at the files in `scope`. Returns the findings, and whether that took a walk over all files; `None` if
    /// something happened meanwhile that another scan should see now.
    pub async fn run(
        &self,
        scope: ScanScope,
        priority: Priority,
    ) -> Result<Option<(Findings, bool)>, Error> {
        let shrinking = self.pool.lock().must_shrink();
        for Shrinking { donor, excess, disk_lacks } in shrinking {
            let held = self.catalog.held_at(donor).await?;
            let below = |over| leaving_below(&held.bytes_by_part, over);
            self.pool.lock().leave_below(donor, below(excess), below(disk_lacks));
        }
        let view = self.pool.lock().view(self.time.tick());
        if let ScanScope::Since { last, donors, versions } = scope
            && let Some(versions) = self.concerned(&last, donors, versions, &view).await?
        {
            return Ok(Some((self.follow(last, versions, view).await?, false)));
        }
        let mut findings = self.begin(Findings::new(view));
        for space in self.catalog.spaces().await? {
            let Some(found) = self.walk(space.id, findings, priority).await? else {
                return Ok(None);
            };
            findings = found;
        }
        Ok(Some((findings, true)))
    }

    fn begin(&self, mut findings: Findings) -> Findings {
        findings.metadata.health.asked = self.settings.get().metadata_copies;
        findings
    }

    /// Returns the versions that a scan of what changed since the last one looks at; `None` if a walk over all files
    /// costs less.
    async fn concerned(
        &self,
        last: &Remembered,
        mut donors: BTreeSet<DonorId>,
        versions: BTreeSet<VersionId>,
        view: &PoolView,
    ) -> Result<Option<Vec<ToFollow>>, Error> {
        donors.extend(last.changed(view));
        if 2 * donors.len() > view.iter().count() {
            return Ok(None);
        }
        let some = |numbers: Option<&[u32]>| {
            numbers.map(|numbers| SomeUnits { numbers: numbers.into(), names: Vec::new() })
        };
        let mut concerned: BTreeMap<VersionId, Option<SomeUnits>> =
            last.unsettled().map(|(version, numbers)| (version, some(numbers))).collect();
        concerned.extend(versions.into_iter().map(|version| (version, None)));
        let mut uses = concerned.len();
        for donor in donors {
            let mut after = Some(ChunkId::FIRST);
            while let Some(from) = after {
                let began = self.time.tick();
                let page = self.catalog.referrers_at(donor, from, COPIES).await?;
                uses += page.uses.len();
                if uses > MAX_FOLLOWED {
                    return Ok(None);
                }
                for (version, name) in page.uses {
                    let known = concerned.entry(version);
                    if let Some(units) = known.or_insert_with(|| some(last.units(version))) {
                        units.names.push(name);
                    }
                }
                after = page.next;
                self.rest_since(began, Priority::Urgent).await;
            }
        }
        let of = |(version, units)| ToFollow { version, units };
        Ok(Some(concerned.into_iter().map(of).collect()))
    }

    /// Looks at these versions, at all of the pool's own files, and at all files of the spaces in which the last scan
    /// saw none.
    async fn follow(
        &self,
        last: Remembered,
        mut rest: Vec<ToFollow>,
        view: PoolView,
    ) -> Result<Findings, Error> {
        let spaces = self.catalog.spaces().await?;
        let of_users = spaces.iter().filter(|space| !space.is_system());
        let entered = of_users
            .map(|space| (space.id, space.name.clone(), space.policy.redundancy()))
            .collect::<Vec<_>>();
        let mut findings = self.begin(Findings::resume(view, last, entered));
        let (known, others): (Vec<Space>, Vec<Space>) = spaces
            .into_iter()
            .partition(|space| findings.spaces.iter().any(|known| known.id == space.id));
        for space in others {
            if let Some(found) = self.walk(space.id, findings, Priority::Urgent).await? {
                findings = found;
            } else {
                return Err(Error::Bug("an urgent scan was interrupted".into()));
            }
        }
        let of: Arc<BTreeMap<SpaceId, Space>> =
            Arc::new(known.into_iter().map(|space| (space.id, space)).collect());
        let looked_at: BTreeSet<VersionId> = rest.iter().map(|follow| follow.version).collect();
        // No donor leads to a version that was removed while it waited for a donor.
        let mut waiting: Vec<VersionId> =
            findings.watched().filter(|version| !looked_at.contains(version)).collect();
        while !waiting.is_empty() {
            let began = self.time.tick();
            let page = waiting.split_off(waiting.len().saturating_sub(PAGE.entries));
            for version in self.catalog.pathless(page).await? {
                findings.forget(version);
            }
            self.rest_since(began, Priority::Urgent).await;
        }
        while !rest.is_empty() {
            let began = self.time.tick();
            let page = rest.split_off(rest.len().saturating_sub(PAGE.entries));
            let (followed, looked_at) = self.catalog.files_followed(page.clone(), PAGE).await?;
            rest.extend_from_slice(&page[looked_at..]);
            let of = Arc::clone(&of);
            let judge = move || {
                judge_followed(&of, &page[..looked_at], followed, &mut findings);
                findings
            };
            findings = self.env.offload.run(judge).await;
            self.rest_since(began, Priority::Urgent).await;
        }
        findings.conclude();
        Ok(findings)
    }

    async fn rest_since(&self, began: Tick, priority: Priority) {
        rest(self.time.tick().saturating_sub(began) * priority.rest()).await;
    }

    async fn walk(
        &self,
        space: SpaceId,
        mut findings: Findings,
        priority: Priority,
    ) -> Result<Option<Findings>, Error> {
        let Some(space) = self.catalog.space(space).await?.map(Arc::new) else {
            return Ok(Some(findings)); // removed meanwhile
        };
        findings.enter(space.id, &space.name, space.policy.redundancy());
        let mut cursor: Option<String> = None;
        loop {
            let began = self.time.tick();
            // The findings of a leisurely walk are true of the time before the change, so it ends for the urgent scan.
            // A walk in a hurry goes on, so that changes without end do not keep it from its end.
            if priority == Priority::Routine && self.is_urgent(began) {
                return Ok(None);
            }
            let page = self.catalog.files_of(&space, cursor, PAGE).await?;
            let of = Arc::clone(&space);
            // A page has at least one whole file, which may be of any size, so it is judged on another thread.
            let judge = move || {
                judge_files(&of, page.files, &mut findings);
                findings
            };
            findings = self.env.offload.run(judge).await;
            if page.next.is_none() {
                break;
            }
            cursor = page.next;
            self.rest_since(began, priority).await;
        }
        findings.leave();
        Ok(Some(findings))
    }

    /// Returns whether an urgent scan is due.
    fn is_urgent(&self, now: Tick) -> bool {
        self.scan_state.due(now, &self.settings.get(), false, None) == Some(Priority::Urgent)
    }
}

/// Judges the versions of a page, some of which no path leads to any more.
fn judge_followed(
    spaces: &BTreeMap<SpaceId, Space>,
    looked_at: &[ToFollow],
    followed: Vec<Followed>,
    findings: &mut Findings,
) {
    let there: BTreeSet<VersionId> = followed.iter().map(|followed| followed.version).collect();
    for ToFollow { version, .. } in looked_at {
        if !there.contains(version) {
            findings.forget(*version);
        }
    }
    for Followed { space, met, version } in followed {
        // Files of other spaces were walked, or are new and walked by the next scan.
        let Some(of) = spaces.get(&space).filter(|_| findings.enter_again(space)) else {
            continue;
        };
        match met {
            Met::File(about, layout) | Met::Part(about, layout) => {
                findings.add_again(&about, of.chunk_kind(), &layout);
            }
            Met::Damaged(why) => {
                findings.forget(version);
                findings.add_damaged(&of.name, &format!("version {version}"), &why);
            }
        }
    }
}

async fn rest(time: Duration) {
    if time.is_zero() { tokio::task::yield_now().await } else { tokio::time::sleep(time).await }
}

/// Chooses which copies leave a donor so that it holds `over` bytes less, given its bytes in each name partition: the
/// copies with names in the partitions below the returned number. Names are random, so that any partition is a fair
/// sample of them. As the copies in low partitions go, `over` shrinks with them, so that the choice stays the same.
pub fn leaving_below(bytes: &[u64], over: u64) -> u32 {
    let sums = bytes.iter().scan(0, |sum, part| {
        *sum += part;
        Some(*sum)
    });
    let enough = (0..PARTS).zip([0].into_iter().chain(sums)).find(|(_, sum)| *sum >= over);
    enough.map_or(PARTS, |(part, _)| part)
}

#[cfg(test)]
mod tests;
