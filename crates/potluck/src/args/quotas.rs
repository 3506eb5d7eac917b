//! Commands about quotas.

use clap::Subcommand;
use potluck_core::quota::LimitChange;
use potluck_core::size::parse_size;

#[derive(Debug, Subcommand)]
pub enum QuotaArgs {
    /// Limit what may be stored in a space, or in all spaces that a user makes
    #[command(
        after_help = "Examples:\n  potluck quota set pot://lab --bytes 2TiB\n  potluck quota set ada --bytes 500GiB --files 1000000\n  potluck quota set ada --files none\n  potluck quota set ada --none\n\nSizes are those of the files, without copies. Nothing that is there is removed."
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
    /// The most bytes, or `none`; as before where it is not said
    #[arg(long, value_name = "SIZE", value_parser = most_bytes, required_unless_present_any = ["files", "none"])]
    pub bytes: Option<LimitChange>,
    /// The most files, with directories, links and snapshots, or `none`; as before where it is not said
    #[arg(long, value_name = "N", value_parser = most_files)]
    pub files: Option<LimitChange>,
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

/// The word that removes a limit.
const NO_LIMIT: &str = "none";

fn most_bytes(text: &str) -> Result<LimitChange, String> {
    match text {
        NO_LIMIT => Ok(LimitChange::Remove),
        _ => parse_size(text).map(LimitChange::Most).map_err(|why| why.to_string()),
    }
}

fn most_files(text: &str) -> Result<LimitChange, String> {
    match text {
        NO_LIMIT => Ok(LimitChange::Remove),
        _ => text.parse().map(LimitChange::Most).map_err(|_| "give a number, or none".to_owned()),
    }
}
