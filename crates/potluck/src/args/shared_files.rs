//! Commands about files that several writers write at once.

use clap::Subcommand;
use potluck_core::path::PoolPath;
use std::ffi::OsString;

#[derive(Debug, Subcommand)]
pub enum SharedArgs {
    /// Have writers share a file until `commit` says that all of it is written
    #[command(
        after_help = "Example:\n  potluck write-shared begin pot://lab/out.bin\n\nWithout it the last writer that finishes makes the version, and a file stays shared for ten minutes after that."
    )]
    Begin(SharedPathArgs),
    /// Write a range of a shared file, while others write other ranges of it
    #[command(
        after_help = "Examples:\n  potluck write-shared write part-3 pot://lab/out.bin --at 3GiB\n  my-program | potluck write-shared write - pot://lab/out.bin --at 0 --name rank-0\n\nOf bytes that another writer has, nothing is written (exit code 10)."
    )]
    Write(SharedWriteArgs),
    /// Make one version of all that was written; what nobody wrote is as it was before, or zeros
    #[command(
        after_help = "Examples:\n  potluck write-shared commit pot://lab/out.bin\n  potluck write-shared commit pot://lab/out.bin --leave-out rank-3     (it went away in the middle)\n\nWhile writers have not finished there is no version, and they are named (exit code 10)."
    )]
    Commit(SharedCommitArgs),
    /// Give up what was written since the last version; the file is no longer shared
    #[command(after_help = "Example:\n  potluck write-shared abort pot://lab/out.bin")]
    Abort(SharedPathArgs),
    /// List the files that writers share, or the writers of one
    #[command(
        after_help = "Examples:\n  potluck write-shared ls\n  potluck write-shared ls pot://lab/out.bin"
    )]
    Ls(SharedLsArgs),
}

#[derive(Debug, clap::Args)]
pub struct SharedPathArgs {
    /// pot://SPACE/PATH
    pub path: PoolPath,
}

#[derive(Debug, clap::Args)]
pub struct SharedWriteArgs {
    /// A local file, or - for standard input
    pub source: OsString,
    /// pot://SPACE/PATH
    pub path: PoolPath,
    /// Where the first byte goes, such as 4096 or 3GiB
    #[arg(long, value_name = "OFFSET", default_value = "0", value_parser = potluck_core::size::parse_size)]
    pub at: u64,
    /// The name of this writer, which none of the others has; default: one by lot
    #[arg(long)]
    pub name: Option<String>,
}

#[derive(Debug, clap::Args)]
pub struct SharedCommitArgs {
    /// pot://SPACE/PATH
    pub path: PoolPath,
    /// Take nothing of this writer; may be repeated
    #[arg(long, value_name = "NAME")]
    pub leave_out: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub struct SharedLsArgs {
    /// pot://SPACE/PATH
    pub path: Option<PoolPath>,
}
