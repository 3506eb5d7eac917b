//! Commands about lookaside trees.

use clap::Subcommand;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum LookasideArgs {
    /// Index a tree of files, or bring its index up to date: only what was changed since is read
    #[command(
        after_help = "Examples:\n  potluck lookaside index /media/usb/era5\n  potluck lookaside index /srv/mirror --index ~/mirror.index   (a tree that you may not write to)\n\nThe index lies in the tree as .potluck-lookaside and moves with it. Ctrl-C keeps what is done."
    )]
    Index(LookasideIndexArgs),
    /// Look into an indexed tree from now on, after those that were added before
    #[command(after_help = "Example:\n  potluck lookaside add /media/usb/era5")]
    Add(LookasideTreeArgs),
    /// Look into a tree no more; nothing of the tree is removed
    #[command(after_help = "Example:\n  potluck lookaside rm /media/usb/era5")]
    Rm(LookasideTreeArgs),
    /// List the trees in the order in which they are looked into, and what each has saved
    #[command(after_help = "Example:\n  potluck lookaside ls")]
    Ls,
    /// Look into no tree any more
    #[command(after_help = "Example:\n  potluck lookaside clear")]
    Clear,
    /// Look into a tree again that was disabled
    #[command(after_help = "Example:\n  potluck lookaside enable /media/usb/era5")]
    Enable(LookasideTreeArgs),
    /// Pass over a tree, which keeps its place in the order
    #[command(after_help = "Example:\n  potluck lookaside disable /media/usb/era5")]
    Disable(LookasideTreeArgs),
}

#[derive(Debug, clap::Args)]
pub struct LookasideIndexArgs {
    /// The directory of the tree; file systems that are mounted in it are passed over
    pub dir: PathBuf,
    /// Where the index lies, if not in the tree
    #[arg(long, value_name = "FILE")]
    pub index: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct LookasideTreeArgs {
    /// The directory of the tree, or its index where that lies elsewhere
    pub tree: PathBuf,
}
