//! The command line as it is written.

use clap::{ArgAction, Parser, Subcommand};
use potluck_core::budget::KeepFree;
use potluck_core::erasure::Ec;
use potluck_core::path::PoolPath;
use potluck_core::policy::{AckLevel, Mirror, Race};
use potluck_core::size::parse_size;
use potluck_wire::token::Role;
use std::path::PathBuf;
use std::time::Duration;

/// Pool the spare disk of the machines you already have.
#[derive(Debug, Parser)]
#[command(
    name = "potluck",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = "Start here:\n  potluck demo                      see it work, leaves nothing behind\n  potluck up                        start a pool on this machine\n  potluck space create lab\n  potluck cp results.h5 pot://lab/  store a file\n\nExit codes: 0 ok, 1 other, 2 usage, 3 not found, 4 partial, 5 try again, 6 no space,\n7 integrity, 8 not allowed, 10 conflict, 130 interrupted."
)]
pub struct Args {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Flags of every command.
#[derive(Debug, Clone, clap::Args)]
pub struct Global {
    /// The pool to use: its name, or the directory of an identity
    #[arg(long, global = true, env = "POTLUCK_POOL", value_name = "NAME|DIR")]
    pub pool: Option<String>,
    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    pub json: bool,
    /// Print nothing but errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Say more; repeat for still more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// No progress bar
    #[arg(long, global = true, env = "POTLUCK_NO_PROGRESS")]
    pub no_progress: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Store real files in a throw-away pool, kill a donor, read everything back
    #[command(after_help = "Example:\n  potluck demo ~/Downloads/big.iso")]
    Demo(Demo),
    /// Start a pool on this machine: a manager and a donor in one process
    #[command(
        after_help = "Example:\n  potluck up --max 200GiB\n  potluck invite --role donor     (then `potluck join …` on the next machine)"
    )]
    Up(Up),
    /// Run a manager alone
    #[command(
        after_help = "Example:\n  potluck manager --listen 0.0.0.0:7700 --advertise lab-head:7700"
    )]
    Manager(Manager),
    /// Lend part of a disk to the pool
    #[command(
        after_help = "Example:\n  potluck join pot1.…                        (once, with a donor token)\n  potluck lend /data/lent --max 200GiB --keep-free 15%"
    )]
    Lend(Lend),
    /// Make a token that lets a machine or person join
    #[command(after_help = "Example:\n  potluck invite --role donor --ttl 2h")]
    Invite(Invite),
    /// Join a pool with a token from `potluck invite`
    #[command(after_help = "Example:\n  potluck join pot1.eyJtIjoi…")]
    Join(Join),
    /// Copy files into the pool or out of it; `-` is standard input or output
    #[command(
        after_help = "Examples:\n  potluck cp era5.nc pot://climate/\n  potluck cp -r runs/ pot://lab/runs --copies 2\n  tar c data | potluck cp - pot://lab/data.tar\n  potluck cp pot://lab/data.tar - | tar x"
    )]
    Cp(Cp),
    /// List a directory, a space, or all spaces
    #[command(after_help = "Example:\n  potluck ls -l pot://lab/runs")]
    Ls(Ls),
    /// Show everything known of a path: digest, version, copies, donors
    #[command(after_help = "Example:\n  potluck stat pot://lab/data.tar")]
    Stat(PathArgs),
    /// Write a file, or a part of it, to standard output
    #[command(
        after_help = "Examples:\n  potluck cat pot://lab/notes.txt\n  potluck cat pot://lab/big.bin --range 0-1023      (the first KiB)\n  potluck cat pot://lab/run.log --range -4096       (the last 4 KiB)"
    )]
    Cat(Cat),
    /// Move or rename a file or directory inside a space
    #[command(after_help = "Example:\n  potluck mv pot://lab/tmp/run7 pot://lab/runs/")]
    Mv(Mv),
    /// Remove files or directories
    #[command(after_help = "Example:\n  potluck rm -r pot://lab/old")]
    Rm(Rm),
    /// Make a directory
    #[command(after_help = "Example:\n  potluck mkdir -p pot://lab/runs/2026")]
    Mkdir(Mkdir),
    /// Add up the sizes below a path
    #[command(after_help = "Example:\n  potluck du pot://lab")]
    Du(PathArgs),
    /// Show everything below a path as a tree
    #[command(after_help = "Example:\n  potluck tree pot://lab --depth 2")]
    Tree(Tree),
    /// Make, list or remove spaces
    #[command(subcommand)]
    Space(Space),
    /// Show the pool and its donors
    #[command(after_help = "Example:\n  potluck status")]
    Status,
}

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
    /// Write {"pid", "address"} here once it serves
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct LendLimits {
    /// The most that is lent; default: a quarter of what is free now, at most 500GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub max: Option<u64>,
    /// What always stays free on the disk: a share or a size
    #[arg(long, default_value = "15%", value_name = "SHARE")]
    pub keep_free: KeepFree,
}

#[derive(Debug, clap::Args)]
pub struct Up {
    #[command(flatten)]
    pub manager: ManagerOptions,
    #[command(flatten)]
    pub limits: LendLimits,
    /// What to lend; default: potluck/lent in your data directory
    #[arg(long, value_name = "DIR")]
    pub lend: Option<PathBuf>,
    /// Where the pool's state lives; default: potluck in your state directory
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct Manager {
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
    pub limits: LendLimits,
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

/// What one command sets differently from the space's policy.
#[derive(Debug, Clone, clap::Args)]
pub struct PolicyOptions {
    /// Copies of every chunk, each on its own donor
    #[arg(long, value_name = "N", conflicts_with = "ec")]
    pub copies: Option<u32>,
    /// Erasure code instead of copies: data + parity chunks, such as 4+2; any 4 of the 6 suffice
    #[arg(long, value_name = "M+K")]
    pub ec: Option<Ec>,
    /// Who makes copies: client-sync, client-async, server-sync or server-async; an async write
    /// returns when one copy is stored
    #[arg(long, value_name = "PROTOCOL")]
    pub mirror: Option<Mirror>,
    /// Chunks of an erasure code that reads ask for beyond those they need: auto, off or a number
    #[arg(long, value_name = "RACE")]
    pub race: Option<Race>,
    /// Donors that a file is written to at once
    #[arg(long, value_name = "N")]
    pub width: Option<u32>,
    /// Bytes per chunk, a power of two from 64KiB to 64MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub chunk_size: Option<u64>,
    /// When a write counts: memory (survives kill -9) or disk (survives a power cut)
    #[arg(long, value_name = "LEVEL")]
    pub ack: Option<AckLevel>,
}

#[derive(Debug, clap::Args)]
pub struct Cp {
    /// What to copy: local paths, or pot:// paths, or `-`
    #[arg(required = true)]
    pub from: Vec<String>,
    /// Where to
    pub to: String,
    /// Copy directories with what is in them
    #[arg(short, long)]
    pub recursive: bool,
    #[command(flatten)]
    pub policy: PolicyOptions,
    /// Only if nothing is there (exit code 10 otherwise)
    #[arg(long, conflicts_with = "if_version")]
    pub if_absent: bool,
    /// Only if this version is there (exit code 10 otherwise)
    #[arg(long, value_name = "VERSION")]
    pub if_version: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub struct Ls {
    /// What to list; default: the spaces
    #[arg(default_value = "pot://")]
    pub path: PoolPath,
    /// Sizes, times and versions
    #[arg(short, long)]
    pub long: bool,
    /// Everything below
    #[arg(short, long)]
    pub recursive: bool,
}

#[derive(Debug, clap::Args)]
pub struct PathArgs {
    /// pot://SPACE/PATH
    pub path: PoolPath,
}

#[derive(Debug, clap::Args)]
pub struct Cat {
    /// pot://SPACE/PATH
    pub path: PoolPath,
    /// First and last byte as in HTTP: 0-1023, 4096-, or -100 for the last 100 bytes
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true)]
    pub range: Option<String>,
}

#[derive(Debug, clap::Args)]
pub struct Mv {
    /// What
    pub from: PoolPath,
    /// Where to; an existing directory takes it in
    pub to: PoolPath,
    /// Do not replace an existing file (exit code 10)
    #[arg(short, long)]
    pub no_replace: bool,
}

#[derive(Debug, clap::Args)]
pub struct Rm {
    /// What
    #[arg(required = true)]
    pub paths: Vec<PoolPath>,
    /// Directories with what is in them
    #[arg(short, long)]
    pub recursive: bool,
    /// Say nothing if it is not there
    #[arg(short, long)]
    pub force: bool,
}

#[derive(Debug, clap::Args)]
pub struct Mkdir {
    /// Where
    pub path: PoolPath,
    /// Make missing parents too, and accept one that exists
    #[arg(short, long)]
    pub parents: bool,
}

#[derive(Debug, clap::Args)]
pub struct Tree {
    /// pot://SPACE/PATH
    pub path: PoolPath,
    /// How deep to go
    #[arg(long, value_name = "N")]
    pub depth: Option<usize>,
}

#[derive(Debug, Subcommand)]
pub enum Space {
    /// Make a space
    #[command(after_help = "Example:\n  potluck space create lab --copies 2")]
    Create(SpaceCreate),
    /// Remove a space
    #[command(after_help = "Example:\n  potluck space rm scratch --force")]
    Rm(SpaceRm),
    /// List the spaces
    #[command(after_help = "Example:\n  potluck space ls --json")]
    Ls,
}

#[derive(Debug, clap::Args)]
pub struct SpaceCreate {
    /// Its name: a-z 0-9 . _ -
    pub name: String,
    /// Store files as they are, readable on the donors' disks
    #[arg(long, conflicts_with = "seal")]
    pub plain: bool,
    /// Encrypt files before they leave the client (the default)
    #[arg(long)]
    pub seal: bool,
    #[command(flatten)]
    pub policy: PolicyOptions,
}

#[derive(Debug, clap::Args)]
pub struct SpaceRm {
    /// Its name
    pub name: String,
    /// Also if it holds files
    #[arg(long)]
    pub force: bool,
}
