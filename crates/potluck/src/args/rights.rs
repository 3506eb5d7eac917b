//! Commands about who may do what.

use clap::Subcommand;
use potluck_config::setting_kind as kind;
use potluck_core::path::{BadPath, check_space};
use potluck_core::rights::Right;
use std::time::Duration;

/// Parses the name of a space, also in the form `pot://lab/`.
pub fn space_name(text: &str) -> Result<String, BadPath> {
    let name = text.strip_prefix("pot://").unwrap_or(text).trim_end_matches('/');
    check_space(name).map(|()| name.into())
}

/// Parses a right, which comes after who has it.
fn right(text: &str) -> Result<Right, String> {
    let order = "; the order is SPACE WHO RIGHT…, as in `potluck space grant lab ada read write`";
    text.parse::<Right>().map_err(|why| format!("{why}{order}"))
}

#[derive(Debug, clap::Args)]
pub struct SpaceGrantArgs {
    /// The space
    #[arg(value_name = "SPACE", value_parser = space_name)]
    pub space: String,
    /// A user's name or number, a group, or everyone
    #[arg(value_name = "WHO")]
    pub who: String,
    /// What they may do: list, read, write or manage
    #[arg(required = true, value_name = "RIGHT", value_parser = right)]
    pub rights: Vec<Right>,
}

#[derive(Debug, clap::Args)]
pub struct SpaceRevokeArgs {
    /// The space
    #[arg(value_name = "SPACE", value_parser = space_name)]
    pub space: String,
    /// A user's name or number, a group, or everyone
    #[arg(value_name = "WHO")]
    pub who: String,
    /// What they may not do any more: list, read, write or manage; default: all of it
    #[arg(value_name = "RIGHT", value_parser = right)]
    pub rights: Vec<Right>,
}

#[derive(Debug, clap::Args)]
pub struct SpaceWhoArgs {
    /// The space
    #[arg(value_name = "SPACE", value_parser = space_name)]
    pub space: String,
}

#[derive(Debug, Subcommand)]
pub enum GroupArgs {
    /// Make a group
    #[command(
        after_help = "Example:\n  potluck group create students\n  potluck group add students ada bert\n  potluck space grant lab students read write"
    )]
    Create(GroupName),
    /// Remove a group; its members lose what was granted to it
    #[command(after_help = "Example:\n  potluck group rm students")]
    Rm(GroupName),
    /// Put members into a group
    #[command(after_help = "Example:\n  potluck group add students ada 12")]
    Add(GroupMembers),
    /// Take members out of a group; they lose what was granted to it at once
    #[command(after_help = "Example:\n  potluck group remove students ada")]
    Remove(GroupMembers),
    /// List the groups and who is in them
    #[command(after_help = "Example:\n  potluck group ls --json")]
    Ls,
}

#[derive(Debug, clap::Args)]
pub struct GroupName {
    /// Its name: a-z 0-9 . _ -
    #[arg(value_name = "GROUP")]
    pub name: String,
}

#[derive(Debug, clap::Args)]
pub struct GroupMembers {
    /// The group
    #[arg(value_name = "GROUP")]
    pub name: String,
    /// Who, by name or number
    #[arg(required = true, value_name = "NAME|NUMBER")]
    pub members: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub struct AuditArgs {
    /// How far back
    #[arg(long, default_value = "1d", value_name = "TIME", value_parser = kind::time)]
    pub since: Duration,
}
