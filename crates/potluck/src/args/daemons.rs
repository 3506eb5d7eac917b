//! Commands that run a daemon.

use super::keyed::{Given, OfDonor, OfDonorAlone, OfManager};
use super::metadata::ManagerAction;
use clap::Subcommand;
use potluck_config::setting_kind as kind;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// The files to store; by default a few hundred MB of real files found on this machine
    pub file: Option<PathBuf>,
    /// Where to put the throw-away pool; by default the system's place for temporary files
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct ManagerOptions {
    #[command(flatten)]
    pub given: Given<OfManager>,
    /// Name of the pool, when it is made; default: pool
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// First take the newest catalog that donors keep, where the one here is older, as a copy that was put back is;
    /// the one here is kept beside it
    #[arg(long)]
    pub adopt_newer: bool,
    /// Make a new pool also where this machine is in one already, or others answer on its network
    #[arg(long)]
    pub new_pool: bool,
    /// Write {"pid", "address"} here once it serves
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct UpArgs {
    #[command(flatten)]
    pub manager: ManagerOptions,
    #[command(flatten)]
    pub terms: Given<OfDonorAlone>,
    /// The directories to lend, usually one on each disk; those lent before are lent again. Default at
    /// first: potluck/lent in your data directory
    #[arg(value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// Where the donor listens; default: where the manager does, at port 7701
    #[arg(long, value_name = "HOST:PORT")]
    pub lend_listen: Option<String>,
    /// Where the pool's state lives; default: potluck in your state directory
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ManagerArgs {
    #[command(subcommand)]
    pub action: Option<ManagerAction>,
    #[command(flatten)]
    pub options: ManagerOptions,
    /// Where the manager's state lives; default: potluck/manager in your state directory
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum LendAction {
    /// Show what this machine lends: what is held here and of how many people, what goes over the network,
    /// what it costs, and what would happen if it left
    #[command(
        after_help = "Examples:\n  potluck lend status\n  potluck lend status --check     (nothing and exit code 0 while all is well)"
    )]
    Status(LendStatusArgs),
}

#[derive(Debug, Default, clap::Args)]
pub struct LendStatusArgs {
    /// Print nothing while all is well; otherwise exit with 4
    #[arg(long)]
    pub check: bool,
    /// Where this donor's own state lives; default: potluck/donor in your state directory
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct LendArgs {
    #[command(subcommand)]
    pub action: Option<LendAction>,
    /// The directories to lend, usually one on each disk; made if need be, and Potluck's alone. What was
    /// lent before is lent again
    #[arg(value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// Lend DIR, too; the donor that runs need not be restarted
    #[arg(long, requires = "dirs", conflicts_with_all = ["remove", "token_file", "name"])]
    pub add: bool,
    /// Lend DIR no more: its donor leaves, as `potluck leave` does, and what it holds moves first
    #[arg(long, requires = "dirs")]
    pub remove: bool,
    /// With --remove: only say what would be done
    #[arg(short = 'n', long, requires = "remove")]
    pub dry_run: bool,
    /// With --remove: do not ask
    #[arg(short, long, requires = "remove")]
    pub yes: bool,
    /// Measure how much serving slows this machine's own programs, keep that for the donor to go by, and show it. It is
    /// best done while nobody works here
    #[arg(long, conflicts_with_all = ["dirs", "add", "remove", "token_file", "name", "adopt_store", "new_store", "ready_file"])]
    pub calibrate: bool,
    /// With --calibrate: how long it takes
    #[arg(long, requires = "calibrate", value_name = "TIME", default_value = "100s", value_parser = kind::time)]
    pub calibrate_for: Duration,
    /// With --calibrate: draw what was measured into this file
    #[arg(long, requires = "calibrate", value_name = "FILE")]
    pub svg: Option<PathBuf>,
    #[command(flatten)]
    pub given: Given<OfDonor>,
    /// Join with the donor token in this file first, unless joined already; `-` reads standard input
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Take the directory over with all that is in it, where it is the store of a donor whose
    /// identity is lost, or one that this donor had before. It is nobody else's from then on
    #[arg(long)]
    pub adopt_store: bool,
    /// Begin an empty store where this donor's own is lost for good: what it held is made again
    /// from other copies
    #[arg(long, conflicts_with = "adopt_store")]
    pub new_store: bool,
    /// The name that people call this donor by, when it joins; default: this machine's name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Where this donor's own state lives; default: potluck/donor in your state directory
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Write {"pid", "address"} here once it serves
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct SetArgs {
    /// The setting, such as manager.repair-grace or lend.max; without it all settings are shown
    pub key: Option<String>,
    /// Its new value; without it the setting is shown
    #[arg(conflicts_with = "unset")]
    pub value: Vec<String>,
    /// Go by the default again
    #[arg(long, requires = "key")]
    pub unset: bool,
    /// Of which lent directory, where there are several
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Where the daemon's state lives; default: potluck in your state directory, or /var/lib/potluck
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}
