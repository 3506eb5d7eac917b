//! Commands about who belongs to the pool.

use potluck_wire::token::Role;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct Invite {
    /// What the token's bearer may do: donor, user or admin
    #[arg(long, default_value = "user")]
    pub role: Role,
    /// How long the token can be used
    #[arg(long, default_value = "24h", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub ttl: Duration,
    /// The manager's address to put into the token, if not the one used here
    #[arg(long, value_name = "HOST:PORT")]
    pub manager: Option<String>,
}

#[derive(Debug, clap::Args)]
pub struct Join {
    /// The token
    pub token: String,
    /// What people call this machine or person; default: this machine's name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Where to keep the identity; default: by role, where `lend` and the other commands look
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}
