//! The command line of `potluck service`.

use crate::systemd::UnitRole;
use clap::Subcommand;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum ServiceArgs {
    /// Have systemd run a daemon of this machine, from now on and after each start
    #[command(
        after_help = "Examples:\n  potluck service install                      (the daemons that this user has started before)\n  potluck service install up --user            (a manager and a donor of your own)\n  sudo potluck join - --state /var/lib/potluck/donor\n  sudo potluck service install lend --dir /data/lent\n  potluck service install lend --print         (show the unit, change nothing)"
    )]
    Install(ServiceInstallArgs),
    /// Show what systemd knows of the services, and whether they answer
    #[command(after_help = "Example:\n  potluck service status")]
    Status(ServicePlaceArgs),
    /// Stop a service and remove its unit; what its daemon keeps stays
    #[command(after_help = "Example:\n  potluck service uninstall lend")]
    Uninstall(ServiceUninstallArgs),
}

/// The machine's services, or those of the user.
#[derive(Debug, clap::Args)]
pub struct ServicePlaceArgs {
    /// Services of the machine, which run as a user of their own; the default for root
    #[arg(long, conflicts_with = "user")]
    pub system: bool,
    /// Services of yours; the default for everybody else
    #[arg(long)]
    pub user: bool,
    /// A machine that does not run yet, such as an image's directory: files are written, nothing is
    /// started
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct ServiceInstallArgs {
    /// The daemons that it runs; by default those that this machine has the state of
    pub role: Option<UnitRole>,
    /// A directory that it lends, as `potluck lend DIR`
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Only show what would be written
    #[arg(long, visible_alias = "dry-run", short = 'n')]
    pub print: bool,
    #[command(flatten)]
    pub place: ServicePlaceArgs,
}

#[derive(Debug, clap::Args)]
pub struct ServiceUninstallArgs {
    /// Which; by default the one that is installed
    pub role: Option<UnitRole>,
    /// Only show what would be removed
    #[arg(long, short = 'n')]
    pub dry_run: bool,
    #[command(flatten)]
    pub place: ServicePlaceArgs,
}
