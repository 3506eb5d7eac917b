//! Errors with which a donor does not start or cannot go on.

use crate::store::StoreError;
use potluck_wire::addresses::BadAddress;
use std::io;
use std::path::PathBuf;

/// The reason why a donor does not start or cannot go on. Its text says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum DonorError {
    /// The lent directory cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The donor's own state cannot be read or written.
    #[error("cannot keep the donor's state in {}: {why}. Check that the directory can be written, and that its disk has room", dir.display())]
    State {
        /// The directory that keeps the donor's state.
        dir: PathBuf,
        /// The error of the system.
        why: io::Error,
    },
    /// A configured address cannot be told to others as this donor's address.
    #[error("--advertise: {0}")]
    Advertise(#[from] BadAddress),
    /// The donor cannot listen at its port.
    #[error(
        "cannot listen at {address}: {why}. If another donor of this machine has the port, give this one another with --listen, such as [::]:7801, and open that in the firewall; `ss -ltnp` shows which program has it"
    )]
    Listen {
        /// The address to listen at, as `host:port`.
        address: String,
        /// The error of the system.
        why: io::Error,
    },
    /// A configured path is relative, so it would mean another place when the working directory changes.
    #[error("{} is not an absolute path: write it from the root", .0.display())]
    RelativePath(PathBuf),
}
