//! Answers the call that copies files inside the pool, which moves no bytes.

use super::Answer;
use crate::access::Access;
use crate::callers::CallingMember;
use crate::failure;
use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::scan_state::ScanState;
use crate::series_uses::SeriesUses;
use crate::shared_pool::SharedPool;
use crate::wakeup::Wakeup;
use potluck_catalog::{Catalog, Copied, CopiedVersion, CopyOutcome, CopyRequest, Error};
use potluck_core::policy::{AskedPolicy, Override};
use potluck_core::rights::Right;
use potluck_pool::redundancy::Version;
use potluck_wire::control::{Condition, CopiedFile, CopiedFiles, CopyFiles, NotCopied};
use potluck_wire::error::Failure;
use std::sync::Arc;

handles! {
    /// The handles for copying inside the pool.
    pub struct CopyCalls {
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        uses: Arc<SeriesUses>,
        background: Wakeup,
        scan_state: Arc<ScanState>,
        access: Access,
    }
}

impl Answer<CopyFiles> for CopyCalls {
    async fn answer(self, call: CopyFiles, caller: CallingMember) -> Result<CopiedFiles, Failure> {
        let CopyFiles { from, to, recursive, condition, redundancy, copy, page, after } = call;
        self.access.need(&caller, Right::Read, &from).await?;
        self.uses.note(&self.catalog, &from, self.time.without_leaps_ms()).await;
        let rights = self.access.need(&caller, Right::Write, &to).await?;
        let over = redundancy.map_or_else(Override::default, Override::from);
        let asked = AskedPolicy { over, may_lower: rights.allow(Right::Manage) };
        if let Some(redundancy) = redundancy {
            let space = self.catalog.admit_write(to.clone(), Condition::Always, 0).await?.space;
            if !asked.is_allowed_by(&space.policy) {
                return Err(Error::LessSafe(to).into());
            }
            let expected = self.pool.lock().expected_donors(0, self.time.tick());
            if redundancy.donors() as usize > expected {
                return Err(failure::of_redundancy(redundancy, expected));
            }
        }
        let space = to.space().to_owned();
        let (reserved, donors) = {
            let pool = self.pool.lock();
            (pool.reservations_beside(None), pool.snapshot(self.time.tick()))
        };
        let wanted = CopyRequest { from, to, recursive, condition, asked, after, reserved };
        let told = |copied: &Copied| {
            serde_json::to_string(&reply(copied)).map_err(|why| Error::Bug(why.to_string()))
        };
        let member = caller.member()?.member;
        let when = self.time.when().made_by(member);
        let copied = self.catalog.copy_files((member, copy, page), wanted, donors, when, told);
        match copied.await? {
            CopyOutcome::Repeated(text) => serde_json::from_str(&text)
                .map_err(|why| Failure::from(Error::Damaged(format!("a kept reply: {why}")))),
            CopyOutcome::Fresh(copied) => {
                let now = self.time.tick();
                let copies = || copied.files.iter().filter_map(|(_, file)| file.as_ref().ok());
                if copies().any(|copy| copy.below_policy) {
                    self.scan_state.worse(now, "files were copied with fewer copies");
                }
                let open =
                    |version: &Version| version.safe_wall_ms.is_none() || version.goal.is_some();
                // A scan then finds the copies that are to be made and the versions that are to be converted.
                let parts = copies().flat_map(|copy| copy.parts.iter().copied());
                let on_donors = copies().filter(|copy| copy.version.chunks > 0);
                let least = on_donors.map(|copy| copy.version.redundancy().tolerates()).min();
                self.scan_state.written_in(&space, parts, least, now);
                if copies().any(|copy| open(&copy.version)) {
                    self.scan_state.changed(now);
                }
                self.pool.lock().in_use_again(&copied.again, now);
                self.background.wake(); // replaced versions leave chunks behind
                Ok(reply(&copied))
            }
        }
    }
}

fn reply(copied: &Copied) -> CopiedFiles {
    let mut reply =
        CopiedFiles { next: copied.next.clone(), links: copied.links, ..CopiedFiles::default() };
    for (path, outcome) in &copied.files {
        let path = path.clone();
        match outcome {
            Ok(CopiedVersion { version, below_policy, .. }) => reply.files.push(CopiedFile {
                path,
                version: version.id,
                bytes: version.size,
                changing_to: version.goal,
                below_policy: *below_policy,
            }),
            Err(why) => {
                let failure = Failure::from(why.clone());
                reply.failed.push(NotCopied { path, failure });
            }
        }
    }
    reply
}
