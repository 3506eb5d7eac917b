//! The command line as it is written, before it is resolved.

mod access_keys;
mod checkpoints;
mod daemons;
mod donors;
mod files;
mod gateways;
mod groups;
mod history;
mod imports;
mod keyed;
mod lookaside;
mod manuals;
mod members;
mod metadata;
mod mounts;
mod policies;
mod quotas;
mod reservations;
mod rights;
mod safety;
mod services;
mod shared_files;

pub use access_keys::{KeyArgs, KeyCreateArgs};
pub use checkpoints::{CkptArgs, CkptCommitArgs, CkptDirArgs, CkptJoinArgs, CkptPurgeArgs};
pub use daemons::{
    DemoArgs, LendAction, LendArgs, LendStatusArgs, ManagerArgs, ManagerOptions, SetArgs, UpArgs,
};
pub use donors::{
    AwayArgs, CostArgs, DrainArgs, DrainOptions, GiveBackArgs, InspectArgs, NodeAwayArgs, NodeName,
    NodeRemoveArgs, NodesArgs, NodesLsArgs, PauseArgs, ResumeArgs,
};
pub use files::{
    CatArgs, CpArgs, DuArgs, ExplainAction, ExplainArgs, HashArgs, LsArgs, MkdirArgs, MvArgs,
    RmArgs, StatArgs, SyncArgs, TreeArgs,
};
pub use gateways::{ServeArgs, ServeOptions};
pub use groups::{all_commands, meant};
pub use history::{
    PinArgs, RetentionOptions, RevertArgs, SeriesOptions, SnapshotArgs, SnapshotLsArgs,
    SnapshotPlaceArgs, TrashArgs, TrashEmptyArgs, TrashLsArgs, UndeleteArgs, VersionsArgs,
};
pub use imports::{EvictArgs, ImportArgs, WarmArgs};
pub use keyed::Given;
pub use lookaside::{LookasideArgs, LookasideIndexArgs};
pub use manuals::{CompletionArgs, ManArgs};
pub use members::{
    FindManagerArgs, InviteAction, InviteArgs, JoinArgs, LeaveArgs, MembersArgs, MembersLsArgs,
    MembersRmArgs, NewTokenArgs,
};
pub use metadata::{
    AskingArgs, GcArgs, GcUnknownArgs, ManagerAction, ManagerBackupArgs, ManagerRestoreArgs,
    NewPlaceArgs, RotateAuthorityArgs,
};
pub use mounts::{MountArgs, START_REPORT, UmountArgs};
pub use policies::{
    PolicyArgs, PolicyOptions, PolicySetArgs, PolicyShowArgs, SpaceArgs, SpaceCreateArgs,
    SpaceRekeyArgs, SpaceRmArgs,
};
pub use quotas::{QuotaArgs, QuotaSetArgs};
pub use reservations::{ReserveArgs, ReserveLsArgs, ReserveReleaseArgs, ReserveVerb};
pub use rights::{
    AuditArgs, GroupArgs, GroupMembers, SpaceGrantArgs, SpaceRevokeArgs, SpaceWhoArgs,
};
pub use safety::{
    Caution, FsckArgs, RepairArgs, ScrubArgs, ScrubNowArgs, StatusArgs, VerifyArgs, WatchArgs,
};

pub use services::{ServiceArgs, ServiceInstallArgs, ServicePlaceArgs, ServiceUninstallArgs};
pub use shared_files::{SharedArgs, SharedCommitArgs, SharedPathArgs, SharedWriteArgs};

use clap::builder::FalseyValueParser;
use clap::{ArgAction, Parser, Subcommand};
use potluck_config::setting_kind as kind;
use std::time::Duration;

/// Pool the spare disk of the machines you already have.
#[derive(Debug, Parser)]
#[command(
    name = "potluck",
    version,
    propagate_version = true,
    disable_help_flag = true,
    disable_version_flag = true,
    arg_required_else_help = true,
    help_template = groups::template(),
    after_help = "Start here:\n  potluck demo                      see it work, leaves nothing behind\n  potluck up                        start a pool on this machine\n  potluck space create lab\n  potluck cp results.h5 pot://lab/  store a file\n\nExit codes: 0 ok, 1 other, 2 usage, 3 not found, 4 partial, 5 try again, 6 no space,\n7 integrity, 8 not allowed, 10 conflict, 130 interrupted."
)]
pub struct Args {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// The heading of the flags of every command, in help.
const GLOBAL: &str = "Global options";

/// Flags of every command.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = GLOBAL)]
pub struct Global {
    /// The pool to use: its name, or the directory of an identity
    #[arg(long, global = true, env = "POTLUCK_POOL", value_name = "NAME|DIR")]
    pub pool: Option<String>,
    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// Print nothing but errors; of `invite` also the token
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Say more; repeat for still more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// No progress bar
    #[arg(
        long,
        global = true,
        env = "POTLUCK_NO_PROGRESS",
        value_parser = FalseyValueParser::new()
    )]
    pub no_progress: bool,
    /// Show times in UTC, not in this machine's zone
    #[arg(long, global = true, env = "POTLUCK_UTC", value_parser = FalseyValueParser::new())]
    pub utc: bool,
    /// How long to wait for a manager that does not answer, and in the middle of a transfer for donors; default: 30s
    /// before anything was moved, 10m then
    #[arg(
        long,
        global = true,
        env = "POTLUCK_RETRY_FOR",
        value_name = "TIME",
        value_parser = kind::time
    )]
    pub retry_for: Option<Duration>,
    // clap's own two flags stand among a verb's options.
    /// Print help
    #[arg(short, long, global = true, action = ArgAction::Help)]
    help: Option<bool>,
    /// Print version
    #[arg(short = 'V', long, global = true, action = ArgAction::Version)]
    version: Option<bool>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Store real files in a throw-away pool, kill a donor, read everything back
    #[command(after_help = "Example:\n  potluck demo ~/Downloads/big.iso")]
    Demo(DemoArgs),
    /// Start a pool on this machine: a manager and a donor in one process
    #[command(
        after_help = "Example:\n  potluck up --max 200GiB\n  potluck invite --role donor     (then `potluck join …` on the next machine)\n  potluck up /disk1/lent /disk2/lent"
    )]
    Up(UpArgs),
    /// Run a manager alone
    #[command(
        after_help = "Example:\n  potluck manager --listen 0.0.0.0:7700 --advertise lab-head:7700"
    )]
    Manager(ManagerArgs),
    /// Lend part of a disk to the pool
    #[command(
        after_help = "Examples:\n  potluck join -                             (once; then paste a donor token)\n  potluck lend /data/lent --max 200GiB --keep-free 15%\n  potluck lend /disk1/lent /disk2/lent       (several disks, with the one token)\n  potluck lend --add /disk3/lent             (another one, while it runs)\n  potluck lend --remove /disk2/lent          (moves what is there to others first)\n  potluck lend status                        (what is held here, for whom, and what it costs)\n  potluck lend --calibrate --svg impact.svg  (how much serving slows programs of this machine; 100 s)"
    )]
    Lend(LendArgs),
    /// Show or change what a daemon of this machine was told; it goes by it at once
    #[command(
        after_help = "Examples:\n  potluck set                          (all settings: value, default, meaning)\n  potluck set manager.repair-grace 1h\n  potluck set lend.max 500GiB\n  potluck set lend.label --unset\n\nThe settings are kept in settings.toml in the daemon's state directory, which you may\nalso change by hand."
    )]
    Set(SetArgs),
    /// Have systemd run a daemon of this machine
    #[command(
        subcommand,
        after_help = "Examples:\n  potluck service install\n  potluck service status\n  potluck service uninstall"
    )]
    Service(ServiceArgs),
    /// Find the pool's manager again after it moved: here, or at its new address
    #[command(
        after_help = "Examples:\n  potluck find-manager 10.0.0.7        (must be this pool's manager, or nothing is changed)\n  potluck find-manager                 (asks donors and this network, and says where it is)\n\nMembers follow their manager by themselves while they can ask a donor, or are\nin its network. A donor that runs here is told, too."
    )]
    FindManager(FindManagerArgs),
    /// Make a token that lets a machine or person join; list or remove such tokens
    #[command(
        after_help = "Examples:\n  potluck invite --role donor --ttl 2h\n  potluck invite ls\n  potluck invite rm 7"
    )]
    Invite(InviteArgs),
    /// List the pool's members, or remove some
    #[command(subcommand, after_help = "Examples:\n  potluck members ls\n  potluck members rm ada")]
    Members(MembersArgs),
    /// Join a pool with a token from `potluck invite`
    #[command(
        after_help = "Examples:\n  potluck join -                               (then paste the token)\n  echo pot1.eyJtIjoi… | potluck join -\n  potluck join --token-file token\n\nA token on the command line itself could be read by every user of the machine while the\ncommand runs, and sudo would keep it in its log."
    )]
    Join(JoinArgs),
    /// Copy files into the pool, out of it or inside it; `-` is standard input or output
    #[command(
        after_help = "Examples:\n  potluck cp era5.nc pot://climate/\n  potluck cp -r runs/ pot://lab/runs --copies 2\n  potluck cp raw.h5 pot://lab/raw.h5 --ec 4+2\n  tar c data | potluck cp - pot://lab/data.tar\n  potluck cp pot://lab/data.tar - | tar x\n  potluck cp -r pot://lab/runs pot://archive/runs\n  potluck cp -a /srv/project pot://archive/     (with owners, modes and times)\n\nWhere a copy lands:\n  cp FILE X       X, or X/FILE if X is a directory\n  cp FILE X/      X/FILE\n  cp -r DIR X     X: what is in DIR becomes what is in X, also when run again\n  cp -r DIR X/    X/DIR\n  cp -r DIR/. X/  what is in DIR goes into X\n  cp A B X/       X/A and X/B\nA space (pot://lab) and . take in as if they ended in /. Files that are there are replaced one by\none; nothing is removed. --if-absent leaves them as they are and exits with 10, of some with 4."
    )]
    Cp(CpArgs),
    /// List a directory, a space, or all spaces
    #[command(
        after_help = "Examples:\n  potluck ls -l pot://lab/runs\n  potluck ls -l --bytes pot://lab/runs     (exact sizes)\n  potluck ls -lt pot://lab/runs            (what was modified last comes first)\n  potluck ls -lS 'pot://lab/runs/*.h5'     (the largest first; quoted, for shells know no pool)"
    )]
    Ls(LsArgs),
    /// Show everything known of a path: digest, version, how safe it is, donors
    #[command(
        after_help = "Examples:\n  potluck stat pot://lab/data.tar\n  potluck stat pot://lab/data.tar --chunks     (who holds which chunk)"
    )]
    Stat(StatArgs),
    /// Say from which donors a file is read, or was copied, how fast each is, and what limits the rate
    #[command(
        after_help = "Examples:\n  potluck explain pot://lab/data.tar                (a read that would begin now)\n  potluck explain cp data.tar pot://lab/          (copies, and says how that went)"
    )]
    Explain(ExplainArgs),
    /// Write files, or a part of each, to standard output
    #[command(
        after_help = "Examples:\n  potluck cat pot://lab/notes.txt\n  potluck cat pot://lab/part-1 pot://lab/part-2 > whole\n  potluck cat pot://lab/big.bin --range 0-1023      (the first KiB)\n  potluck cat pot://lab/run.log --range -4096       (the last 4 KiB)\n  potluck cat pot://lab/notes.txt --version-id 17   (an old version)"
    )]
    Cat(CatArgs),
    /// Bring files from the web, a bucket or a directory into the pool, and keep in mind where they came from
    #[command(
        after_help = "Examples:\n  potluck import https://example.org/era5/t2m.nc pot://climate/\n  potluck import https://example.org/era5/ pot://climate/era5/       (all that the server lists below)\n  potluck import 's3://bucket/run7/?anonymous' pot://climate/run7/   (a public bucket)\n  potluck import --from-file urls.txt pot://climate/ --cache\n  potluck import URL pot://climate/a.nc --sha256 9f86d0…             (stored only if it has this checksum)\n\nThe same command again passes over files that are unchanged at their origin, and goes on with the others.\nWith --cache, or in a space made with it, a lost chunk comes from the origin when it is read."
    )]
    Import(ImportArgs),
    /// Let cached files go, to make room: they come from their origins when they are read
    #[command(
        after_help = "Example:\n  potluck evict pot://cache/era5\n\nFiles that are kept, and those that `potluck pin` pinned, stay."
    )]
    Evict(EvictArgs),
    /// Bring evicted files back from their origins before they are read
    #[command(after_help = "Example:\n  potluck warm pot://cache/era5")]
    Warm(WarmArgs),
    /// Print the digests of local files, by which `stat` knows them in a pool
    #[command(
        after_help = "Examples:\n  potluck hash era5.nc\n  tar c data | potluck hash -\n\nThe digest depends on a file's bytes alone: not on how a space cuts, seals or encodes them. Up to 64 KiB it is\nthat of `b3sum`."
    )]
    Hash(HashArgs),
    /// Find bytes in trees of files near this machine instead of fetching them
    #[command(
        subcommand,
        after_help = "Examples:\n  potluck lookaside index /media/usb/era5\n  potluck lookaside add /media/usb/era5\n  potluck cp -r pot://lab/era5 .\n  potluck lookaside ls\n\n`cp`, `cat` and mounts look for each chunk in the trees that were added, by its digest, and use what\nis there and right. A slow device is passed over where donors are faster."
    )]
    Lookaside(LookasideArgs),
    /// Move or rename files or directories inside a space
    #[command(
        after_help = "Examples:\n  potluck mv pot://lab/tmp/run7 pot://lab/runs/      (becomes runs/run7)\n  potluck mv pot://lab/tmp/run7 pot://lab/runs/best  (becomes runs/best)\n  potluck mv 'pot://lab/tmp/*.h5' pot://lab/runs/\n\nA file goes into a directory that is there; a directory only with / at the end of the target. On a\nterminal it asks before a file is replaced, elsewhere it refuses without -y."
    )]
    Mv(MvArgs),
    /// Remove files or directories
    #[command(
        after_help = "Examples:\n  potluck rm pot://lab/old.h5\n  potluck rm -r pot://lab/old -n     (what would go)\n  potluck rm -r pot://lab/old        (asks on a terminal)\n  potluck rm 'pot://lab/run-*.tmp'   (asks on a terminal)\n  potluck rm --forever pot://lab/big.h5     (keeps nothing, and frees its quota)\n\nWhere the policy keeps what is removed, `potluck undelete` brings it back. Of several paths those that fail are told and the others are removed: exit code 4."
    )]
    Rm(RmArgs),
    /// List the versions of a file: the current one and those that are kept
    #[command(
        after_help = "Examples:\n  potluck versions pot://lab/model.pt\n  potluck cat pot://lab/notes.txt --version-id 17\n  potluck revert pot://lab/model.pt --version-id 17\n\nVersions are kept where the policy says so: potluck policy set pot://lab --keep-versions 30d,10"
    )]
    Versions(VersionsArgs),
    /// Make an old version of a file the current one; what was current is kept as a version
    #[command(
        after_help = "Examples:\n  potluck revert pot://lab/model.pt                    (the version before)\n  potluck revert pot://lab/model.pt --version-id 17    (one that `potluck versions` lists)"
    )]
    Revert(RevertArgs),
    /// Bring back files and directories that were removed
    #[command(
        after_help = "Examples:\n  potluck undelete pot://lab/results.h5\n  potluck undelete pot://lab/runs         (a directory, with all that was in it)\n  potluck undelete -r pot://lab/runs      (also what was removed inside it before)\n  potluck trash ls pot://lab              (what there is to bring back)"
    )]
    Undelete(UndeleteArgs),
    /// Have files and directories never be purged from a series
    #[command(
        after_help = "Example:\n  potluck pin pot://lab/run7/step-1000\n\nWhich steps are purged: potluck policy set pot://lab/run7 --keep-last 3"
    )]
    Pin(PinArgs),
    /// Have files and directories be purged from a series as others
    #[command(after_help = "Example:\n  potluck unpin pot://lab/run7/step-1000")]
    Unpin(PinArgs),
    /// Take, list or remove snapshots of directories, which stay readable as they were
    #[command(subcommand, after_help = "Example:\n  potluck snapshot create pot://lab/runs monday")]
    Snapshot(SnapshotArgs),
    /// List what was removed and can be brought back, or let it go for good
    #[command(subcommand, after_help = "Example:\n  potluck trash ls pot://lab")]
    Trash(TrashArgs),
    /// Make a directory
    #[command(
        after_help = "Examples:\n  potluck mkdir -p pot://lab/runs/2026\n  potluck mkdir pot://lab/archive --ec 4+2     (what is stored there is erasure coded)"
    )]
    Mkdir(MkdirArgs),
    /// Have a directory of files become visible at one moment, however many they are
    #[command(
        subcommand,
        after_help = "Examples:\n  potluck ckpt begin ~/potluck/lab/step-5       (a directory of a mounted pool, there or not)\n  my-program --out ~/potluck/lab/step-5         (nobody else sees what it writes)\n  potluck ckpt commit ~/potluck/lab/step-5\n\n  to=$(potluck ckpt begin pot://lab/step-5)     (without a mount)\n  potluck cp -r out/. $to/\n  potluck ckpt commit pot://lab/step-5"
    )]
    Ckpt(CkptArgs),
    /// Write one file from several machines at once, each other bytes of it
    #[command(
        subcommand,
        after_help = "Example:\n  potluck write-shared begin pot://lab/out.bin\n  potluck write-shared write part-0 pot://lab/out.bin --at 0          (on each machine its part,\n  potluck write-shared write part-1 pot://lab/out.bin --at 1GiB       all at once)\n  potluck write-shared commit pot://lab/out.bin\n\nNobody sees any of it before the commit, and then all of it."
    )]
    WriteShared(SharedArgs),
    /// Make a directory in the pool like a local one, or a local one like one in the pool: what is the same stays
    #[command(
        after_help = "Examples:\n  potluck sync results pot://lab/results\n  potluck sync pot://lab/results results --delete\n  potluck sync results pot://lab/results --digest -n     (what differs?)"
    )]
    Sync(SyncArgs),
    /// Mount a pool, a space or a directory of one as a file system
    #[command(
        after_help = "Examples:\n  potluck mount pot://lab ~/lab\n  potluck mount pot://lab/data /mnt/data --read-only\n  potluck mount pot://lab ~/lab --foreground      (Ctrl-C unmounts)\n  potluck umount ~/lab\n\nA file that is written appears whole in the pool when it is closed; one that is read stays the\nversion that was opened. In /etc/fstab: pot://lab /mnt/lab potluck _netdev,nofail 0 0"
    )]
    Mount(MountArgs),
    /// List your mounts on this machine: what programs write, what is not in the pool yet, what the caches saved
    #[command(after_help = "Examples:\n  potluck mounts\n  potluck mounts --json")]
    Mounts,
    /// Serve S3 tools and WebDAV clients from a machine that joined as a gateway
    #[command(
        subcommand,
        after_help = "Examples:\n  potluck serve all\n  potluck key create --space lab --write\n\nA gateway acts on behalf of users, by their access keys: see docs/gateways.md."
    )]
    Serve(ServeArgs),
    /// Unmount what `potluck mount` mounted, and wait until what was closed is stored; nothing mounted
    /// is no error
    #[command(after_help = "Example:\n  potluck umount ~/lab")]
    Umount(UmountArgs),
    /// Add up the sizes below a path
    #[command(
        after_help = "Examples:\n  potluck du pot://lab\n  potluck du -sh pot://lab 'pot://archive/2026-*'"
    )]
    Du(DuArgs),
    /// Show everything below a path as a tree
    #[command(after_help = "Example:\n  potluck tree pot://lab --depth 2")]
    Tree(TreeArgs),
    /// Make, list or remove spaces, and say who may do what in them
    #[command(
        subcommand,
        after_help = "Examples:\n  potluck space create lab --copies 2\n  potluck space grant lab everyone read write"
    )]
    Space(SpaceArgs),
    /// Show what was refused to whom, and who changed what others may do
    #[command(
        after_help = "Examples:\n  potluck audit\n  potluck audit --since 30d --json\n\nFor admins. The log is in the directory audit of the manager's state directory, a line of JSON an\nentry; the oldest files are deleted when there are too many."
    )]
    Audit(AuditArgs),
    /// Limit how much may be stored in a space, or in all spaces of a user
    #[command(subcommand, after_help = "Example:\n  potluck quota set pot://lab --bytes 2TiB")]
    Quota(QuotaArgs),
    /// Keep room free for what is going to be written below a path, for some hours
    #[command(
        after_help = "Examples:\n  potluck reserve 40GiB pot://lab/run-7 --for 4h\n  potluck reserve ls\n  potluck reserve release IDENTIFIER\n\nDonors keep the room free, with all copies, whoever stores what elsewhere; files that are written there, by\nanybody, take of it. It counts in quotas as if the files were there, and ends by itself."
    )]
    Reserve(ReserveArgs),
    /// Make, list or end the access keys by which gateways serve S3 and WebDAV tools for you
    #[command(
        subcommand,
        after_help = "Example:\n  potluck key create --space lab --read --ttl 30d"
    )]
    Key(KeyArgs),
    /// List or change groups of members, to whom rights are granted together
    #[command(subcommand, after_help = "Example:\n  potluck group add students ada bert")]
    Group(GroupArgs),
    /// Show or change how files are stored and kept safe
    #[command(subcommand, after_help = "Example:\n  potluck policy set pot://lab/runs --ec 4+2")]
    Policy(PolicyArgs),
    /// Show how safe the pool is, and its donors
    #[command(
        after_help = "Examples:\n  potluck status\n  potluck status --check || mail -s 'the pool is ailing' admin    (cron)\n\nExit codes with --check: 0 healthy, 4 degraded, 7 unavailable, 5 not known yet."
    )]
    Status(StatusArgs),
    /// Check how safe a file or tree is, and with --read every byte of it
    #[command(
        after_help = "Examples:\n  potluck verify pot://lab/results.h5\n  potluck verify -r --read pot://lab/runs\n\nExit codes: 0 all is as safe as promised, 4 something is not, 7 something cannot be read."
    )]
    Verify(VerifyArgs),
    /// List files that are not as safe as they should be
    #[command(
        after_help = "Examples:\n  potluck fsck\n  potluck fsck pot://lab/runs --json\n\nExit codes: 0 all is as safe as promised, 4 something is not, 7 something cannot be read."
    )]
    Fsck(FsckArgs),
    /// Look at or steer what makes lost copies again
    #[command(subcommand, after_help = "Example:\n  potluck repair status --watch")]
    Repair(RepairArgs),
    /// Have donors read back what they hold
    #[command(subcommand, after_help = "Example:\n  potluck scrub now")]
    Scrub(ScrubArgs),
    /// Look at what is reclaimed, or let it go on after a restore
    #[command(subcommand, after_help = "Example:\n  potluck gc status")]
    Gc(GcArgs),
    /// List donors, remove or trust them
    #[command(subcommand, after_help = "Example:\n  potluck nodes ls")]
    Nodes(NodesArgs),
    /// Move all that a donor holds to others: of this machine's own, or for admins of any
    #[command(
        after_help = "Examples:\n  potluck drain bench-7 -n     (what it means)\n  potluck drain bench-7\n  potluck drain                (this machine; says when it may go)\n  potluck drain --now -n       (what would be lost if it went at once)\n  potluck drain --cancel       (lends again)"
    )]
    Drain(DrainArgs),
    /// Stop what this machine does for the pool, at once: nothing is read, written, sent or received
    #[command(
        after_help = "Examples:\n  potluck pause                 (until `potluck resume`)\n  potluck pause 30m\n  potluck pause until 18:00\n\nWhat only this machine has is said first. By the clock: potluck set lend.hours"
    )]
    Pause(PauseArgs),
    /// Have this machine go on after `potluck pause`
    #[command(after_help = "Example:\n  potluck resume")]
    Resume(ResumeArgs),
    /// Show what lending costs this machine and does for others: today, a day on the mean, and the year by months
    #[command(
        after_help = "Examples:\n  potluck cost\n  potluck cost --endurance 600TB     (the share of what an SSD endures that is written in a year)\n  potluck cost --svg year.svg\n\nIt is noted on this machine alone, and told nobody."
    )]
    Cost(CostArgs),
    /// Show what of other people is stored on this machine, and who read and wrote how much here
    #[command(
        after_help = "Example:\n  potluck inspect\n\nIt is looked up on this machine alone, and told nobody."
    )]
    Inspect(InspectArgs),
    /// Take back a part of the space that this machine lends
    #[command(
        after_help = "Examples:\n  potluck give-back 50GiB             (lends so much less and goes on)\n  potluck give-back --to 100GiB\n  potluck give-back 50GiB --dir /disk2/lent    (where several directories are lent)\n\nAll of it: `potluck drain` empties the machine, `potluck leave` also ends its membership."
    )]
    GiveBack(GiveBackArgs),
    /// End this machine's membership: give back, stop, and take away what is here
    #[command(
        after_help = "Examples:\n  potluck leave -n\n  potluck leave                                    (a donor's data moves to others first)\n  potluck leave --state ~/.config/potluck/pools/lab"
    )]
    Leave(LeaveArgs),
    /// Announce that this machine will be away: repair waits that long
    #[command(after_help = "Examples:\n  potluck away 3d\n  potluck away --end")]
    Away(AwayArgs),
    /// Print what a shell needs to complete command lines
    #[command(
        after_help = "Examples:\n  source <(potluck completion bash)\n  potluck completion zsh > ~/.zfunc/_potluck\n  potluck completion fish > ~/.config/fish/completions/potluck.fish"
    )]
    Completion(CompletionArgs),
    /// Print the manual page, or write the pages of all commands into a directory
    #[command(
        after_help = "Examples:\n  potluck man | man -l -\n  potluck man ~/.local/share/man/man1     (then `man potluck-cp`)"
    )]
    Man(ManArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_verb_has_help_with_an_example() {
        fn assert_example(command: &clap::Command, called: &str) {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(after.contains("Example"), "{called} --help shows no example");
            for verb in command.get_subcommands() {
                assert_example(verb, &format!("{called} {}", verb.get_name()));
            }
        }
        for verb in Args::command().get_subcommands() {
            assert_example(verb, verb.get_name());
        }
    }

    #[test]
    fn exclusive_flags_are_refused() {
        Args::command().debug_assert();
        let parse = |line: &str| Args::try_parse_from(line.split(' ')).map(|_| ());
        for good in [
            "potluck give-back 50GiB",
            "potluck give-back --to 1GiB --no-wait -n",
            "potluck drain --cancel",
            "potluck drain --now -y --dir /disk2",
            "potluck away 3d",
            "potluck away --end",
            "potluck nodes away bench 12h",
            "potluck drain bench --now -n",
            "potluck policy set pot://lab --ec 4+2 --new-files-only",
            "potluck mkdir pot://lab/a --copies 3",
            "potluck repair now --watch",
            "potluck scrub now --rate 1MiB",
            "potluck fsck",
            "potluck policy set pot://lab --keep-versions 30d,10 --trash 7d",
            "potluck mkdir pot://lab/a --keep-versions 10",
            "potluck undelete -r pot://lab/a pot://lab/b",
            "potluck cp pot://lab/a b --version-id 4",
            "potluck invite --role donor",
            "potluck invite ls",
            "potluck invite rm 3 4",
            "potluck members rm ada 7 -y",
            "potluck space grant pot://lab/ ada list",
            "potluck space revoke lab everyone",
            "potluck group add students ada 7",
            "potluck quota set ada --files 10",
            "potluck quota set pot://lab --none",
        ] {
            assert!(parse(good).is_ok(), "{good}: {:?}", parse(good));
        }
        for bad in [
            "potluck policy set pot://lab --keep-versions many",
            "potluck policy set pot://lab/run --keep-last many",
            "potluck policy set pot://lab --trash 7",
            "potluck undelete",
            "potluck give-back",
            "potluck give-back 50GiB --to 1GiB",
            "potluck drain --cancel --now",
            "potluck drain bench --dir /disk2",
            "potluck away",
            "potluck away 3d --end",
            "potluck nodes away bench",
            "potluck cp a pot://lab/ --ec 4+2 --copies 2",
            "potluck cp a pot://lab/ --ec 1+1",
            "potluck cp a pot://lab/ --mirror sideways",
            "potluck invite --role donor ls",
            "potluck invite rm",
            "potluck members rm",
            "potluck space grant lab ada",
            "potluck space grant lab ada everything",
            "potluck group add students",
            "potluck quota set ada",
            "potluck quota set ada --none --bytes 1GiB",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn help_of_every_verb_shows_global_options_below_its_own() {
        fn look(command: &mut clap::Command, seen: &mut usize) {
            let help = command.render_long_help().to_string();
            for arg in command.get_arguments() {
                let is_below = arg.get_help_heading() == Some(GLOBAL);
                assert_eq!(is_below, arg.is_global_set(), "{arg}: {help}");
            }
            let (own, global) = help.split_once(&format!("\n{GLOBAL}:\n")).expect(&help);
            // There -h is the one that people know from these programs.
            let help_flag = match command.get_name() {
                "ls" | "du" if global.contains("--no-progress") && own.contains("-h, --human") => {
                    "--help"
                }
                _ => "-h, --help",
            };
            for flag in [help_flag, "-V, --version", "--json"] {
                let lines = |part: &str| part.lines().any(|line| line.trim().starts_with(flag));
                assert!(!lines(own) && lines(global), "{flag}: {help}");
            }
            assert!(!global.contains("Options:"), "{help}");
            *seen += 1;
            let below = command.get_subcommands_mut().filter(|below| below.get_name() != "help");
            below.for_each(|below| look(below, seen));
        }
        let (mut root, mut seen) = (Args::command(), 0);
        root.build();
        look(&mut root, &mut seen);
        assert!(seen > 50, "only {seen} commands were looked at");
    }
}
