//! Keeps the copies of the metadata log ([`potluck_recovery::log`]): one on donors, one in a file.

pub mod adapting;
pub mod backup;
pub mod copies;
pub mod copy_on_donors;
pub mod metadata_writer;

use crate::pool_time::PoolTime;
use crate::shared_pool::SharedPool;
use potluck_catalog::Error;
use potluck_core::placement::Refusal;
use potluck_pool::TooManyOffered;
use potluck_wire::peer_connection::PeerError;

/// Returns whether any donor can take copies now.
pub fn any_taker(pool: &SharedPool, time: &PoolTime) -> bool {
    !pool.lock().takers(time.tick()).is_empty()
}

/// The reason why the pool did not take a part of its own metadata.
#[derive(Debug, thiserror::Error)]
pub enum MetadataTrouble {
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
