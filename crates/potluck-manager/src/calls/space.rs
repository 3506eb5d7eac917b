//! Answers the calls that make, remove and list spaces.

use super::Answer;
use super::policy_advice::{self, DonorCounts};
use crate::access::Access;
use crate::audit_log::Auditor;
use crate::callers::CallingMember;
use crate::failure;
use crate::handles::handles;
use crate::pool_time::PoolTime;
use crate::scan_state::ScanState;
use crate::sessions::WriteSessions;
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use crate::wakeup::Wakeup;
use potluck_catalog::{Catalog, ContentUnderOldKeys, NewSpace, Rekey, Space};
use potluck_core::path::check_space;
use potluck_core::rights::Right;
use potluck_core::seal::SpaceKey;
use potluck_wire::control::{
    Call, Done, OldContent, RekeyStep, SpaceCreate, SpaceCreated, SpaceList, SpaceRekey,
    SpaceRemove, Spaces,
};
use potluck_wire::env::Env;
use potluck_wire::error::Failure;
use potluck_wire::token::Role;
use std::sync::Arc;

handles! {
    /// The handles for answering calls about spaces.
    pub struct SpaceCalls {
        env: Env,
        settings: Arc<Settings>,
        time: PoolTime,
        pool: SharedPool,
        catalog: Catalog,
        background: Wakeup,
        scan_state: Arc<ScanState>,
        sessions: WriteSessions,
        access: Access,
        auditor: Auditor,
    }
}

/// The most spaces that a user may have made: more than a user needs, and few for a catalog.
const MOST_SPACES: u64 = 100;

impl Answer<SpaceCreate> for SpaceCalls {
    async fn answer(
        self,
        call: SpaceCreate,
        caller: CallingMember,
    ) -> Result<SpaceCreated, Failure> {
        let who = caller.member()?;
        check_space(&call.name).map_err(|why| failure::of_path(&why))?;
        let (defaults, now) = (self.settings.get().defaults, self.time.tick());
        let (machines, donors) = {
            let pool = self.pool.lock();
            (pool.machines(now), DonorCounts::of(&pool, now))
        };
        let mut policy = defaults.applied(&call.policy, machines);
        policy.follows.files_lag = false; // there are none
        policy.check().map_err(|why| failure::of_policy(&why))?;
        let key = policy.sealed.then(|| SpaceKey::generate(&*self.env.entropy));
        let wall_ms = self.time.wall_ms();
        let chosen = policy_advice::chosen(&policy, &defaults, machines);
        let advice = policy_advice::of_space(&call.name, &policy, &defaults, donors);
        let made_by = Some(who.member);
        let new = NewSpace { name: call.name, policy: policy.clone(), key, made_by };
        let most = (who.role != Role::Admin).then_some(MOST_SPACES);
        self.auditor.admit_change(&caller)?;
        let what = format!("made the space {}, with all rights in it", new.name);
        self.catalog.create_space(new, most, wall_ms).await?;
        self.auditor.changed(&caller, SpaceCreate::NAME, what).await;
        // A scan looks now, so that the space is known before the first file is asked about.
        self.scan_state.look_again(self.time.tick());
        Ok(SpaceCreated { policy, chosen, advice })
    }
}

impl Answer<SpaceRemove> for SpaceCalls {
    async fn answer(self, call: SpaceRemove, caller: CallingMember) -> Result<Done, Failure> {
        self.access.need_in(&caller, Right::Manage, &call.name).await?;
        let what = format!("removed the space {}, with all rights in it", call.name);
        let space = self.catalog.remove_space(call.name, call.recursive).await?;
        // The space's reservations have ended in the catalog; what was promised to them is free from now on.
        let reserved = self.pool.lock().reservations();
        for (id, _) in reserved.into_iter().filter(|(_, it)| it.space == space) {
            self.sessions.end(id).await?;
        }
        self.auditor.changed(&caller, SpaceRemove::NAME, what).await;
        self.background.wake();
        Ok(Done {})
    }
}

impl Answer<SpaceRekey> for SpaceCalls {
    async fn answer(self, call: SpaceRekey, caller: CallingMember) -> Result<OldContent, Failure> {
        self.access.need_in(&caller, Right::Manage, &call.space).await?;
        self.auditor.admit_change(&caller)?;
        let key = SpaceKey::generate(&*self.env.entropy);
        let how = match call.step {
            RekeyStep::OrGoOn => Rekey::OrGoOn,
            RekeyStep::Anew => Rekey::Anew,
            RekeyStep::Finish => Rekey::Finish,
        };
        let new_key = self.catalog.rekey_space(call.space.clone(), key, how).await?;
        if new_key {
            let what = format!("gave the space {} a new key", call.space);
            self.auditor.changed(&caller, SpaceRekey::NAME, what).await;
        }
        let ContentUnderOldKeys { versions, bytes, passing, sessions } =
            self.catalog.content_under_old_keys(call.space).await?;
        Ok(OldContent { new_key, versions, bytes, passing, sessions })
    }
}

impl Answer<SpaceList> for SpaceCalls {
    async fn answer(self, _call: SpaceList, caller: CallingMember) -> Result<Spaces, Failure> {
        let seen = self.access.seen(&caller).await?;
        let all = self.catalog.spaces().await?;
        let spaces = all.iter().filter(|space| seen.has(&space.name)).filter_map(Space::info);
        Ok(Spaces { spaces: spaces.collect() })
    }
}
