//! The handles on a manager's parts, and how each call and each task is given those that it uses.
//!
//! A group of calls or a background task is a struct of the handles that it works with, made by
//! [`handles!`]: its fields say what it can touch. Only what starts tasks and dispatches calls has
//! all of them.

use crate::callers::Members;
use crate::gc_freeze::GcFreeze;
use crate::inventory_turns::InventoryTurns;
use crate::log::copies::Copies;
use crate::metrics::counted::Metrics;
use crate::own_term::OwnTerm;
use crate::pool_time::PoolTime;
use crate::scan_state::ScanState;
use crate::settings::Settings;
use crate::shared_pool::SharedPool;
use crate::stats_cache::StatsCache;
use crate::unproven_terms::UnprovenTerms;
use crate::wakeup::Wakeup;
use potluck_catalog::Catalog;
use potluck_recovery::ca::Ca;
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
    /// How it was told to run.
    settings: Arc<Settings>,
    /// The outside world: time, chance, and the network.
    env: Env,
    /// The pool's time.
    time: PoolTime,
    /// Which of the pool's terms this is.
    term: Arc<OwnTerm>,
    /// The soft state of the pool.
    pool: SharedPool,
    /// The hard state of the pool.
    catalog: Catalog,
    /// Memory for what is asked.
    bodies: Arc<Bodies>,
    /// Turns of donors that list what they hold.
    inventory_turns: Arc<InventoryTurns>,
    /// Who is who.
    members: Arc<Members>,
    /// Vouches for members.
    ca: Arc<Ca>,
    /// Where this manager is.
    signpost: Arc<Signpost>,
    /// Wakes the background work.
    background: Wakeup,
    /// Why nothing is reclaimed.
    gc_freeze: Arc<GcFreeze>,
    /// What donors told of other managers without proof.
    unproven_terms: Arc<UnprovenTerms>,
    /// How the copies of the metadata log are kept.
    log: Arc<Copies>,
    /// Figures for monitoring.
    metrics: Arc<Metrics>,
    /// Figures for status.
    stats: Arc<StatsCache>,
    /// The facts known about the pool's safety.
    scan_state: Arc<ScanState>,
    /// The directory, held as long as anything of this manager lives.
    state: Arc<StateDir>,
}

/// Makes a struct of handles that is taken from [`Handles`], or from structs that are.
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
