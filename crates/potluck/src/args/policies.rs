//! Commands about spaces and policies.

use super::{
    Caution, RetentionOptions, SeriesOptions, SpaceGrantArgs, SpaceRevokeArgs, SpaceWhoArgs,
};
use clap::Subcommand;
use potluck_core::erasure::Ec;
use potluck_core::path::PoolPath;
use potluck_core::placement::near::Near;
use potluck_core::policy::{AckLevel, Cutting, Mirror, Race, Width};
use potluck_core::size::parse_size;

/// The parts of the policy that one command sets differently from the space's.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct PolicyOptions {
    /// Copies of every chunk, each on its own donor
    #[arg(long, value_name = "N", conflicts_with = "ec", value_parser = copies)]
    pub copies: Option<u32>,
    /// Erasure code instead of copies: data + parity chunks, such as 4+2; any 4 of the 6 suffice
    #[arg(long, value_name = "M+K")]
    pub ec: Option<Ec>,
    /// Who makes copies: client-sync, client-async, server-sync or server-async; an async write
    /// returns when one copy is stored
    #[arg(long, value_name = "PROTOCOL")]
    pub mirror: Option<Mirror>,
    /// Chunks of an erasure code that reads ask for beyond those they need: auto, off or a number
    #[arg(long, value_name = "RACE")]
    pub race: Option<Race>,
    /// Donors that a file is written to at once: auto (as few as fill this machine's link, or up
    /// to 16 where that is not known) or a number
    #[arg(long, value_name = "N")]
    pub width: Option<Width>,
    /// Chunks in a row that go to one donor before it is the turn of the next, 1 to 256
    #[arg(long, value_name = "N")]
    pub stripe_size: Option<u32>,
    /// The part of a file that lies on this machine's own donor: elsewhere (none, if others can keep it as
    /// well), anywhere (as on others), here (as much as makes reading it here fastest), or here:40%
    #[arg(long, value_name = "WHERE")]
    pub near: Option<Near>,
    /// Bytes per chunk, a power of two from 64KiB to 64MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub chunk_size: Option<u64>,
    /// Where chunks end: fixed (all are of one size) or content (where the bytes say, so that what follows
    /// inserted bytes is not sent again; chunks of a quarter of the chunk size and more)
    #[arg(long, value_name = "HOW")]
    pub cut: Option<Cutting>,
    /// When a write counts: memory (survives kill -9) or disk (survives a power cut)
    #[arg(long, value_name = "LEVEL")]
    pub ack: Option<AckLevel>,
    /// Refuse a write while donors are away that its redundancy needs; by default it goes on, below
    /// policy, if one more donor may die then, and repair completes it. --strict=false undoes it
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub strict: Option<bool>,
    /// Files that were imported have one copy and may be evicted: what is lost of them comes from their origin.
    /// --cache=false keeps them
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub cache: Option<bool>,
}

#[derive(Debug, Subcommand)]
pub enum SpaceArgs {
    /// Make a space
    #[command(
        after_help = "Examples:\n  potluck space create lab --copies 2\n  potluck space create archive --ec 4+2\n  potluck space create scratch --copies 2 --mirror server-async"
    )]
    Create(SpaceCreateArgs),
    /// Remove a space
    #[command(
        after_help = "Examples:\n  potluck space rm scratch           (an empty one)\n  potluck space rm -r scratch -n     (what would be lost)\n  potluck space rm -r scratch        (asks)"
    )]
    Rm(SpaceRmArgs),
    /// List the spaces that you may see
    #[command(after_help = "Example:\n  potluck space ls --json")]
    Ls,
    /// Let users or groups do more in a space that you manage
    #[command(
        after_help = "Examples:\n  potluck space grant lab ada read write\n  potluck space grant lab everyone list\n  potluck space grant lab students read\n\nRights:\n  list     see names, sizes and times\n  read     read files, and list\n  write    make, replace, move and remove files and directories, and list\n  manage   all of these; set policies, grant rights, remove the space"
    )]
    Grant(SpaceGrantArgs),
    /// Let users or groups do less in a space that you manage, at once
    #[command(
        after_help = "Examples:\n  potluck space revoke lab ada write\n  potluck space revoke lab everyone          (all rights)\n\nIt takes what was granted to just that user or group: who is in several groups keeps what others give."
    )]
    Revoke(SpaceRevokeArgs),
    /// Give a sealed space a new key, and seal its files again with it
    ///
    /// Who could read a space may have kept its key. After they lose that right, a new key keeps from them what
    /// is written from then on, and, once sealed again, what was there before. Every file is read and stored again
    /// by this machine, old versions included, and needs room for a while; nobody else notices.
    #[command(
        after_help = "Examples:\n  potluck space rekey lab                      (interrupted, it goes on where it was)\n  potluck space rekey lab --new-writes-only    (the new key now, old files later)\n  potluck space rekey lab --new-key            (another key though the last change is unfinished)"
    )]
    Rekey(SpaceRekeyArgs),
    /// Show who may do what in a space
    #[command(after_help = "Example:\n  potluck space who lab")]
    Who(SpaceWhoArgs),
}

#[derive(Debug, clap::Args)]
pub struct SpaceCreateArgs {
    /// Its name: a-z 0-9 . _ -
    pub name: String,
    /// Store files as they are, readable on the donors' disks
    #[arg(long, conflicts_with = "seal")]
    pub plain: bool,
    /// Encrypt files before they leave the client (the default)
    #[arg(long)]
    pub seal: bool,
    #[command(flatten)]
    pub policy: PolicyOptions,
    #[command(flatten)]
    pub retention: RetentionOptions,
}

#[derive(Debug, clap::Args)]
pub struct SpaceRekeyArgs {
    /// The space; who manages it and may read and write there may
    #[arg(value_name = "SPACE", value_parser = super::rights::space_name)]
    pub space: String,
    /// Only change the key; run the command again to seal what is there
    #[arg(long)]
    pub new_writes_only: bool,
    /// Make another key, also where an earlier change of the key is unfinished
    #[arg(long)]
    pub new_key: bool,
}

#[derive(Debug, clap::Args)]
pub struct SpaceRmArgs {
    /// Its name
    pub name: String,
    /// With all that is in it
    #[arg(short, long)]
    pub recursive: bool,
    #[command(flatten)]
    pub caution: Caution,
}

#[derive(Debug, Subcommand)]
pub enum PolicyArgs {
    /// Show the policy that holds at a path
    #[command(after_help = "Example:\n  potluck policy show pot://lab/runs")]
    Show(PolicyShowArgs),
    /// Change what holds at a space or directory, and how safe its files are
    #[command(
        after_help = "Examples:\n  potluck policy set pot://lab/runs --ec 4+2 -n     (what it means)\n  potluck policy set pot://lab/runs --ec 4+2\n  potluck policy set pot://lab --copies 3 --new-files-only\n  potluck policy set pot://lab --keep-versions 30d,10 --trash 7d\n  potluck policy set pot://lab/run7 --keep-last 3 --purge-after 30d     (steps of a series)\n\nFiles that are there are changed in the background; until a file has its new redundancy it keeps\nthe old one whole."
    )]
    Set(PolicySetArgs),
}

#[derive(Debug, clap::Args)]
pub struct PolicyShowArgs {
    /// A space, directory or file
    pub path: PoolPath,
}

#[derive(Debug, clap::Args)]
pub struct PolicySetArgs {
    /// A space, a directory, or a file; who manages the space may
    pub path: PoolPath,
    #[command(flatten)]
    pub policy: PolicyOptions,
    #[command(flatten)]
    pub retention: RetentionOptions,
    #[command(flatten)]
    pub series: SeriesOptions,
    /// Leave files that are there as they are
    #[arg(long)]
    pub new_files_only: bool,
    #[command(flatten)]
    pub caution: Caution,
}

/// Parses a number of copies.
fn copies(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| format!("“{text}” is no number of copies: write it in digits, such as 2"))
}
