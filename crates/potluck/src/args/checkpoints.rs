//! Commands about checkpoints.

use clap::Subcommand;
use potluck_core::checkpoint::CheckpointId;
use potluck_core::path::PoolPath;
use std::ffi::OsString;

#[derive(Debug, Subcommand)]
pub enum CkptArgs {
    /// Stage what is written to a directory from now on; nobody else sees it before the commit
    #[command(
        after_help = "Examples:\n  potluck ckpt begin ~/potluck/lab/step-5\n  to=$(potluck ckpt begin pot://lab/step-5)\n\nOf a mounted pool the directory shows what is staged, in this mount alone. Without a mount it prints the\npath to copy to."
    )]
    Begin(CkptDirArgs),
    /// Write to a checkpoint that somebody began, from another mount
    #[command(
        after_help = "Example:\n  getfattr --only-values -n user.potluck.ckpt ~/potluck/lab/step-5     (its identifier, where it began)\n  potluck ckpt join IDENTIFIER /mnt/lab/step-5                         (on another machine)"
    )]
    Join(CkptJoinArgs),
    /// Have all that is staged become visible at one moment, in the place of what the directory was
    #[command(
        after_help = "Examples:\n  potluck ckpt commit ~/potluck/lab/step-5\n  potluck ckpt commit pot://lab/step-5\n\nIn all mounts the files must be closed (exit code 10 otherwise). To commit again changes nothing, and says so."
    )]
    Commit(CkptCommitArgs),
    /// Remove what is staged; the directory stays what it was
    #[command(after_help = "Example:\n  potluck ckpt abort ~/potluck/lab/step-5")]
    Abort(CkptDirArgs),
    /// Purge the steps of a series that its rule lets go, or say which these are
    #[command(
        after_help = "Examples:\n  potluck policy set pot://lab/run7 --keep-last 3 --purge-after 30d\n  potluck ckpt purge pot://lab/run7 -n     (each step, and what becomes of it)\n  potluck ckpt purge pot://lab/run7        (now, and not within the next half minute)"
    )]
    Purge(CkptPurgeArgs),
    /// List the checkpoints that are open, with what is staged for each, and files that wait on this machine (`mount --close local`)
    #[command(
        after_help = "Example:\n  potluck ckpt ls\n\nOne to which nothing is written for 24 hours (`manager.checkpoint-idle`) expires. Its identifier is shown to\nwhoever began it, and to those who manage the space."
    )]
    Ls,
}

#[derive(Debug, clap::Args)]
pub struct CkptDirArgs {
    /// A directory of a mounted pool, or pot://SPACE/DIR
    #[arg(value_name = "DIR|pot://SPACE/DIR")]
    pub dir: OsString,
}

#[derive(Debug, clap::Args)]
pub struct CkptCommitArgs {
    #[command(flatten)]
    pub at: CkptDirArgs,
    /// Commit while other mounts have files of it open for writing; what they write is not in it
    #[arg(long)]
    pub even_if_open: bool,
}

#[derive(Debug, clap::Args)]
pub struct CkptPurgeArgs {
    /// pot://SPACE/DIR, in which the steps are
    pub dir: PoolPath,
    /// Only say what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub struct CkptJoinArgs {
    /// The identifier of the checkpoint
    pub id: CheckpointId,
    /// The directory that the checkpoint is for, in a mounted pool, or as pot://SPACE/DIR
    #[arg(value_name = "DIR|pot://SPACE/DIR")]
    pub dir: OsString,
}
