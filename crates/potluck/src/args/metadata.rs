//! Commands about the pool's own metadata.

use super::members::manager_address;
use super::safety::Caution;
use clap::Subcommand;
use potluck_config::setting_kind as kind;
use potluck_recovery::ChainId;
use potluck_wire::addresses::{Address, BadAddress, DONOR_PORT};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub enum ManagerAction {
    /// Bring a lost manager back, in a new directory, from its recovery kit and its log
    #[command(
        after_help = "Example:\n  potluck manager restore --kit recovery.kit --from pool --donor bob --donor carol\n  potluck manager restore --kit recovery.kit --from catalog-000000000042.log --state /srv/potluck\n  potluck manager --state /srv/potluck\n\nOn a machine that has the lost manager's address donors come by themselves; elsewhere name them."
    )]
    Restore(ManagerRestoreArgs),
    /// Back the catalog up to a file now, sealed, also while the manager runs
    #[command(after_help = "Example:\n  potluck manager backup /mnt/usb/catalog.log")]
    Backup(ManagerBackupArgs),
    /// Replace the pool's authority and recovery key, because a recovery kit was stolen or lost
    ///
    /// A new recovery kit takes the place of every earlier one. Members follow by themselves while the pool runs; when all
    /// do, what the earlier authority signed counts no more. Interrupted, the same command goes on.
    #[command(
        after_help = "Examples:\n  potluck manager rotate-authority\n  potluck manager rotate-authority -n         (who follows already)\n  potluck manager rotate-authority --finish   (do not wait for the others: they are invited again)\n\nOnly admins may. Copy the new recovery.kit from the manager's state directory to a safe place at once. It ends with 4 \nwhile members do not follow yet. Tokens that nobody has used are void. To have the keys of sealed spaces changed, too: \npotluck space rekey"
    )]
    RotateAuthority(RotateAuthorityArgs),
}

#[derive(Debug, clap::Args)]
pub struct RotateAuthorityArgs {
    /// End the earlier authority now, whoever does not follow yet
    #[arg(long)]
    pub finish: bool,
    /// End the command when nobody has followed for so long; they still do later
    #[arg(long, default_value = "20s", value_name = "TIME", value_parser = kind::time)]
    pub wait: Duration,
    #[command(flatten)]
    pub caution: Caution,
}

#[derive(Debug, clap::Args)]
pub struct ManagerRestoreArgs {
    /// The recovery kit that was kept elsewhere
    #[arg(long, value_name = "FILE")]
    pub kit: PathBuf,
    /// The log: a file from the backups directory or of `potluck manager backup`, or `pool` for the one
    /// that donors keep
    #[arg(long, value_name = "FILE|pool")]
    pub from: PathBuf,
    #[command(flatten)]
    pub asking: AskingArgs,
    #[command(flatten)]
    pub place: NewPlaceArgs,
}

/// How donors are asked what they have.
#[derive(Debug, clap::Args)]
pub struct AskingArgs {
    /// From donors: where to listen to them, who look for the lost manager at its address; default: at the port that
    /// the kit says
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// From donors: go on when nothing new has been heard for so long
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = kind::time)]
    pub wait: Duration,
    /// From donors: go on when so many have answered
    #[arg(long, value_name = "N")]
    pub donors: Option<usize>,
    /// From donors: where one is, when this machine has not the lost manager's address and they would not
    /// find it here; again for each further one
    #[arg(long, value_name = "HOST[:PORT]", value_parser = donor_address)]
    pub donor: Vec<Address>,
    /// From donors, where they have several chains of the log: which to take, by the name that a restore lists it by,
    /// such as 3.1. By default the newest of those from which nothing is known to be missing
    #[arg(long, value_name = "CHAIN")]
    pub chain: Option<ChainId>,
}

fn donor_address(text: &str) -> Result<Address, BadAddress> {
    Address::parse(text, DONOR_PORT)
}

/// The place where a manager comes back.
#[derive(Debug, clap::Args)]
pub struct NewPlaceArgs {
    /// Where the manager's state will live: a new or empty directory, or one where a restore was
    /// interrupted. Default: potluck/manager in your state directory
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// How others reach the manager from now on, if that changes; again for each further address
    #[arg(long, value_name = "HOST[:PORT]", value_parser = manager_address)]
    pub advertise: Vec<Address>,
}

#[derive(Debug, clap::Args)]
pub struct ManagerBackupArgs {
    /// The file to write; replaced whole if it is there
    pub file: PathBuf,
    /// Where the manager's state lives; default: potluck/manager in your state directory
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum GcArgs {
    /// Show the chunks that wait to be reclaimed, and whether garbage collection is frozen
    #[command(after_help = "Example:\n  potluck gc status")]
    Status,
    /// After a restore: reclaim again, and give up what a newer catalog may have known
    #[command(after_help = "Example:\n  potluck gc resume")]
    Resume,
    /// Chunks on donors that this catalog does not know, as after a restore
    #[command(subcommand, after_help = "Example:\n  potluck gc unknown ls")]
    Unknown(GcUnknownArgs),
}

#[derive(Debug, Subcommand)]
pub enum GcUnknownArgs {
    /// How many there are, and where
    #[command(after_help = "Example:\n  potluck gc unknown ls")]
    Ls,
    /// Give them up, so that their space comes back
    ///
    /// Files that the catalog knows, and uploads under way, keep all they need. Given up is what a lost
    /// catalog knew alone: files of the time after the backup, and its metadata log. After
    /// this no `potluck manager restore` brings that back.
    #[command(
        after_help = "Example:\n  potluck gc unknown reclaim -n\n  potluck gc unknown reclaim"
    )]
    Reclaim(Caution),
}
