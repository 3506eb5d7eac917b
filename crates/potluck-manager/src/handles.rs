//! The handles on a manager's parts, and how each call and each task is given those that it uses.
//!
//! A group of calls or a background task is a struct of the handles that it works with, made by
//! [`handles!`]: its fields say what it can touch. Only what starts tasks and dispatches calls has
//! all of them.

use crate::access_keys::KnownAccessKeys;
use crate::audit_log::AuditLog;
use crate::call_turns::CallTurns;
use crate::callers::KnownMembers;
use crate::followed_defaults::FollowedDefaults;
use crate::gc_freeze::GcFreeze;
use crate::inventory_turns::InventoryTurns;
use crate::known_spaces::KnownSpaces;
use crate::lock_table::SharedLockTable;
use crate::log_copies::copies::LogCopies;
use crate::metrics::counted::ManagerMetrics;
use crate::own_term::OwnTerm;
use crate::pool_time::PoolTime;
use crate::recurring_notices::RecurringNotices;
use crate::scan_state::ScanState;
use crate::series_uses::SeriesUses;
use crate::session_rates::SessionRates;
use crate::settings::Settings;
use crate::shared_files::AllSharedFiles;
use crate::shared_pool::SharedPool;
use crate::stats_cache::StatsCache;
use crate::unproven_terms::UnprovenTerms;
use crate::wakeup::Wakeup;
use crate::watches::Watches;
use potluck_catalog::{Catalog, ReadFor};
use potluck_core::ids::MemberId;
use potluck_recovery::pool_authority::PoolAuthority;
use potluck_recovery::state_dir::StateDir;
use potluck_recovery::whereabouts::Signpost;
use potluck_wire::bodies::Bodies;
use potluck_wire::env::Env;
use std::sync::Arc;

macro_rules! parts {
    ($($(#[$about:meta])* $name:ident: $of:ty),* $(,)?) => {
        /// A handle on each part of a manager. Clones share the parts.
        #[derive(Clone)]
        pub struct Handles {
            $($(#[$about])* pub $name: $of,)*
        }

        $(impl From<&Handles> for $of {
            fn from(all: &Handles) -> Self {
                all.$name.clone()
            }
        })*
    };
}

parts! {
    /// The watch streams, and the directories that each watches.
    watches: Arc<Watches>,
    /// The authorities over the locks of files, and their holders.
    locks: SharedLockTable,
    /// The rates at which write sessions stored files.
    rates: Arc<SessionRates>,
    /// The series in which uses may count.
    uses: Arc<SeriesUses>,
    /// The files that writers share, and the bytes that each writes.
    shared_files: AllSharedFiles,
    /// The settings that this manager was told.
    settings: Arc<Settings>,
    /// The outside world: time, chance, and the network.
    env: Env,
    /// The clock of the pool's time.
    time: PoolTime,
    /// The term of this manager: its epoch and its start.
    term: Arc<OwnTerm>,
    /// The soft state of the pool.
    pool: SharedPool,
    /// The hard state of the pool.
    catalog: Catalog,
    /// The memory for the bodies of requests, by member.
    bodies: Arc<Bodies<MemberId>>,
    /// The lines of the log about single donors and members, of which some are only counted.
    notices: Arc<RecurringNotices>,
    /// The turns of calls of which a member has only a few at once.
    call_turns: Arc<CallTurns>,
    /// The turns of donors that list the chunks that they hold.
    inventory_turns: Arc<InventoryTurns>,
    /// The members and their certificates.
    members: Arc<KnownMembers>,
    /// The access keys by which gateways act on behalf of users.
    access_keys: Arc<KnownAccessKeys>,
    /// The facts about spaces that never change.
    known_spaces: Arc<KnownSpaces>,
    /// The pool's authority, which certifies members.
    authority: Arc<PoolAuthority>,
    /// The whereabouts of this manager.
    signpost: Arc<Signpost>,
    /// Wakes the background work.
    background: Wakeup,
    /// The GC freeze, and its reason.
    gc_freeze: Arc<GcFreeze>,
    /// The terms of other managers that donors told of without proof.
    unproven_terms: Arc<UnprovenTerms>,
    /// The state of the copies of the metadata log.
    log: Arc<LogCopies>,
    /// The figures that monitoring asks for.
    metrics: Arc<ManagerMetrics>,
    /// The figures that status shows, counted now and then.
    stats: Arc<StatsCache>,
    /// The facts known about the pool's safety.
    scan_state: Arc<ScanState>,
    /// The news of spaces that follow the pool's defaults.
    followed: Arc<FollowedDefaults>,
    /// The audit log: calls that were refused, and changes to what others may do.
    audit_log: Arc<AuditLog>,
    /// The state directory, held as long as anything of this manager lives.
    state: Arc<StateDir>,
}

impl Handles {
    /// Returns the handles for answering a call, which read the catalog on behalf of `reader`. All others read it for
    /// the manager.
    pub fn read_by(&self, reader: ReadFor) -> Self {
        Self { catalog: self.catalog.read_by(reader), ..self.clone() }
    }
}

/// Defines a struct of handles that is made from [`Handles`]. A field may itself be such a struct.
macro_rules! handles {
    ($(#[$about:meta])* $vis:vis struct $name:ident { $($field:ident: $of:ty),* $(,)? }) => {
        $(#[$about])*
        #[derive(Clone)]
        $vis struct $name {
            $($field: $of,)*
        }

        impl From<&$crate::handles::Handles> for $name {
            fn from(all: &$crate::handles::Handles) -> Self {
                Self { $($field: all.into(),)* }
            }
        }
    };
}
pub(crate) use handles;
