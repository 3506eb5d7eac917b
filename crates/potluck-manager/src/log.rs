//! The metadata log: every change to names, members and policies lies in two copies seconds or a minute
//! later, one on donors and one in a file, so that a lost catalog can be made again from either.
//!
//! Changes are noted as rows in the transactions that make them ([`potluck_catalog::changes`]). Each copy
//! takes them as records in sealed blocks ([`copying`]), and notes the last row that it has in the
//! transaction that forgets what both have. A copy begins with a base, the whole state of one moment. When the changes
//! since outweigh the base, a new generation begins with another; so what a copy costs follows what
//! changes, and what a restore reads follows what there is.

pub mod adapting;
pub mod backup;
pub mod block;
pub mod chain;
pub mod copies;
pub mod copying;
pub mod donors;
pub mod file;
pub mod put;

use crate::service::Service;
use potluck_catalog::Error;
use potluck_core::placement::Refusal;
use potluck_pool::TooManyOffered;
use potluck_wire::peer_connection::PeerError;

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
    #[error("it has more chunks than its session may write")]
    TooMany(#[from] TooManyOffered),
    #[error("no donor took it")]
    NoDonor,
    #[error(transparent)]
    Donor(#[from] PeerError),
    #[error("the recovery key: {0}")]
    File(#[from] std::io::Error),
}

#[cfg(test)]
mod tests;
