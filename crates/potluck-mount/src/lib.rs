//! A pool as a file system for programs that know nothing of Potluck (docs/mount.md).
//!
//! An open reader keeps the version that it opened, unless programs lock the file. A file that is written becomes
//! visible whole when it is closed, and a mount that dies leaves the old version. `ops` answers the requests of FUSE:
//! those that have to wait become tasks of the runtime, so that no FUSE thread waits for the pool.

// Whether the futures of system calls may move between threads is a deeper question than the compiler asks by itself.
#![recursion_limit = "256"]

mod attaching;
mod closed_files;
mod coherent_metadata;
mod control_socket;
mod draft;
mod edit;
mod errno;
mod file_system;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod handles;
mod inodes;
mod interruption;
mod joint_content;
mod kernel_invalidation;
mod kernel_retries;
mod known_capacities;
mod locks;
mod metadata_cache;
mod mount_point;
mod mounting;
#[cfg(test)]
mod no_manager;
mod opener;
mod ops;
mod reading;
mod record;
mod shared_draft;
mod small_files;
#[cfg(test)]
mod small_manager;
mod spool;
mod staged_handles;
mod stream;
mod write_behind;
mod write_limits;
mod write_rates;

pub use attaching::{AttachError, detach_dead, is_mounted, mount_point, unmount};
pub use closed_files::{WaitingFile, waiting_files};
pub use control_socket::{MountQuestion, MountStatus};
pub use mounting::{MountOptions, Mounted, mount};
pub use record::{FoundRecord, RecordedMount, Unpublished, UnpublishedState, mount_name};
pub use write_limits::{CloseLevel, WriteOptions, WriteProtocol};
