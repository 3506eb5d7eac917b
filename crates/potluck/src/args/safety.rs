//! Commands about the safety of data: status, verification, repair and scrub.

use clap::Subcommand;
use potluck_core::path::PoolPath;
use potluck_core::size::parse_size;

/// The options of a command that moves much or loses something.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Caution {
    /// Only say what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}

#[derive(Debug, Subcommand)]
pub enum RepairArgs {
    /// Show what is being made again, how fast, and when it is done
    #[command(after_help = "Example:\n  potluck repair status --watch")]
    Status(WatchArgs),
    /// Begin nothing new
    #[command(after_help = "Example:\n  potluck repair pause")]
    Pause,
    /// Go on
    #[command(after_help = "Example:\n  potluck repair resume")]
    Resume,
    /// Look at everything now, and wait no longer for donors that are silent and announced nothing
    #[command(
        after_help = "Examples:\n  potluck repair now --watch\n  potluck nodes away bench-7 --end    (first, for a donor that announced its absence)"
    )]
    Now(WatchArgs),
}

#[derive(Debug, Clone, Copy, clap::Args)]
pub struct WatchArgs {
    /// Stay until nothing is left to be made
    #[arg(long)]
    pub watch: bool,
}

#[derive(Debug, Subcommand)]
pub enum ScrubArgs {
    /// Read back what donors hold, now
    #[command(
        after_help = "Examples:\n  potluck scrub now                    (all donors)\n  potluck scrub now bench-7 --rate 200MiB\n  potluck scrub now --wait             (for cron: exit code 4 if something was spoiled)"
    )]
    Now(ScrubNowArgs),
    /// How far the donors' reading is, and what it found
    #[command(after_help = "Example:\n  potluck scrub status")]
    Status,
}

#[derive(Debug, clap::Args)]
pub struct ScrubNowArgs {
    /// Which donor, by name or number; default: all
    pub donor: Option<String>,
    /// Bytes a second that each reads, at least 64KiB
    #[arg(long, default_value = "100MiB", value_name = "SIZE", value_parser = parse_size)]
    pub rate: u64,
    /// Stay until all is read: exit code 4 if something was found spoiled, or a donor went silent
    #[arg(long)]
    pub wait: bool,
}

#[derive(Debug, Clone, Copy, clap::Args)]
pub struct StatusArgs {
    /// For cron: say nothing while the pool is healthy, else why it is not, and end with 4 (degraded),
    /// 7 (unavailable) or 5 (not known yet)
    #[arg(long)]
    pub check: bool,
}

#[derive(Debug, clap::Args)]
pub struct VerifyArgs {
    /// A file, or with -r a directory or space
    pub path: PoolPath,
    /// Everything below a directory
    #[arg(short, long)]
    pub recursive: bool,
    /// Read every byte, too, and compare it with its digest: one copy of each, as a reader would. All
    /// copies are read by `potluck scrub now`
    #[arg(long)]
    pub read: bool,
}

#[derive(Debug, clap::Args)]
pub struct FsckArgs {
    /// Where to look; default: everywhere
    #[arg(default_value = "pot://")]
    pub path: PoolPath,
}
