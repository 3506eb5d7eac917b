//! Brings a pool back whose manager is lost: the metadata log, the recovery kit, and the restore.
//!
//! [`log`] is the catalog's changes as sealed blocks, in a file and on donors; the manager writes it while it
//! runs. [`kit`] holds the keys, which no donor has; [`pool_authority`] replaces them. [`restore_pool`] and [`restore_file`] make a state directory
//! ([`state_dir`]) from the log and the kit; [`adopt_newer`] exchanges the catalog of one for a newer that donors keep.

pub mod admin;
pub mod backups;
pub mod ca;
mod error;
pub mod kit;
pub mod log;
pub mod pool_authority;
mod restore;
pub mod state_dir;
pub mod term_proof;
pub mod whereabouts;

pub use backups::backup;
pub use error::StateError;
pub use log::chain::{ChainId, FoundChain, Gaps};
pub use restore::{
    Adopted, ListenOptions, Replayed, Restore, RestoreExtent, Restored, Unlisted, adopt_newer,
    restore_file, restore_pool,
};
