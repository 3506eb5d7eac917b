//! `potluck rm`: remove files or directories.

use super::Ending;
use crate::args::Rm;
use crate::output::Output;
use potluck_client::pool::Client;
use potluck_wire::control::{Remove, Removed};
use potluck_wire::error::{Failure, code};

pub async fn run(args: Rm, client: &Client, output: &Output) -> Result<Ending, Failure> {
    let mut all = Removed::default();
    for path in args.paths {
        match client.call(&Remove { path, recursive: args.recursive }).await {
            Ok(removed) => {
                all.files += removed.files;
                all.bytes += removed.bytes;
            }
            Err(failure) if args.force && failure.code == code::NO_ENTRY => {}
            Err(failure) => return Err(failure),
        }
    }
    output.result(&all, |_| String::new());
    Ok(Ending::Done)
}
