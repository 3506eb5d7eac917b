//! Commands about origins.

use super::PolicyOptions;
use clap::ArgGroup;
use potluck_core::path::PoolPath;
use potluck_origin::Checksum;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("checksum"))]
pub struct ImportArgs {
    /// The addresses: https://, http://, s3://BUCKET/KEY, webdavs://, webdav:// or file:///. One that ends with /
    /// means all that is listed below it
    #[arg(value_name = "URL", required_unless_present = "from_file")]
    pub from: Vec<String>,
    /// Where to: the name of the file, or with / at its end the directory that takes it in
    #[arg(value_name = "TARGET")]
    pub to: OsString,
    /// More addresses, one on each line; - is standard input
    #[arg(long, value_name = "FILE")]
    pub from_file: Option<PathBuf>,
    /// Take over files that have changed at their origin, or that came from elsewhere
    #[arg(long)]
    pub refresh: bool,
    /// Only say what would be imported
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// The SHA-256 that the file must have, in hexadecimal digits
    #[arg(long, value_name = "HEX", value_parser = Checksum::sha256, group = "checksum")]
    pub sha256: Option<Checksum>,
    /// The MD5 that the file must have
    #[arg(long, value_name = "HEX", value_parser = Checksum::md5, group = "checksum")]
    pub md5: Option<Checksum>,
    /// The BLAKE3 hash that the file must have, as b3sum prints it
    #[arg(long, value_name = "HEX", value_parser = Checksum::blake3, group = "checksum")]
    pub blake3: Option<Checksum>,
    /// The most requests at once to each host
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub connections: u8,
    #[command(flatten)]
    pub policy: PolicyOptions,
}

#[derive(Debug, clap::Args)]
pub struct EvictArgs {
    /// pot://SPACE/PATH of files, and of directories with all that is in them
    #[arg(required = true)]
    pub paths: Vec<PoolPath>,
}

#[derive(Debug, clap::Args)]
pub struct WarmArgs {
    /// pot://SPACE/PATH of files, and of directories with all that is in them
    #[arg(required = true)]
    pub paths: Vec<PoolPath>,
    /// The most requests at once to each host
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub connections: u8,
}

impl ImportArgs {
    /// Returns the checksum that the file must have, if one was given.
    pub fn checksum(&self) -> Option<&Checksum> {
        self.sha256.as_ref().or(self.md5.as_ref()).or(self.blake3.as_ref())
    }
}
