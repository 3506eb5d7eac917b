//! A manager from start to stop.

use crate::access_keys::KnownAccessKeys;
use crate::audit_log::{AuditLog, Auditor};
use crate::callers::{KnownMembers, inviting_donor};
use crate::config::ManagerConfig;
use crate::gc_freeze::GcFreeze;
use crate::handles::{Handles, handles};
use crate::log_copies::backup::FileLog;
use crate::log_copies::copy_on_donors::DonorLog;
use crate::metrics::Exporter;
use crate::own_term::OwnTerm;
use crate::pool_time::PoolTime;
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use crate::tasks::authority_change::AuthorityChange;
use crate::tasks::diagnosis::Diagnosis;
use crate::tasks::event_log::Events;
use crate::tasks::pool_defaults::DefaultsFollower;
use crate::tasks::reach::Reach;
use crate::tasks::repair::Repair;
use crate::tasks::rounds::Rounds;
use crate::tasks::saved_time::SavedTime;
use crate::tasks::series::SeriesPurger;
use crate::tasks::signpost::Signposts;
use crate::wakeup::Wakeup;
use potluck_catalog::{Authority, Catalog, LEASE, OpenError, StoredDonor, TermStart};
use potluck_core::chunk::Digest;
use potluck_core::ids::DonorId;
use potluck_pool::{DonorRecord, Giving, NewSession, Pool, ResumedSession};
use potluck_recovery::StateError;
use potluck_recovery::admin::update_admin_address;
use potluck_recovery::ca::Ca;
use potluck_recovery::kit;
use potluck_recovery::pool_authority::{self, PoolAuthority};
use potluck_recovery::state_dir::{CATALOG, StateDir};
use potluck_recovery::whereabouts::Signpost;
use potluck_wire::addresses::Addresses;
use potluck_wire::env::Env;
use potluck_wire::net::Listener;
use potluck_wire::own_addresses::{AddressWatch, ToldAddresses, from_this_machine};
use potluck_wire::serve;
use potluck_wire::tls::Admit;
use potluck_wire::token::Role;
use potluck_wire::version;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// A manager that listens, and serves once it is run.
pub struct Manager {
    handles: Handles,
    listener: Box<dyn Listener>,
    /// The listener for requests of metrics, if there is any.
    metrics: Option<Box<dyn Listener>>,
    address: SocketAddr,
    told: ToldAddresses,
    admit: Arc<dyn Admit>,
}

impl Manager {
    /// Starts a manager on the pool that [`init()`](crate::init()) made. Without `admit` peers prove
    /// themselves by TLS under the pool's authority.
    ///
    /// Errors: no pool, a damaged catalog or one of another authority, another manager on the same directory, an
    /// address on which it cannot listen.
    pub async fn start(
        config: ManagerConfig,
        env: Env,
        admit: Option<Arc<dyn Admit>>,
    ) -> Result<Self, StateError> {
        if !Catalog::is_at(&config.state.join(CATALOG)) {
            return Err(StateError::NotInitialised(config.state));
        }
        let state = StateDir::take(&config.state)?;
        pool_authority::settle(&state)?;
        let ca = Ca::load(&state.ca())?;
        let (path, offload, clock) = (state.catalog(), env.offload, Arc::clone(&env.clock));
        let catalog = offload.run(move || Catalog::open(&path, offload, clock)).await?;
        let start = env.entropy.u64();
        let ours = ca.pool();
        let catalog_of = catalog.authority().await?;
        if !catalog_of.may_be_vouched_for_by(&ours) {
            let authority = Authority::new(&catalog_of.pool, &ours).to_string();
            let (state, catalog_of) = (config.state, catalog_of.to_string());
            return Err(StateError::OtherAuthority { state, catalog_of, authority });
        }
        let left = catalog
            .begin_term(ours, start)
            .await
            .map_err(|why| OpenError::of(&state.catalog(), why))?;

        let access_keys =
            catalog.access_keys().await.map_err(|why| OpenError::of(&state.catalog(), why))?;
        let time = PoolTime::after(left.saved_ms, left.leapt_ms, Arc::clone(&env.clock));
        if time.is_restarted_within(LEASE) {
            catalog.leases_are_forgotten(time.now_ms());
        }
        let pool = rebuild(&config, &left, &time);
        let unreachable = |source| StateError::Listen { address: config.listen.clone(), source };
        let listener = env.net.listen(&config.listen).await.map_err(unreachable)?;
        let address = listener.local_addr().map_err(unreachable)?;
        let metrics = match &config.metrics_listen {
            None => None,
            Some(at) => {
                let unreachable = |source| StateError::Listen { address: at.clone(), source };
                let listener = env.net.listen(at).await.map_err(unreachable)?;
                let address = listener.local_addr().map_err(unreachable)?;
                tracing::info!("metrics are served to anybody at http://{address}/metrics");
                Some(listener)
            }
        };
        let mut told = ToldAddresses::of(&*env.net, address, &config.advertise).await?;
        let here = from_this_machine(address).into();
        if told.addresses.is_empty() {
            told.addresses = Addresses::clone(&here);
        }
        update_admin_address(&state, &told.addresses.and(&here))?;
        kit::keep(&state, &left.pool_name, &told.addresses, &*env.entropy)?;
        let authority = Arc::new(PoolAuthority::load(&state, &left.pool_name)?);
        let admit = admit.unwrap_or_else(|| authority.clone());
        tracing::info!(
            "the manager of the pool {} serves at {address}, and is reached at {}; version {}, start {}",
            left.pool_name,
            told.addresses,
            version::PRODUCT,
            left.epoch
        );

        let handles = Handles {
            watches: Arc::default(),
            locks: Arc::default(),
            shared_files: Arc::default(),
            settings: Arc::new(Settings::new(config)),
            env,
            time,
            term: Arc::new(OwnTerm::new(left.pool_name, start, left.epoch)),
            pool: SharedPool::new(pool),
            catalog,
            bodies: Arc::default(),
            notices: Arc::default(),
            call_turns: Arc::default(),
            inventory_turns: Arc::default(),
            members: Arc::new(KnownMembers::new(left.members)),
            access_keys: Arc::new(KnownAccessKeys::new(access_keys)),
            known_spaces: Arc::default(),
            authority,
            signpost: Arc::new(Signpost::new(told.addresses.clone())),
            background: Wakeup::default(),
            gc_freeze: Arc::new(GcFreeze::new(left.gc_frozen, left.may_lack)),
            unproven_terms: Arc::default(),
            log: Arc::default(),
            metrics: Arc::default(),
            stats: Arc::default(),
            rates: Arc::default(),
            uses: Arc::default(),
            scan_state: Arc::default(),
            followed: Arc::default(),
            audit_log: Arc::new(AuditLog::new(state.audit())),
            state: Arc::new(state),
        };
        handles.catalog.announce_to(handles.watches.clone());
        Ok(Self { handles, listener, metrics, address, told, admit })
    }

    /// Returns the handles on the parts of the manager, for tests.
    #[cfg(test)]
    pub(crate) fn handles(&self) -> Handles {
        self.handles.clone()
    }

    /// Returns the controls that change the manager while it runs.
    pub fn controls(&self) -> ManagerControls {
        (&self.handles).into()
    }

    /// Returns the pool that it manages, by the fingerprint of its first authority.
    pub fn pool(&self) -> Digest {
        self.handles.authority.pool()
    }

    /// Returns why donors may keep a newer catalog than the one that is served, if an earlier start came to know that.
    pub fn may_lack(&self) -> Option<String> {
        let freeze = &self.handles.gc_freeze;
        freeze.may_lack().then(|| freeze.why()).flatten()
    }

    /// Returns the address at which calls are taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the addresses at which others reach the manager.
    pub fn told(&self) -> &Addresses {
        &self.told.addresses
    }

    /// Serves until `shutdown` completes; then answers what was asked, and closes the catalog.
    ///
    /// Errors: the catalog was found damaged, which ends the serving as well.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), StateError> {
        let Self { handles, listener, metrics, admit, address, told } = self;
        let watch = AddressWatch::new(Arc::clone(&handles.env.net), address, told);
        let (all, time) = (&handles, SavedTime::from(&handles));
        // The saved time must be past what an earlier term said, even if this term is short.
        if let Err(why) = time.save().await {
            tracing::error!(%why, "the pool's time could not be saved");
        }
        let shutdown = async {
            shutdown.await;
            handles.watches.close(); // nobody waits for news while it stops
        };
        let mut damage = None;
        tokio::select! {
            () = serve::serve(Arc::new(all.clone()), listener, admit, shutdown) => {}
            () = Rounds::from(all).run() => {}
            () = FileLog::from(all).run() => {}
            () = DonorLog::from(all).run() => {}
            () = Repair::from(all).run() => {}
            () = DefaultsFollower::from(all).run() => {}
            () = Events::from(all).run() => {}
            () = Auditor::from(all).run() => {}
            () = Reach::from(all).run() => {}
            () = Diagnosis::from(all).run() => {}
            () = SeriesPurger::from(all).run() => {}
            () = Exporter::from(all).serve(metrics) => {}
            () = Signposts::from(all).run() => {}
            () = AuthorityChange::from(all).run() => {}
            () = Signposts::from(all).follow_addresses(watch, address) => {}
            found = damaged(&handles) => damage = Some(found),
        }
        if let Err(why) = time.save().await {
            tracing::error!(%why, "the pool's time could not be saved");
        }
        Auditor::from(&handles).write_refusals().await;
        handles.catalog.close().await;
        tracing::info!("the manager has stopped");
        damage.map_or(Ok(()), |found| Err(found.into()))
    }
}

handles! {
    /// The controls that change a running manager.
    pub struct ManagerControls {
        settings: Arc<Settings>,
        pool: SharedPool,
        background: Wakeup,
    }
}

impl ManagerControls {
    /// Goes by `config` from now on, apart from what is fixed at the start: the state directory, the pool's name, where
    /// it listens, what it advertises and how often it audits.
    pub fn retune(&self, config: ManagerConfig) {
        self.pool.lock().set_limits(config.limits());
        self.settings.change(config);
        self.background.wake();
    }

    /// Has `potluck status` show why new settings cannot be used, while the manager goes by earlier ones; `None` if
    /// they can be used.
    pub fn settings_fault(&self, why: Option<String>) {
        self.settings.set_fault(why);
    }
}

/// Checks a catalog that was too large to be checked at the start, and returns only if it is found damaged.
async fn damaged(handles: &Handles) -> OpenError {
    match handles.catalog.check(handles.state.catalog()).await {
        Err(found @ OpenError::Damaged { .. }) => found,
        Err(why) => {
            tracing::error!(%why, "the catalog could not be checked");
            std::future::pending().await
        }
        Ok(()) => std::future::pending().await,
    }
}

fn rebuild(config: &ManagerConfig, left: &TermStart, time: &PoolTime) -> Pool {
    let now = time.tick();
    let mut pool = Pool::new(config.limits());
    pool.begin(now);
    // Task numbers of different terms are far apart.
    pool.repairs.tasks.begin_at(left.epoch.0 << 32);
    pool.repairs.paused.clone_from(&left.repair_paused);
    for member in &left.members {
        if member.role == Role::Donor && !member.revoked {
            let inviter = inviting_donor(&left.members, member);
            pool.add_donor(DonorId(member.id.0), &member.name, inviter);
        }
    }
    for known in &left.donors {
        pool.recall(known.donor, recalled(known, left.saved_ms.unwrap_or(0), time));
    }
    for (donor, traffic) in &left.traffic {
        pool.recall_traffic(*donor, traffic.clone(), now);
    }
    pool.expect_donors();
    pool.resume_circuit_breaker(left.circuit_breaker.clone());
    for (session, offered) in &left.sessions {
        let known = NewSession {
            id: session.id,
            member: session.member,
            space: session.space,
            policy: session.policy.clone(),
            asked: session.asked,
            room: session.room.clone(),
            peer: None,
            link: None,
        };
        let resumed = ResumedSession {
            plan: session.plan.clone(),
            bytes: session.bytes,
            counted: session.counted,
            draws_on: session.draws_on,
            ending: session.ended,
        };
        pool.resume_session(known, resumed, offered, now);
    }
    pool
}

/// Makes the record of a donor as an earlier term of the manager left it, at the pool's time `saved_ms`.
fn recalled(known: &StoredDonor, saved_ms: u64, time: &PoolTime) -> DonorRecord {
    let ms = |ms: u64| Duration::from_millis(ms);
    let (now, now_ms) = (time.tick(), time.without_leaps_ms());
    DonorRecord {
        silent_before: known.heard_ms.map(|heard| ms(saved_ms.saturating_sub(heard))),
        away_until: known.away_until_ms.map(|until| now + ms(until.saturating_sub(now_ms))),
        quarantined: known.quarantined.clone(),
        addresses: known.addresses.clone(),
        giving: known.giving.as_ref().map(|goal| Giving {
            start: goal.start,
            at_once: goal.at_once,
            lose: goal.lose.as_slice().into(),
            since: now,
        }),
        ..DonorRecord::default()
    }
}
