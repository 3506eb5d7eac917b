//! The scan: judges units by where their copies are and how their donors stand at that moment, and finds
//! what to make, what is too many, and what is lost.
//!
//! When donors change it follows their copies to the files that need them, and looks at these and at those that
//! were not as they should be; the figures of all others are remembered. Now and then, and whenever it is not
//! known which files may have changed, it walks all spaces and remembers nothing, so that whatever went wrong is
//! seen again. It goes a page at a time, each page in a snapshot of its own, and rests between pages: a
//! walk over millions of files holds up nobody.

use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::scan_state::{Priority, ScanScope, ScanState};
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use potluck_catalog::{
    Catalog, Error, Followed, Met, PageLimit, Root, SomeUnits, ToFollow, judge_files, kind_of,
};
use potluck_core::chunk::PARTS;
use potluck_core::clock::Tick;
use potluck_core::ids::{ChunkId, DonorId, SpaceId, VersionId};
use potluck_core::path::SYSTEM_SPACE;
use potluck_core::policy::Redundancy;
use potluck_pool::PoolView;
use potluck_pool::redundancy::{Findings, Remembered};
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

/// One page: some ten milliseconds.
const PAGE: PageLimit = PageLimit { chunks: 2048, entries: 2048 };

/// Copies of a donor that are followed in one page.
const COPIES: usize = 4096;
/// Uses of chunks to be looked at again, at most; where there are more, all files are walked over.
const MAX_FOLLOWED: usize = 1 << 20;

impl Scan {
    /// Looks at what is in `scope`, and says whether that took a walk over all files; `None`: something happened
    /// meanwhile that another scan should see now.
    pub async fn run(
        &self,
        scope: ScanScope,
        priority: Priority,
    ) -> Result<Option<(Findings, bool)>, Error> {
        let shrinking = self.pool.lock().must_shrink();
        for (donor, over) in shrinking {
            let below = leaving_below(&self.catalog, donor, over).await?;
            self.pool.lock().leave_below(donor, below);
        }
        let view = self.pool.lock().view(self.time.tick());
        if let ScanScope::Since { last, donors, versions } = scope
            && let Some(versions) = self.concerned(&last, donors, versions, &view).await?
        {
            return Ok(Some((self.follow(last, versions, view).await?, false)));
        }
        let mut findings = self.begin(Findings::new(view));
        let roots = self.catalog.roots().await?;
        for root in roots {
            let Some(found) = self.walk(root, findings, priority).await? else { return Ok(None) };
            findings = found;
        }
        Ok(Some((findings, true)))
    }

    fn begin(&self, mut findings: Findings) -> Findings {
        findings.metadata.health.asked = self.settings.get().metadata_copies;
        findings
    }

    /// The versions that a scan since the last looks at; `None` where a walk over all files costs less.
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

    /// Looks at these versions, at all that is the pool's own, and at all of those spaces in which the last scan saw no
    /// files: whatever is there is new.
    async fn follow(
        &self,
        last: Remembered,
        mut rest: Vec<ToFollow>,
        view: PoolView,
    ) -> Result<Findings, Error> {
        let roots = self.catalog.roots().await?;
        let mut spaces: Vec<(SpaceId, String, Redundancy)> = Vec::new();
        for root in roots.iter().filter(|root| root.name != SYSTEM_SPACE) {
            if let Some(space) = self.catalog.space(root.space).await? {
                spaces.push((root.space, root.name.clone(), space.policy.redundancy()));
            }
        }
        let mut findings = self.begin(Findings::resume(view, last, spaces));
        let (known, others): (Vec<Root>, Vec<Root>) = roots
            .into_iter()
            .partition(|root| findings.spaces.iter().any(|space| space.id == root.space));
        for root in others {
            if let Some(found) = self.walk(root, findings, Priority::Urgent).await? {
                findings = found;
            } else {
                return Err(Error::Bug("an urgent scan was interrupted".into()));
            }
        }
        let of: Arc<BTreeMap<SpaceId, Root>> =
            Arc::new(known.into_iter().map(|root| (root.space, root)).collect());
        let looked_at: BTreeSet<VersionId> = rest.iter().map(|follow| follow.version).collect();
        // No donor leads to a version that was removed while it waited for one.
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
        root: Root,
        mut findings: Findings,
        priority: Priority,
    ) -> Result<Option<Findings>, Error> {
        let Some(found) = self.catalog.space(root.space).await? else {
            return Ok(Some(findings)); // removed meanwhile
        };
        findings.enter(root.space, &root.name, found.policy.redundancy());
        let mut cursor: Option<String> = None;
        loop {
            let began = self.time.tick();
            // The findings of a leisurely walk would have been true before: who waits does not wait for its
            // end. One in a hurry goes on, so that changes without end keep none from its end.
            if priority == Priority::Routine && self.is_urgent(began) {
                return Ok(None);
            }
            let page = self.catalog.files_of(root.clone(), cursor, PAGE).await?;
            let of = root.clone();
            // A page has one file whole, and that may be of any size.
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

    /// Whether another scan is due that something waits for.
    fn is_urgent(&self, now: Tick) -> bool {
        self.scan_state.due(now, &self.settings.get(), false, None) == Some(Priority::Urgent)
    }
}

/// Judges the versions of a page, some of which no path leads to any more.
fn judge_followed(
    roots: &BTreeMap<SpaceId, Root>,
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
        // Others were walked, or are new and walked by the next scan.
        let Some(root) = roots.get(&space).filter(|_| findings.enter_again(space)) else {
            continue;
        };
        match met {
            Met::File(about, layout) | Met::Part(about, layout) => {
                findings.add_again(&about, kind_of(root), &layout);
            }
            Met::Damaged(why) => {
                findings.forget(version);
                findings.add_damaged(&root.name, &format!("version {version}"), &why);
            }
        }
    }
}

async fn rest(time: Duration) {
    if time.is_zero() { tokio::task::yield_now().await } else { tokio::time::sleep(time).await }
}

/// Which of a donor's copies leave so that it holds `over` bytes less: those with names in parts
/// below the number given. Names are random, so that any share of them is a fair one; and as the
/// copies in low parts go, what must go shrinks with them, so that the choice stays the same.
pub async fn leaving_below(catalog: &Catalog, donor: DonorId, over: u64) -> Result<u32, Error> {
    let bytes = catalog.bytes_by_part(donor).await?;
    let mut sum = 0;
    let reached = bytes.iter().position(|part| {
        sum += part;
        sum >= over
    });
    Ok(reached.map_or(PARTS, |part| part as u32 + 1))
}

#[cfg(test)]
mod tests;
