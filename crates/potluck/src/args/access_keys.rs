//! Commands about access keys.

use super::rights::space_name;
use clap::Subcommand;
use potluck_config::setting_kind as kind;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub enum KeyArgs {
    /// Make an access key, and print its identifier and its secret; the secret is shown this once
    #[command(
        after_help = "Examples:\n  potluck key create --space lab --read --ttl 30d\n  potluck key create --space lab --space runs --write --unseal --label laptop\n\nA key does no more than you may do at that moment, in its spaces and for its time. `potluck serve`\non a machine that joined as a gateway takes it: see docs/gateways.md."
    )]
    Create(KeyCreateArgs),
    /// List your access keys; as an admin, those of all members
    #[command(after_help = "Example:\n  potluck key ls")]
    Ls,
    /// End access keys at once
    #[command(after_help = "Example:\n  potluck key rm POTABCDEFGHIJKLMNOPQ")]
    Rm(KeyRmArgs),
}

#[derive(Debug, clap::Args)]
pub struct KeyCreateArgs {
    /// The space in which the key can be used; again for each further space
    #[arg(long = "space", required = true, value_name = "SPACE", value_parser = space_name)]
    pub spaces: Vec<String>,
    /// The key is to read and list, and no more
    #[arg(long, required_unless_present = "write", conflicts_with = "write")]
    pub read: bool,
    /// The key is to read, list, write and remove
    #[arg(long)]
    pub write: bool,
    /// How long the key can be used
    #[arg(long, default_value = "30d", value_name = "TIME", value_parser = kind::time)]
    pub ttl: Duration,
    /// Let gateways have the keys of sealed spaces: they need them to serve these, and see the content
    #[arg(long)]
    pub unseal: bool,
    /// A text by which you know the key
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub label: String,
    /// Write the secret to this file, which only you can read, and do not print it
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct KeyRmArgs {
    /// Which, by the identifiers that `potluck key ls` shows
    #[arg(required = true, value_name = "IDENTIFIER")]
    pub keys: Vec<String>,
}
