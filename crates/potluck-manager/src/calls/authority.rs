//! Answers the call by which admins replace the pool's authority.

use super::Answer;
use crate::audit_log::Auditor;
use crate::callers::{CallingMember, KnownMembers};
use crate::handles::handles;
use crate::tasks::authority_change::AuthorityChange;
use potluck_recovery::pool_authority::PoolAuthority;
use potluck_recovery::state_dir::StateDir;
use potluck_wire::control::{AuthorityReplace, AuthorityState, AuthorityStep, Call};
use potluck_wire::error::Failure;
use std::sync::Arc;

handles! {
    /// The handles for replacing the pool's authority.
    pub struct AuthorityCalls {
        authority: Arc<PoolAuthority>,
        members: Arc<KnownMembers>,
        state: Arc<StateDir>,
        change: AuthorityChange,
        auditor: Auditor,
    }
}

impl Answer<AuthorityReplace> for AuthorityCalls {
    async fn answer(
        self,
        call: AuthorityReplace,
        caller: CallingMember,
    ) -> Result<AuthorityState, Failure> {
        let under_way = self.authority.change();
        match call.step {
            // Any other authority was replaced already, by the same command that is run again.
            AuthorityStep::Begin(replaced)
                if under_way.is_none() && replaced == self.authority.fingerprint() =>
            {
                self.change.begin().await.map_err(|why| why.failure())?;
                let what = "replaced the pool's authority and its recovery key".into();
                self.auditor.changed(&caller, AuthorityReplace::NAME, what).await;
            }
            AuthorityStep::End if under_way.is_some() => {
                self.change.end().await.map_err(|why| why.failure())?;
                let what = "ended the pool's earlier authority".into();
                self.auditor.changed(&caller, AuthorityReplace::NAME, what).await;
            }
            _ => {}
        }
        let change = self.authority.change();
        let behind = self.authority.members_behind();
        let all = self.members.all().into_iter().filter(|member| !member.revoked);
        let (behind, following): (Vec<_>, Vec<_>) =
            all.partition(|member| behind.contains(&member.id));
        Ok(AuthorityState {
            authority: self.authority.fingerprint(),
            earlier: change.map(|change| change.earlier),
            is_told: change.is_none_or(|change| change.is_told),
            members: (behind.len() + following.len()) as u64,
            behind: behind
                .into_iter()
                .map(|member| super::membership::about(member, true))
                .collect(),
            kit: self.state.kit().display().to_string(),
        })
    }
}
