//! Commands about files and directories.

use super::{Caution, GLOBAL, PolicyOptions, RetentionOptions};
use clap::ArgAction;
use potluck_core::path::PoolPath;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Default, clap::Args)]
pub struct CpArgs {
    /// The sources: local paths, or pot:// paths, or `-`; DIR/. means what is in DIR. In the last name of
    /// a pot:// path * and ? match several, in quotes
    #[arg(required = true)]
    pub from: Vec<OsString>,
    /// Where to: the name of the copy, or with / at its end the directory that takes it in
    pub to: OsString,
    /// Copy directories with what is in them
    #[arg(short, long)]
    pub recursive: bool,
    /// Like -r, and also keep owners as numbers, all bits of modes but set-user-ID and set-group-ID of local copies' files,
    /// and the times of directories; only root can give local copies away
    #[arg(short, long, conflicts_with = "dereference")]
    pub archive: bool,
    /// Of a local tree, store what symbolic links lead to, files and directories, not the links
    #[arg(short = 'L', long, requires = "recursive")]
    pub dereference: bool,
    #[command(flatten)]
    pub policy: PolicyOptions,
    /// All files become visible in the pool at one moment, when the last is stored, or none does; by
    /// default each does soon after it is stored
    #[arg(long)]
    pub atomic: bool,
    /// Only if nothing is at the target, in the pool or here (exit code 10 otherwise)
    #[arg(long, conflicts_with = "if_version")]
    pub if_absent: bool,
    /// Only if the file in the pool, written or read, is at this version (exit code 10 otherwise)
    #[arg(long, value_name = "VERSION")]
    pub if_version: Option<u64>,
    /// Of one source in the pool, this version, which `potluck versions` lists
    #[arg(long, value_name = "N", conflicts_with = "if_version")]
    pub version_id: Option<u64>,
    /// Let a stream that brings nothing, as of a command that failed, replace a file that has content
    #[arg(long)]
    pub allow_empty: bool,
    /// Store a local file as it is read though it changes meanwhile, as a log does; by default it is read
    /// twice at most, and not stored if it changed both times
    #[arg(long)]
    pub allow_changing: bool,
}

#[derive(Debug, clap::Args)]
pub struct SyncArgs {
    /// The directory that is copied: a local one or pot://SPACE/DIR
    pub from: OsString,
    /// The directory that becomes like it, and is made if need be; one of the two is in the pool
    pub to: OsString,
    /// Remove what only the second has, once all else is copied; removed pool files go to the trash where the policy
    /// keeps one
    #[arg(long)]
    pub delete: bool,
    /// Compare contents by their digests, which reads all local files; by default a file of the same size and
    /// modification time is the same
    #[arg(long)]
    pub digest: bool,
    /// Only say what would be copied and removed
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub policy: PolicyOptions,
}

#[derive(Debug, clap::Args)]
pub struct LsArgs {
    /// The paths to list; default: the spaces. In the last name * and ? match several, in quotes
    #[arg(default_value = "pot://")]
    pub paths: Vec<PoolPath>,
    /// Sizes, times and versions
    #[arg(short, long)]
    pub long: bool,
    /// With -l, sizes in bytes, not rounded
    #[arg(short, long, requires = "long")]
    pub bytes: bool,
    /// Everything below
    #[arg(short, long, visible_short_alias = 'R')]
    pub recursive: bool,
    /// What was modified last comes first
    #[arg(short = 't', long = "sort-time", overrides_with = "by_size")]
    pub by_time: bool,
    /// The largest comes first
    #[arg(short = 'S', long = "sort-size", overrides_with = "by_time")]
    pub by_size: bool,
    /// Sizes for people, which is the default: nothing else is meant by -h here
    #[arg(short = 'h', long = "human-readable", conflicts_with = "bytes")]
    pub human: bool,
    // The general -h gives way to the one that people know from `ls`.
    /// Print help
    #[arg(long, global = true, action = ArgAction::Help, help_heading = GLOBAL)]
    help: Option<bool>,
}

#[derive(Debug, clap::Args)]
pub struct DuArgs {
    /// The paths to add up. In the last name * and ? match several, in quotes
    #[arg(required = true)]
    pub paths: Vec<PoolPath>,
    /// Only the sum of each path, not what is directly in it
    #[arg(short, long)]
    pub summarize: bool,
    /// Sizes for people, which is the default: nothing else is meant by -h here
    #[arg(short = 'h', long = "human-readable")]
    pub human: bool,
    // As in `LsArgs`.
    /// Print help
    #[arg(long, global = true, action = ArgAction::Help, help_heading = GLOBAL)]
    help: Option<bool>,
}

#[derive(Debug, clap::Args)]
pub struct StatArgs {
    /// pot://SPACE/PATH
    pub path: PoolPath,
    /// Every chunk of a file, the first 100,000: who holds it, and how it stands with its copies
    #[arg(long)]
    pub chunks: bool,
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct ExplainArgs {
    /// pot://SPACE/PATH of a file
    #[arg(required = true)]
    pub path: Option<PoolPath>,
    #[command(subcommand)]
    pub action: Option<ExplainAction>,
}

/// A command that is carried out and explained.
#[derive(Debug, clap::Subcommand)]
pub enum ExplainAction {
    /// Copy files as `potluck cp` does, and say which donors took part and what limited the rate
    #[command(after_help = "Example:\n  potluck explain cp data.tar pot://lab/")]
    Cp(Box<CpArgs>),
}

#[derive(Debug, clap::Args)]
pub struct CatArgs {
    /// pot://SPACE/PATH, one after the other. In the last name * and ? match several, in quotes
    #[arg(required = true)]
    pub paths: Vec<PoolPath>,
    /// First and last byte of each, as in HTTP: 0-1023, 4096-, or -100 for the last 100 bytes
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true)]
    pub range: Option<String>,
    /// This version of the only path, which `potluck versions` lists
    #[arg(long, value_name = "N")]
    pub version_id: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub struct HashArgs {
    /// Local files, or - for standard input
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct MvArgs {
    /// What. In the last name * and ? match several, in quotes
    #[arg(required = true)]
    pub from: Vec<PoolPath>,
    /// Where to: the new name, or with / at its end the directory that takes it in
    pub to: OsString,
    /// Never replace anything (exit code 10), and do not ask
    #[arg(short, long, alias = "if-absent", conflicts_with = "yes")]
    pub no_replace: bool,
    /// Replace a file that is there without asking
    #[arg(short, long)]
    pub yes: bool,
}

#[derive(Debug, clap::Args)]
pub struct RmArgs {
    /// What. In the last name * and ? match several, in quotes
    #[arg(required = true)]
    pub paths: Vec<PoolPath>,
    /// Directories with what is in them
    #[arg(short, long)]
    pub recursive: bool,
    /// Say nothing if it is not there, and do not ask
    #[arg(short, long)]
    pub force: bool,
    /// Keep nothing of it, whatever the policy says, nor its old versions
    #[arg(long)]
    pub forever: bool,
    #[command(flatten)]
    pub caution: Caution,
}

#[derive(Debug, clap::Args)]
pub struct MkdirArgs {
    /// Where
    pub path: PoolPath,
    /// Make missing parents too, and accept one that exists
    #[arg(short, long)]
    pub parents: bool,
    #[command(flatten)]
    pub policy: PolicyOptions,
    #[command(flatten)]
    pub retention: RetentionOptions,
}

#[derive(Debug, clap::Args)]
pub struct TreeArgs {
    /// pot://SPACE/PATH
    pub path: PoolPath,
    /// How deep to go
    #[arg(long, value_name = "N")]
    pub depth: Option<usize>,
}
