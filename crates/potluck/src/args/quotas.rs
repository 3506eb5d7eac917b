//! Commands about quotas.

use clap::Subcommand;
use potluck_core::size::parse_size;

#[derive(Debug, Subcommand)]
pub enum QuotaArgs {
    /// Limit what may be stored in a space, or in all spaces that a user makes
    #[command(
        after_help = "Examples:\n  potluck quota set pot://lab --bytes 2TiB\n  potluck quota set ada --bytes 500GiB --files 1000000\n  potluck quota set ada --none\n\nSizes are those of the files, without copies. Nothing that is there is removed."
    )]
    Set(QuotaSetArgs),
    /// Show the quota of a space or a user, and what is used of it
    #[command(after_help = "Example:\n  potluck quota get pot://lab")]
    Get(QuotaGetArgs),
    /// List quotas and what is used of them: yours, and of the spaces that you see; for admins all
    #[command(after_help = "Example:\n  potluck quota ls")]
    Ls,
}

#[derive(Debug, clap::Args)]
pub struct QuotaSetArgs {
    /// A space, or a user's name or number
    #[arg(value_name = "pot://SPACE|USER")]
    pub of: String,
    /// The most bytes
    #[arg(long, value_name = "SIZE", value_parser = parse_size, required_unless_present_any = ["files", "none"])]
    pub bytes: Option<u64>,
    /// The most files, with directories, links and snapshots
    #[arg(long, value_name = "N")]
    pub files: Option<u64>,
    /// No limits any more
    #[arg(long, conflicts_with_all = ["bytes", "files"])]
    pub none: bool,
}

#[derive(Debug, clap::Args)]
pub struct QuotaGetArgs {
    /// A space, or a user's name or number
    #[arg(value_name = "pot://SPACE|USER")]
    pub of: String,
}
