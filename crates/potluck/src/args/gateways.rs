//! Commands that run a gateway.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum ServeArgs {
    /// Serve S3 tools: buckets are spaces, and objects files
    #[command(after_help = "Example:\n  potluck serve s3 --listen 127.0.0.1:7702")]
    S3(ServeOptions),
    /// Serve WebDAV clients, such as file managers
    #[command(after_help = "Example:\n  potluck serve webdav --listen 127.0.0.1:7702")]
    Webdav(ServeOptions),
    /// Serve S3 and WebDAV on one port
    #[command(
        after_help = "Examples:\n  potluck serve all\n  potluck serve all --listen 0.0.0.0:7702 --tls-cert gateway.pem --tls-key gateway.key"
    )]
    All(ServeOptions),
}

#[derive(Debug, Args)]
pub struct ServeOptions {
    /// Where the gateway listens
    #[arg(long, default_value = "127.0.0.1:7702", value_name = "HOST:PORT")]
    pub listen: String,
    /// The certificate chain that clients are shown, as PEM. Without one, the gateway makes a certificate for itself
    /// where it listens for other machines
    #[arg(long, requires = "tls_key", conflicts_with = "plain", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// The key of that certificate, as PEM
    #[arg(long, requires = "tls_cert", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// A host name or address by which clients reach the gateway, for the certificate that it makes for itself; again
    /// for each further one
    #[arg(long = "name", value_name = "HOST")]
    pub names: Vec<String>,
    /// Speak plain HTTP also to other machines, as behind a proxy that speaks TLS: who listens there reads all
    #[arg(long)]
    pub plain: bool,
    /// Where the gateway's identity lives; default: potluck/gateway in your state directory
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Write {"pid", "address"} here once it serves
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
}
