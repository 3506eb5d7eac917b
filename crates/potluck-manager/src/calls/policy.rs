//! Answers the call that changes the policy of a space, a directory or a file, or tells what a change would do.

use super::Answer;
use super::policy_advice::{self, DonorCounts};
use crate::access::Access;
use crate::callers::CallingMember;
use crate::failure;
use crate::file_goals::{ChangingFiles, FileGoals};
use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::scan_state::ScanState;
use crate::series_uses::SeriesUses;
use crate::shared_pool::SharedPool;
use crate::stats_cache::StatsCache;
use crate::wakeup::Wakeup;
use potluck_catalog::{Catalog, PolicyScope};
use potluck_core::policy::{BadPolicy, Override, Policy};
use potluck_core::rights::Right;
use potluck_wire::control::{PolicyChanged, PolicySet};
use potluck_wire::error::Failure;
use std::collections::BTreeSet;
use std::sync::Arc;

handles! {
    /// The handles for changing policies.
    pub struct PolicyCalls {
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        uses: Arc<SeriesUses>,
        background: Wakeup,
        stats: Arc<StatsCache>,
        scan_state: Arc<ScanState>,
        access: Access,
        goals: FileGoals,
    }
}

impl Answer<PolicySet> for PolicyCalls {
    fn only_looks(call: &PolicySet) -> bool {
        call.dry_run
    }

    async fn answer(
        self,
        call: PolicySet,
        caller: CallingMember,
    ) -> Result<PolicyChanged, Failure> {
        let PolicySet { path, policy: over, new_files_only, dry_run } = call;
        self.access.need(&caller, Right::Manage, &path).await?;
        let planned = self.catalog.plan_policy(path.clone(), over).await?;
        let change = planned.map_err(|why| failure::of_policy(&why))?;
        if change.scope == PolicyScope::File {
            check_file(&over)?;
        }
        let redundancy = change.policy.redundancy();
        let asks = over.redundancy().is_some();
        let follows = asks && !(new_files_only && change.scope != PolicyScope::File);
        let mut changed = self.weigh(change.policy);
        // A policy for new files only may ask for donors that are yet to join, as the policy of a new space may.
        let expected = self.pool.lock().expected_donors(0, self.time.tick());
        if follows && (redundancy.donors() as usize) > expected {
            return Err(failure::of_redundancy(redundancy, expected));
        }
        if !dry_run {
            self.catalog.set_policy(path.clone(), over).await?;
            self.uses.may_be_others();
            if follows {
                // A scan looks even if a later page fails, because the goals of the pages before it stay set.
                self.scan_state.changed_anywhere(self.time.tick());
            }
        }
        if follows {
            let set_at = (!dry_run).then(|| self.time.now_ms());
            let changing = self.goals.set(&path, &changed.policy, set_at).await?;
            ChangingFiles {
                files: changed.files,
                bytes: changed.bytes,
                needs_bytes: changed.needs_bytes,
            } = changing;
        }
        let donors = DonorCounts::of(&self.pool.lock(), self.time.tick());
        changed.lacks = policy_advice::lacking(&changed, donors);
        changed.notes.extend(policy_advice::below_policy(&changed.policy, donors));
        self.background.wake();
        self.stats.forget();
        if !dry_run && changed.files > 0 {
            self.scan_state.changed_anywhere(self.time.tick());
            self.scan_state.hurry(self.time.tick());
        }
        Ok(changed)
    }
}

impl PolicyCalls {
    /// Returns a change of policy that has counted no files yet, with the donors that the policy needs, the donors that
    /// the pool has now, and their free room.
    fn weigh(&self, policy: Policy) -> PolicyChanged {
        let now = self.time.tick();
        let pool = self.pool.lock();
        PolicyChanged {
            needs_donors: policy.redundancy().donors(),
            donors: pool.takers(now).len() as u32,
            free_bytes: pool.room(&BTreeSet::new(), now),
            policy,
            files: 0,
            bytes: 0,
            needs_bytes: 0,
            lacks: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// Refuses a change of a stored file's policy that sets anything but its redundancy.
fn check_file(over: &Override) -> Result<(), Failure> {
    let redundancy = Override { copies: over.copies, ec: over.ec, ..Override::default() };
    if *over == redundancy && over.redundancy().is_some() {
        return Ok(());
    }
    let what = "of a file only the redundancy can be changed: copies, or an erasure code";
    Err(failure::of_policy(&BadPolicy(what.into()))
        .hint("give --copies or --ec; all else is set at a directory or space, for new files"))
}
