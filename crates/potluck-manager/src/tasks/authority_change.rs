//! Replaces the pool's authority ([`potluck_recovery::pool_authority`]): begins, tells the members once the log is
//! sealed under the new recovery key, and ends when all of them follow.

use crate::callers::KnownMembers;
use crate::handles::handles;
use crate::log_copies::any_taker;
use crate::log_copies::copies::LogCopies;
use crate::own_term::OwnTerm;
use crate::pool_time::PoolTime;
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use potluck_catalog::{Catalog, LogCopy};
use potluck_core::ids::MemberId;
use potluck_recovery::StateError;
use potluck_recovery::kit;
use potluck_recovery::pool_authority::PoolAuthority;
use potluck_recovery::state_dir::StateDir;
use potluck_recovery::whereabouts::Signpost;
use potluck_wire::env::Env;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The time between two looks at a change that is under way.
const EVERY: Duration = Duration::from_secs(1);

handles! {
    /// The handles for replacing the authority.
    pub struct AuthorityChange {
        settings: Arc<Settings>,
        env: Env,
        time: PoolTime,
        term: Arc<OwnTerm>,
        pool: SharedPool,
        catalog: Catalog,
        members: Arc<KnownMembers>,
        authority: Arc<PoolAuthority>,
        signpost: Arc<Signpost>,
        log: Arc<LogCopies>,
        state: Arc<StateDir>,
    }
}

impl AuthorityChange {
    /// Goes on with a change that is under way, until it is dropped.
    pub async fn run(self) {
        loop {
            if let Err(why) = self.step().await {
                tracing::error!("the change of the pool's authority does not go on: {why}");
                tokio::time::sleep(EVERY).await;
            }
            match self.authority.change() {
                None => self.authority.moves().await,
                Some(_) => tokio::select! {
                    () = self.authority.moves() => {}
                    () = tokio::time::sleep(EVERY) => {}
                },
            }
        }
    }

    /// Makes another authority, which takes the place of the present one, and the recovery kit of that.
    pub async fn begin(&self) -> Result<(), StateError> {
        let behind = self.active_members().collect();
        let ours = self.clone();
        let make = move || {
            let (state, entropy) = (&ours.state, &*ours.env.entropy);
            ours.authority.begin_change(state, behind, entropy)?;
            kit::keep(state, &ours.term.pool_name, &ours.signpost.addresses(), entropy)
        };
        self.env.offload.run(make).await?;
        self.signpost.sign_again();
        self.log.file.hurry();
        let kit = self.state.kit();
        tracing::info!("the pool has a new authority and recovery key: copy {}", kit.display());
        Ok(())
    }

    /// Throws the earlier authority away.
    pub async fn end(&self) -> Result<(), StateError> {
        let authority = Arc::clone(&self.authority);
        self.env.offload.run(move || authority.end_change()).await?;
        self.signpost.sign_again();
        tracing::info!("the pool's earlier authority is thrown away");
        Ok(())
    }

    async fn step(&self) -> Result<(), StateError> {
        let authority = Arc::clone(&self.authority);
        self.env.offload.run(move || authority.save_behind()).await?;
        match self.authority.change() {
            None => Ok(()),
            Some(change) if !change.is_told => {
                if self.is_log_sealed_anew().await? {
                    self.authority.tell();
                }
                Ok(())
            }
            Some(_) => {
                let behind = self.authority.members_behind();
                match self.active_members().any(|member| behind.contains(&member)) {
                    true => Ok(()),
                    false => self.end().await,
                }
            }
        }
    }

    fn active_members(&self) -> impl Iterator<Item = MemberId> + use<> {
        let all: BTreeSet<_> =
            self.members.all().iter().filter(|it| !it.revoked).map(|it| it.id).collect();
        all.into_iter()
    }

    /// Returns whether the copy of the log from which a restore would come is sealed under the present key: that on
    /// donors, or without any of these the one in a file.
    async fn is_log_sealed_anew(&self) -> Result<bool, StateError> {
        let on_donors =
            self.settings.get().metadata_copies > 0 && any_taker(&self.pool, &self.time);
        let copy = if on_donors { LogCopy::OnDonors } else { LogCopy::InFile };
        let position = self.catalog.log_ahead(copy, 0).await?.position;
        let key = self.authority.recovery_key()?.name();
        Ok(position.is_some_and(|at| at.key == key))
    }
}
