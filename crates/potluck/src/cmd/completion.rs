//! `potluck completion`: prints the script with which a shell completes command lines.

use super::Ending;
use crate::args::{Args, CompletionArgs};
use crate::output::Piped;
use clap::CommandFactory;
use potluck_wire::error::{ErrorKind, Failure, code};
use std::io::Write;

pub fn run(args: &CompletionArgs) -> Result<Ending, Failure> {
    // The script is generated in memory, because the generator panics if its writer fails.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "potluck", &mut script);
    Piped::for_content().write_all(&script).map_err(|error| {
        let what = format!("cannot write to standard output: {error}");
        Failure::new(ErrorKind::Other, code::LOCAL_IO, what)
    })?;
    Ok(Ending::Done)
}
