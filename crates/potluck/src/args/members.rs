//! Commands about who belongs to the pool.

use super::Caution;
use clap::Subcommand;
use potluck_config::setting_kind as kind;
use potluck_wire::addresses::{Address, BadAddress, MANAGER_PORT};
use potluck_wire::token::Role;
use std::path::PathBuf;
use std::time::Duration;

/// Parses the address of a manager.
pub fn manager_address(text: &str) -> Result<Address, BadAddress> {
    Address::parse(text, MANAGER_PORT)
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct InviteArgs {
    #[command(subcommand)]
    pub action: Option<InviteAction>,
    #[command(flatten)]
    pub token: NewTokenArgs,
}

#[derive(Debug, Subcommand)]
pub enum InviteAction {
    /// List the tokens that can be used, and those that could until yesterday
    #[command(after_help = "Example:\n  potluck invite ls")]
    Ls,
    /// Remove tokens that nobody used: nobody can join with them any more
    #[command(after_help = "Example:\n  potluck invite rm 7")]
    Rm(InviteRmArgs),
}

#[derive(Debug, clap::Args)]
pub struct InviteRmArgs {
    /// Which, by the numbers that `potluck invite ls` shows
    #[arg(required = true, value_name = "NUMBER")]
    pub invitations: Vec<u32>,
}

#[derive(Debug, Subcommand)]
pub enum MembersArgs {
    /// List users, admins and donors: who they are, who invited them, when they were seen
    #[command(
        after_help = "Examples:\n  potluck members ls\n  potluck members ls --role user --revoked"
    )]
    Ls(MembersLsArgs),
    /// Remove members for ever: every later call of theirs is refused
    #[command(
        after_help = "Examples:\n  potluck members rm ada -n\n  potluck members rm ada 12\n\nCalls are refused at once, also on open connections. What a client was promised at donors before \n(tickets for chunks) stays good until it expires, minutes later. A donor is removed only when \nno file needs it: empty it first with `potluck drain`. The last admin cannot be removed."
    )]
    Rm(MembersRmArgs),
}

#[derive(Debug, clap::Args)]
pub struct MembersLsArgs {
    /// Only these: donor, user or admin
    #[arg(long)]
    pub role: Option<Role>,
    /// List also those who were removed, or left
    #[arg(long)]
    pub revoked: bool,
}

#[derive(Debug, clap::Args)]
pub struct MembersRmArgs {
    /// Who, by name or number
    #[arg(required = true, value_name = "NAME|NUMBER")]
    pub members: Vec<String>,
    #[command(flatten)]
    pub caution: Caution,
}

#[derive(Debug, clap::Args)]
pub struct LeaveArgs {
    /// Move nothing to other donors first; what is lost by that is listed and asked about
    #[arg(long)]
    pub now: bool,
    /// The pool is gone for good: only take away what is here. Refused while its manager answers
    #[arg(long, conflicts_with = "now")]
    pub pool_is_gone: bool,
    #[command(flatten)]
    pub caution: Caution,
    /// The directory of the identity, if this machine has several
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct NewTokenArgs {
    /// The role of the token's bearer: donor, user or admin
    #[arg(long, default_value = "user")]
    pub role: Role,
    /// The name that the donor gets, whatever its machine is called; without it, it has its machine's name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// How long the token can be used
    #[arg(long, default_value = "24h", value_name = "TIME", value_parser = kind::time)]
    pub ttl: Duration,
    /// The manager's address to put into the token, if not those that are known here; again for each
    /// further address
    #[arg(long, value_name = "HOST[:PORT]", value_parser = manager_address)]
    pub manager: Vec<Address>,
}

#[derive(Debug, clap::Args)]
pub struct JoinArgs {
    /// `-` reads the token from standard input: paste it, or all that `potluck invite` printed
    #[arg(required_unless_present = "token_file", conflicts_with = "token_file", value_name = "-")]
    pub token: Vec<String>,
    /// Read the token from this file
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The name that people call this machine or person by; default: this machine's name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Where to keep the identity; default: by role, where `lend` and the other commands look
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct FindManagerArgs {
    /// Where the manager is now
    #[arg(value_name = "HOST[:PORT]", value_parser = manager_address)]
    pub at: Option<Address>,
    /// The directory of the identity that is to find it; default: yours, and that of this machine's
    /// donor in the same pool
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}
