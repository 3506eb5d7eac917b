//! Commands about reserved space.

use clap::Subcommand;
use potluck_config::setting_kind as kind;
use potluck_core::ids::SessionId;
use potluck_core::path::PoolPath;
use potluck_core::size::parse_size;
use std::time::Duration;

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct ReserveArgs {
    #[command(subcommand)]
    pub verb: Option<ReserveVerb>,
    /// How many bytes of files, without copies
    #[arg(required = true, value_parser = parse_size)]
    pub size: Option<u64>,
    /// For what is written here, or below: pot://SPACE/PATH
    #[arg(required = true)]
    pub path: Option<PoolPath>,
    /// For how long, such as 4h; default: 24h
    #[arg(long = "for", value_name = "TIME", value_parser = kind::time)]
    pub time: Option<Duration>,
}

#[derive(Debug, Subcommand)]
pub enum ReserveVerb {
    /// List what is reserved in the spaces that you see, or about a path
    #[command(after_help = "Example:\n  potluck reserve ls")]
    Ls(ReserveLsArgs),
    /// Have what is left of a reservation be free for all
    #[command(after_help = "Example:\n  potluck reserve release 0123456789abcdef0123456789abcdef")]
    Release(ReserveReleaseArgs),
}

#[derive(Debug, clap::Args)]
pub struct ReserveLsArgs {
    /// pot://SPACE/PATH
    pub path: Option<PoolPath>,
}

#[derive(Debug, clap::Args)]
pub struct ReserveReleaseArgs {
    /// As `potluck reserve ls` shows it
    pub id: SessionId,
}
