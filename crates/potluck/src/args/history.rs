//! Commands about old versions of files, and about removed files.

use super::Caution;
use clap::Subcommand;
use potluck_core::path::PoolPath;
use potluck_core::policy::{KeptTime, KeptVersions};

/// What is kept of files that are replaced or removed.
#[derive(Debug, Clone, clap::Args)]
pub struct RetentionOptions {
    /// Keep the versions of files that others take the place of: so many of the newest, those of a time, or both,
    /// such as 10, 30d or 30d,10; none: they are gone at once
    #[arg(long, value_name = "VERSIONS")]
    pub keep_versions: Option<KeptVersions>,
    /// Keep what is removed for this time, such as 7d, so that `undelete` brings it back; none: it is gone at
    /// once; by default as the pool says (`pool.trash`), or as long as versions are kept, a week by number
    #[arg(long, value_name = "TIME")]
    pub trash: Option<KeptTime>,
}

/// Which of the files and directories in a directory are purged.
#[derive(Debug, Clone, clap::Args)]
pub struct SeriesOptions {
    /// Of the files and directories in this directory, the steps of a series, purge those beyond so many of the newest;
    /// 0: none for that. Never the newest that is whole, and none that is pinned or being read
    #[arg(long, value_name = "K")]
    pub keep_last: Option<u32>,
    /// Purge steps that were modified longer ago, such as 30d, likewise; none: none for that
    #[arg(long, value_name = "TIME")]
    pub purge_after: Option<KeptTime>,
    /// Purge steps that nobody has read or written for longer, such as 90d, likewise; none: none for that
    #[arg(long, value_name = "TIME")]
    pub purge_unused: Option<KeptTime>,
}

#[derive(Debug, clap::Args)]
pub struct PinArgs {
    /// pot://SPACE/PATH of files and directories
    #[arg(required = true)]
    pub paths: Vec<PoolPath>,
}

#[derive(Debug, clap::Args)]
pub struct VersionsArgs {
    /// pot://SPACE/PATH, of a file that is there or was removed
    pub path: PoolPath,
}

#[derive(Debug, clap::Args)]
pub struct RevertArgs {
    /// pot://SPACE/PATH
    pub path: PoolPath,
    /// Which version; default: the one before the present
    #[arg(long, value_name = "N")]
    pub version_id: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub struct UndeleteArgs {
    /// pot://SPACE/PATH of files and directories that were removed
    #[arg(required = true)]
    pub paths: Vec<PoolPath>,
    /// Of a directory that is there, or comes back, also what was removed inside it before
    #[arg(short, long)]
    pub recursive: bool,
}

#[derive(Debug, Subcommand)]
pub enum TrashArgs {
    /// List what was removed at and below a path, and can be brought back
    #[command(after_help = "Example:\n  potluck trash ls pot://lab")]
    Ls(TrashLsArgs),
    /// Let what was removed, and old versions, go for good before their time is over
    #[command(
        after_help = "Examples:\n  potluck trash empty pot://lab/scratch -n     (what would go)\n  potluck trash empty pot://lab/scratch        (asks)\n  potluck trash empty pot://lab/big.h5 -y      (the old versions of one file)"
    )]
    Empty(TrashEmptyArgs),
}

#[derive(Debug, clap::Args)]
pub struct TrashLsArgs {
    /// pot://SPACE/PATH
    pub path: PoolPath,
}

#[derive(Debug, clap::Args)]
pub struct TrashEmptyArgs {
    /// pot://SPACE/PATH: of a file, what is kept of it; of a directory, all that is kept below it
    pub path: PoolPath,
    #[command(flatten)]
    pub caution: Caution,
}

#[derive(Debug, Subcommand)]
pub enum SnapshotArgs {
    /// Take a snapshot of a directory or a space: what is in it stays readable as it is now
    #[command(
        after_help = "Examples:\n  potluck snapshot create pot://lab/runs monday\n  potluck ls pot://lab/runs/.potluck/snapshots/monday\n  potluck cp -r pot://lab/runs/.potluck/snapshots/monday/d pot://lab/runs/d"
    )]
    Create(SnapshotPlaceArgs),
    /// List the snapshots of a directory
    #[command(after_help = "Example:\n  potluck snapshot ls pot://lab/runs")]
    Ls(SnapshotLsArgs),
    /// Remove a snapshot; what only it kept gives its room back
    #[command(after_help = "Example:\n  potluck snapshot rm pot://lab/runs monday")]
    Rm(SnapshotPlaceArgs),
}

#[derive(Debug, clap::Args)]
pub struct SnapshotPlaceArgs {
    /// pot://SPACE/DIR
    pub dir: PoolPath,
    /// The name of the snapshot
    pub name: String,
}

#[derive(Debug, clap::Args)]
pub struct SnapshotLsArgs {
    /// pot://SPACE/DIR
    pub dir: PoolPath,
}
