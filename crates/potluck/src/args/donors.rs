//! Commands about donors, for their owners and for admins.

use super::Caution;
use clap::Subcommand;
use potluck_config::setting_kind as kind;
use potluck_core::size::parse_size;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["size", "to"]))]
pub struct GiveBackArgs {
    /// How much less to lend from now on: what is stored beyond that moves to other donors, and the rest
    /// stays lent. Twice takes twice as much; --to does not
    #[arg(value_parser = parse_size)]
    pub size: Option<u64>,
    /// Lend so much from now on, and no more
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub to: Option<u64>,
    /// Do not wait until it is done
    #[arg(long)]
    pub no_wait: bool,
    /// Only say what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Of this lent directory, where there are several
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Where this donor's own state lives; default: potluck/donor in your state directory
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct DrainArgs {
    /// Which donor, by name or number, for admins; default: this machine's own, for its owner
    pub donor: Option<String>,
    /// Let it keep what is still there, and lend again
    #[arg(long, conflicts_with_all = ["now", "dry_run"])]
    pub cancel: bool,
    #[command(flatten)]
    pub options: DrainOptions,
    /// Of this machine, only this lent directory, where there are several
    #[arg(long, value_name = "DIR", conflicts_with = "donor")]
    pub dir: Option<PathBuf>,
    /// Where this machine's donor has its state; default: potluck/donor in your state directory
    #[arg(long, value_name = "DIR", conflicts_with = "donor")]
    pub state: Option<PathBuf>,
}

/// How a donor is emptied.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct DrainOptions {
    /// Delete at once what is there, also what no other donor has once you agreed to the list of it
    #[arg(long)]
    pub now: bool,
    /// Do not wait until it is done
    #[arg(long)]
    pub no_wait: bool,
    #[command(flatten)]
    pub caution: Caution,
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("until").required(true).args(["time", "end"]))]
pub struct AwayArgs {
    /// For how long, such as 3d or 12h
    #[arg(value_parser = kind::time)]
    pub time: Option<Duration>,
    /// This machine stays, after all
    #[arg(long)]
    pub end: bool,
    /// Where this donor's own state lives; default: potluck/donor in your state directory
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct PauseArgs {
    /// For how long, such as 30m or 2h, or until when, such as until 18:00; default: until `potluck resume`
    #[arg(value_name = "TIME")]
    pub time: Vec<String>,
    #[command(flatten)]
    pub caution: Caution,
    /// Where this donor's own state lives; default: potluck/donor in your state directory
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct ResumeArgs {
    /// Where this donor's own state lives; default: potluck/donor in your state directory
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct CostArgs {
    /// How much can be written to the disk in its life, as its maker says (TBW), such as 600TB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub endurance: Option<u64>,
    /// Also draw the year into this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Where this donor's own state lives; default: potluck/donor in your state directory
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct InspectArgs {
    /// Where this donor's own state lives; default: potluck/donor in your state directory
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

/// What is shown of donors.
#[derive(Debug, clap::Args)]
pub struct NodesLsArgs {
    /// Show how fast each donor is, as members measured it, and what it served and stored
    #[arg(long)]
    pub rates: bool,
}

#[derive(Debug, Subcommand)]
pub enum NodesArgs {
    /// List the donors with what the pool thinks of them
    #[command(after_help = "Examples:\n  potluck nodes ls\n  potluck nodes ls --rates")]
    Ls(NodesLsArgs),
    /// Announce a donor's absence: repair waits that long
    #[command(
        after_help = "Examples:\n  potluck nodes away bench-7 3d\n  potluck nodes away bench-7 --end"
    )]
    Away(NodeAwayArgs),
    /// Trust a donor again that was quarantined
    #[command(after_help = "Example:\n  potluck nodes trust bench-7")]
    Trust(NodeName),
    /// Remove a donor for ever; refused while only it has something
    #[command(after_help = "Example:\n  potluck drain bench-7 && potluck nodes rm bench-7")]
    Rm(NodeRemoveArgs),
}

#[derive(Debug, clap::Args)]
pub struct NodeName {
    /// Which donor, by name or number
    pub donor: String,
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("until").required(true).args(["time", "end"]))]
pub struct NodeAwayArgs {
    /// Which donor, by name or number
    pub donor: String,
    /// For how long from now, such as 3d or 12h
    #[arg(value_parser = kind::time)]
    pub time: Option<Duration>,
    /// It is back for good
    #[arg(long)]
    pub end: bool,
}

#[derive(Debug, clap::Args)]
pub struct NodeRemoveArgs {
    /// Which donor, by name or number
    pub donor: String,
    /// Remove it also if files are less safe without it until repair has made them whole; -n lists them
    #[arg(long)]
    pub now: bool,
    /// Remove it also if files are lost with it; -n lists them
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub caution: Caution,
}
