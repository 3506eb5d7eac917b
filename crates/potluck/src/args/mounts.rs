//! Commands about mounts.

use potluck_core::path::PoolPath;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct MountArgs {
    /// pot://SPACE, pot://SPACE/DIR, or pot:// for all spaces
    pub path: PoolPath,
    /// An empty directory of this machine
    pub dir: PathBuf,
    /// Nothing can be changed through the mount
    #[arg(long)]
    pub read_only: bool,
    /// Let other users of this machine look in, too (needs `user_allow_other` in /etc/fuse.conf)
    #[arg(long)]
    pub allow_other: bool,
    /// Write a file when it is mounted: {"pid", "dir"}
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct UmountArgs {
    /// Where the pool is mounted
    pub dir: PathBuf,
}
