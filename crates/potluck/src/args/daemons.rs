//! Commands that run a daemon.

use super::metadata::ManagerAction;
use potluck_core::budget::KeepFree;
use potluck_core::size::parse_size;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct Demo {
    /// What to store; by default a few hundred MB of real files found on this machine
    pub file: Option<PathBuf>,
    /// Where to put the throw-away pool; by default the system's place for temporary files
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct ManagerOptions {
    /// Where to listen
    #[arg(long, default_value = "0.0.0.0:7700", value_name = "HOST:PORT")]
    pub listen: String,
    /// How others reach this manager, if not by this machine's name
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// Name of the pool, when it is made
    #[arg(long, default_value = "pool", value_name = "NAME")]
    pub name: String,
    /// How long chunks that no file uses are kept
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub gc_grace: Duration,
    /// How long a write session outlives its last sign of life
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub lease: Duration,
    /// How often the catalog is checkpointed, if it changed
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub backup_every: Duration,
    /// Where checkpoints are kept; default: backups in the manager's state directory. Another disk
    /// is better
    #[arg(long, value_name = "DIR")]
    pub backup_dir: Option<PathBuf>,
    /// Copies of the catalog's checkpoints and journal that donors keep, sealed; 0: none
    #[arg(long, default_value = "3", value_name = "N")]
    pub metadata_copies: u32,
    /// How long a donor may be silent before what it holds is made again elsewhere
    #[arg(long, default_value = "10m", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub repair_grace: Duration,
    /// Bytes a second that repair makes in the whole pool at most
    #[arg(long, default_value = "400MiB", value_name = "SIZE", value_parser = parse_size)]
    pub repair_rate: u64,
    /// Bytes a second that repair reads from one donor, or writes to it, at most
    #[arg(long, default_value = "100MiB", value_name = "SIZE", value_parser = parse_size)]
    pub repair_donor_rate: u64,
    /// Write {"pid", "address"} here once it serves
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct LendTerms {
    /// The most that is lent; default: a quarter of what is free now, at most 500GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max: Option<u64>,
    /// What always stays free on the disk: a share such as 10% or a size such as 50GiB
    #[arg(long, default_value = "15%", value_name = "SHARE")]
    pub keep_free: KeepFree,
    /// What fails together with this machine: a room, a switch. No two chunks of a group, and no
    /// two copies, are counted on for one label
    #[arg(long, value_name = "NAME")]
    pub label: Option<String>,
    /// How long this machine may be silent before what it holds is made again elsewhere, where
    /// that is longer than the pool's grace: 3d for one that sleeps over the weekend
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub away: Option<Duration>,
    /// How long reading back everything takes, again and again
    #[arg(long, default_value = "30d", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub scrub_every: Duration,
}

#[derive(Debug, clap::Args)]
pub struct Up {
    #[command(flatten)]
    pub manager: ManagerOptions,
    #[command(flatten)]
    pub terms: LendTerms,
    /// What to lend; default: potluck/lent in your data directory
    #[arg(long, value_name = "DIR")]
    pub lend: Option<PathBuf>,
    /// Where the pool's state lives; default: potluck in your state directory
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Manager {
    #[command(subcommand)]
    pub action: Option<ManagerAction>,
    #[command(flatten)]
    pub options: ManagerOptions,
    /// Where the manager's state lives; default: potluck/manager in your state directory
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct Lend {
    /// The directory to lend; made if need be, and Potluck's alone
    pub dir: PathBuf,
    #[command(flatten)]
    pub terms: LendTerms,
    /// Where to listen
    #[arg(long, default_value = "0.0.0.0:0", value_name = "HOST:PORT")]
    pub listen: String,
    /// How others reach this donor, if not by the address the manager sees
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// Join with this donor token first, unless joined already
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// What people call this donor, when it joins; default: this machine's name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Where this donor's own state lives; default: potluck/donor in your state directory
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Write {"pid", "address"} here once it serves
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
}
