//! `potluck pin` and `unpin`: set whether steps of a series may be purged.

use super::Ending;
use super::several::Several;
use crate::args::PinArgs;
use crate::output::Output;
use potluck_client::Pool;
use potluck_wire::control::Pin;
use potluck_wire::error::Failure;

pub async fn run(
    args: PinArgs,
    pinned: bool,
    client: &Pool,
    output: &Output,
) -> Result<Ending, Failure> {
    let mut several = Several::default();
    for path in args.paths {
        let pin = Pin { path, pinned };
        let done = client.call(&pin).await;
        several.note(&pin.path, done.map(drop));
    }
    let ending = several.end(output)?;
    output.result(&several, |_| String::new());
    Ok(ending)
}
