//! `potluck space rekey`: gives a sealed space a new key, and seals its files again.

use crate::args::SpaceRekeyArgs;
use crate::cmd::Ending;
use crate::output::{Output, count, told};
use crate::progress_bar;
use potluck_client::{Pool, SealedAgain};
use potluck_core::size::format_size;
use potluck_wire::control::{OldContent, RekeyStep, SpaceRekey};
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// The time between two walks over what could not be sealed again at first.
const PAUSE: Duration = Duration::from_secs(2);
/// The number of walks in a row that seal nothing after which the command ends.
const IDLE_WALKS: u32 = 3;
/// The most files that could not be sealed again and are told of by name.
const NAMED: usize = 10;

/// The outcome as `--json` shows it.
#[derive(Serialize)]
struct Rekeyed<'a> {
    space: &'a str,
    /// True if the space got a new key; false if an earlier change went on.
    new_key: bool,
    /// The number of files, and parts of large files, that were sealed again.
    sealed_again: u64,
    bytes: u64,
    /// The content that still needs earlier keys.
    left: OldContent,
}

pub async fn run(
    args: SpaceRekeyArgs,
    client: &Pool,
    output: &Output,
    shown: bool,
) -> Result<Ending, Failure> {
    let SpaceRekeyArgs { space, new_writes_only, new_key } = args;
    let step = if new_key { RekeyStep::Anew } else { RekeyStep::OrGoOn };
    let began = client.call(&SpaceRekey { space: space.clone(), step }).await?;
    output.note(&match began.new_key {
        true => format!("{space} has a new key, which seals what is written from now on"),
        false => format!("an earlier change of the key of {space} goes on"),
    });
    if new_writes_only {
        let rekeyed = Rekeyed {
            space: &space,
            new_key: began.new_key,
            sealed_again: 0,
            bytes: 0,
            left: began,
        };
        output.result(&rekeyed, |it| match it.left.is_there() {
            true => format!(
                "{} stay sealed with earlier keys until you run: potluck space rekey {space}",
                old(&it.left)
            ),
            false => "nothing is sealed with an earlier key".into(),
        });
        return Ok(Ending::Done);
    }
    let done = seal_all(&space, began, client, shown).await?;
    let finish = SpaceRekey { space: space.clone(), step: RekeyStep::Finish };
    let left = client.call(&finish).await?;
    let SealedAgain { files, bytes, .. } = done;
    let rekeyed =
        Rekeyed { space: &space, new_key: began.new_key, sealed_again: files, bytes, left };
    output.result(&rekeyed, |it| {
        let sealed = count(it.sealed_again, "file");
        let mut text = format!("sealed again: {sealed}, {}", format_size(it.bytes));
        if !it.left.is_there() {
            text.push_str("; nothing needs an earlier key, and none is kept");
        }
        text
    });
    if !left.is_there() {
        return Ok(Ending::Done);
    }
    for (name, failure) in done.later.iter().take(NAMED) {
        output.complain_of(&told(name), failure);
    }
    let what = format!("{} still need an earlier key of {space}", old(&left));
    let failure = Failure::new(ErrorKind::Partial, code::OTHER_KEY, what).hint(
        "run the same command again when open files are closed and uploads have ended: it goes on where it was",
    );
    output.complain(&failure);
    Ok(Ending::Partial)
}

/// Seals all that can be sealed again, and tries again for a while what could not.
async fn seal_all(
    space: &str,
    began: OldContent,
    client: &Pool,
    shown: bool,
) -> Result<SealedAgain, Failure> {
    let progress = progress_bar::resumable(client, shown, began.bytes);
    let (mut all, mut idle) = (SealedAgain::default(), 0);
    loop {
        let SealedAgain { files, bytes, later } =
            client.seal_again(space, Arc::clone(&progress)).await?;
        all.files += files;
        all.bytes += bytes;
        all.later = later;
        let finish = SpaceRekey { space: space.into(), step: RekeyStep::Finish };
        let left = client.call(&finish).await?;
        idle = if files == 0 { idle + 1 } else { 0 };
        if !left.is_there() || idle >= IDLE_WALKS {
            return Ok(all);
        }
        if files == 0 || !all.later.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Formats what needs earlier keys.
fn old(left: &OldContent) -> String {
    let mut parts = Vec::new();
    if left.versions > 0 {
        parts.push(format!("{} ({})", count(left.versions, "file"), format_size(left.bytes)));
    }
    if left.passing > 0 {
        let passing = count(left.passing, "file");
        parts.push(format!("{passing} being written or deleted"));
    }
    if left.sessions > 0 {
        parts.push(count(left.sessions, "upload"));
    }
    parts.join(", ")
}
