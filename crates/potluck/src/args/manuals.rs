//! Commands that write the files that a package installs beside the program.

use clap_complete::Shell;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct CompletionArgs {
    /// The shell that will read it
    pub shell: Shell,
}

#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Where to write a page for each command; made if need be. Without it potluck(1) goes to
    /// standard output
    pub dir: Option<PathBuf>,
}
