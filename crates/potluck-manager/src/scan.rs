//! The scan: walks all spaces, judges every unit by where its copies are and how their donors
//! stand at that moment, and finds what to make, what is too many, and what is lost.
//!
//! It remembers nothing from one time to the next, so that whatever went wrong is seen again. It
//! walks a page at a time, each page in a snapshot of its own, and rests between pages: a walk
//! over millions of files holds up nobody.

use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::scan_state::Priority;
use crate::scan_state::ScanState;
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use potluck_catalog::{Catalog, Error, PageLimit, Root, judge_files};
use potluck_core::chunk::PARTS;
use potluck_core::clock::Tick;
use potluck_core::ids::DonorId;
use potluck_pool::redundancy::Findings;
use potluck_wire::env::Env;
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

impl Scan {
    /// Looks at everything; `None`: something happened meanwhile that another scan should see now.
    pub async fn run(&self, priority: Priority) -> Result<Option<Findings>, Error> {
        let shrinking = self.pool.lock().must_shrink();
        for (donor, over) in shrinking {
            let below = leaving_below(&self.catalog, donor, over).await?;
            self.pool.lock().leave_below(donor, below);
        }
        let view = self.pool.lock().view(self.time.tick());
        let mut findings = Findings::new(view);
        findings.metadata.health.asked = self.settings.get().metadata_copies;
        let roots = self.catalog.roots().await?;
        for root in roots {
            let Some(found) = self.walk(root, findings, priority).await? else { return Ok(None) };
            findings = found;
        }
        Ok(Some(findings))
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
        findings.enter(&root.name, found.policy.redundancy());
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
            rest(self.time.tick().saturating_sub(began) * priority.rest()).await;
        }
        findings.leave();
        Ok(Some(findings))
    }

    /// Whether another scan is due that something waits for.
    fn is_urgent(&self, now: Tick) -> bool {
        let stuck = self.pool.lock().repairs.is_stuck();
        self.scan_state.due(now, &self.settings.get(), stuck, None) == Some(Priority::Urgent)
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
