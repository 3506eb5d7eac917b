//! Commands about mounts.

use potluck_core::path::PoolPath;
use potluck_core::size::parse_size;
use potluck_mount::{CloseLevel, WriteProtocol};
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct MountArgs {
    /// pot://SPACE, pot://SPACE/DIR, or pot:// for all spaces
    pub path: PoolPath,
    /// An empty directory of this machine
    pub dir: PathBuf,
    /// Stay in the foreground, and log on standard error
    #[arg(long)]
    pub foreground: bool,
    /// Mount also what you have mounted elsewhere on this machine. A file that is then moved from one mount to itself in
    /// the other is lost: programs take it for two files
    #[arg(long)]
    pub again: bool,
    /// Nothing can be changed through the mount
    #[arg(long)]
    pub read_only: bool,
    /// No program that is stored in it can be started
    #[arg(long)]
    pub no_exec: bool,
    /// Let other users of this machine look in, too (needs `user_allow_other` in /etc/fuse.conf)
    #[arg(long)]
    pub allow_other: bool,
    /// The most that files which are written may take on this machine, temporary files included; default: spool-max of
    /// config.toml, or half of what is free there
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub spool_max: Option<u64>,
    /// How files that are written in order go to donors: sliding-window (from memory), incremental (by way of temporary
    /// files), hybrid (by way of both), local (when they are closed), or auto; default: write-protocol of config.toml,
    /// or auto
    #[arg(long, value_name = "PROTOCOL")]
    pub write_protocol: Option<WriteProtocol>,
    /// Bytes in memory that programs have written and donors were not given yet; default: write-window of config.toml,
    /// or 32MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub write_window: Option<u64>,
    /// Bytes of each temporary file, of which a file that is written has four at most; default: temporary-size of
    /// config.toml, or 64MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub temporary_size: Option<u64>,
    /// What close() waits for: pool (others see the file, and it is as safe as the policy says), local (it is on this
    /// machine's disk, and goes to the pool afterwards, also after a restart), or memory (this machine's memory, which
    /// the death of the mount empties); default: close of config.toml, or pool
    #[arg(long, value_name = "LEVEL", overrides_with = "close")]
    pub close: Option<CloseLevel>,
    /// The most that what was read may take in the cache of this user's mounts; 0: nothing is kept on disk; default:
    /// cache-max of config.toml, or 0
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub cache_max: Option<u64>,
    /// Write a file when it is mounted: {"pid", "path", "dir", "log"}
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
    /// Set for the daemon that a command starts, which says on standard output how its start ended
    #[arg(long, hide = true, env = START_REPORT, hide_env = true, value_parser = clap::builder::FalseyValueParser::new())]
    pub reports_start: bool,
}

/// The environment variable by which a command has its daemon report its start.
pub const START_REPORT: &str = "POTLUCK_MOUNT_REPORTS_START";

#[derive(Debug, clap::Args)]
pub struct UmountArgs {
    /// Where the pool is mounted
    pub dir: PathBuf,
}
