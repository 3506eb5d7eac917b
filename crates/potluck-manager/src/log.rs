//! The metadata log: every change to names, members and policies lies in two copies seconds or a minute
//! later, one on donors and one in a file, so that a lost catalog can be made again from either.
//!
//! Changes are noted as rows in the transactions that make them ([`potluck_catalog::changes`]). Each copy
//! takes them as records in sealed segments ([`copying`]), and notes the last row that it has in the
//! transaction that forgets what both have. A copy begins with a base, the whole state of one moment. When the changes
//! since outweigh the base, a new generation begins with another; so what a copy costs follows what
//! changes, and what a restore reads follows what there is.

pub mod adapting;
pub mod backup;
pub mod chain;
pub mod copying;
pub mod donors;
pub mod file;
pub mod put;
pub mod segment;

use crate::service::Service;
use potluck_catalog::Error;
use potluck_core::clock::Tick;
use potluck_core::placement::Refusal;
use potluck_wire::peer_connection::PeerError;
use std::sync::Mutex;

/// Since when each copy of the log has all changes, and why it cannot be written.
#[derive(Debug, Default)]
pub struct Copies {
    /// The copy in a file.
    pub file: Kept,
    /// The copy on donors.
    pub donors: Kept,
}

/// How one copy of the log is kept.
#[derive(Debug, Default)]
pub struct Kept(Mutex<(Option<Tick>, Option<String>)>);

impl Kept {
    /// It is written without trouble, and had all changes at the moment `complete`, if it ever had.
    pub fn well(&self, complete: Option<Tick>) {
        *self.0.lock().expect("no holder panics") = (complete, None);
    }

    /// When it was last known to have all changes.
    pub fn complete_at(&self) -> Option<Tick> {
        self.0.lock().expect("no holder panics").0
    }

    /// It cannot be written.
    pub fn failing(&self, why: String) {
        self.0.lock().expect("no holder panics").1 = Some(why);
    }

    /// Seconds since it was last known to have all changes.
    pub fn seconds(&self, now: Tick) -> Option<u64> {
        Some(now.saturating_sub(self.complete_at()?).as_secs())
    }

    /// Why the last attempt to write it failed, if it did.
    pub fn failed(&self) -> Option<String> {
        self.0.lock().expect("no holder panics").1.clone()
    }
}

/// Whether a donor is there that takes anything.
pub fn any_taker(service: &Service) -> bool {
    !service.pool().takers(service.time.tick()).is_empty()
}

/// Why the pool did not take a part of its own metadata.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error(transparent)]
    Catalog(#[from] Error),
    #[error("no room for it: {0}")]
    NoPlace(#[from] Refusal),
    #[error("the write session is over")]
    Ended,
    #[error("no donor took it")]
    NoDonor,
    #[error(transparent)]
    Donor(#[from] PeerError),
    #[error("the recovery key: {0}")]
    File(#[from] std::io::Error),
}

#[cfg(test)]
mod tests;
