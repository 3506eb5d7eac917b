//! Restoring from what the donors have: the newest checkpoint and the journal since, or the journal
//! alone.

use super::collect::{Collecting, Seen};
use super::fetch::Fetch;
use super::journal::Segments;
use super::listen::{Listening, Patience};
use super::staging::Staging;
use super::unlisted::unlisted;
use super::{Replayed, Restore, Restored};
use crate::backup::Taken;
use crate::backup::pool::Head;
use crate::catalog::{journal, schema};
use crate::error::ManagerError;
use crate::journal::chain::{self, Chain};
use crate::journal::replay::Replay;
use crate::journal::segment::Position;
use crate::state_dir::CATALOG;
use potluck_core::ids::Epoch;
use potluck_core::recipe;
use potluck_core::seal::{Meaning, RecordKind};
use potluck_wire::env::Env;
use rusqlite::Connection;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The directory of segments that were fetched.
const SEGMENTS: &str = "segments";

/// Restores from the newest whole checkpoint that the pool's donors have, and what the journal says
/// happened since; from the journal alone where there is none. `tell` hears of progress.
///
/// Errors: as [`super::restore_file`]; no donor answered, or they have neither.
pub async fn restore_pool(
    ask: &Restore,
    patience: &Patience,
    env: Env,
    tell: impl Fn(&str),
) -> Result<Restored, ManagerError> {
    from_donors(ask, patience, env, &tell, Source::Checkpoint).await
}

/// Rebuilds the catalog from the journal that the pool's donors have, without any checkpoint. `tell`
/// hears of progress.
///
/// Errors: as [`super::restore_file`]; no donor answered, or none has any of the journal. What could
/// not be brought back is no error: the report says it.
pub async fn rebuild(
    ask: &Restore,
    patience: &Patience,
    env: Env,
    tell: impl Fn(&str),
) -> Result<Restored, ManagerError> {
    from_donors(ask, patience, env, &tell, Source::Journal).await
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Checkpoint,
    Journal,
}

async fn from_donors(
    ask: &Restore,
    patience: &Patience,
    env: Env,
    tell: &impl Fn(&str),
    source: Source,
) -> Result<Restored, ManagerError> {
    let staging = Staging::begin(ask)?;
    let mut listening = Listening::begin(&staging, ask, patience, env).await?;
    let made = match listening.wait(patience, tell).await {
        Ok(()) => make(&staging, &listening, tell, source).await,
        Err(why) => Err(why),
    };
    let listed = listening.collecting.take_listed();
    let above = listening.end().await?;
    let replayed = made?;
    let report = Restored { journal: replayed, ..Restored::default() };
    let report = staging.finish(ask, above, report)?;
    let db = schema::open_reader(&ask.state.join(CATALOG))?;
    Ok(Restored { unlisted: Some(unlisted(&db, &listed)?), ..report })
}

/// Makes the catalog from what donors have.
async fn make(
    staging: &Staging,
    listening: &Listening,
    tell: &impl Fn(&str),
    source: Source,
) -> Result<Option<Replayed>, ManagerError> {
    let (collecting, temp) = (&listening.collecting, &staging.catalog());
    let mut fetch = Fetch::new(&listening.service, staging.kit.recovery_key());
    // A pool that has just begun has a journal, and no checkpoint yet.
    let no_checkpoint = match source {
        Source::Checkpoint => match newest(&mut fetch, collecting, temp, tell).await {
            Err(none @ ManagerError::NothingFound { .. }) => Some(none),
            found => found.map(|()| None)?,
        },
        Source::Journal => None,
    };
    tell("fetching the journal");
    let dir = listening.scratch.join(SEGMENTS);
    let segments = Segments::fetch(&mut fetch, collecting, &dir).await?;
    let overtaken = source == Source::Checkpoint && no_checkpoint.is_none();
    let alone = match (source, no_checkpoint) {
        (Source::Checkpoint, None) => later(temp, &segments)?,
        (Source::Checkpoint, Some(none)) => {
            let chain = chain::newest(segments.seen.clone()).ok_or(none)?;
            tell("the donors have no whole checkpoint: the journal alone is replayed");
            Some(chain)
        }
        (Source::Journal, _) => {
            let answered = collecting.progress().answered;
            let none = ManagerError::NoJournal { answered, unread: segments.unread };
            Some(chain::newest(segments.seen.clone()).ok_or(none)?)
        }
    };
    let Some(chain) = alone else { return go_on(temp, &segments).map(Some) };
    super::remove_database(temp)?;
    schema::create(temp, &staging.kit.pool)?;
    tell(&format!("replaying {} segments of the journal", chain.segments.len()));
    let db = schema::open_existing(temp)?;
    let last = chain.segments.last().map(|last| &last.header);
    let upto = last.map_or((0, Epoch(0)), |last| (last.generation, last.epoch));
    let replayed = replay(&segments, &chain, Replay::default(), upto, db)?;
    Ok(Some(Replayed { overtaken, ..replayed }))
}

/// A generation of the journal that is whole and later than the checkpoint in the file `temp`, as
/// when much changed after it was taken: the generation has all that it has, and more.
fn later(temp: &Path, segments: &Segments) -> Result<Option<Chain>, ManagerError> {
    let db = schema::open_whole(temp)?;
    let taken = Taken::of(&db)?.map_or(Epoch(0), |taken| taken.epoch);
    Ok(chain::later(Position::of(&db)?.as_ref(), taken, segments.seen.clone()))
}

/// Applies what the journal says happened after the checkpoint in the file `temp`.
fn go_on(temp: &Path, segments: &Segments) -> Result<Replayed, ManagerError> {
    let db = schema::open_existing(temp)?;
    let last = journal::last(&db)?;
    let taken = Taken::of(&db)?.map_or(Epoch(0), |taken| taken.epoch);
    let (chain, upto) = match Position::of(&db)? {
        Some(position) => {
            let upto = (position.generation, position.epoch);
            (chain::after(&position, segments.seen.clone()), upto)
        }
        // Taken before there was a journal.
        None => (Chain::default(), (0, taken)),
    };
    replay(segments, &chain, Replay::after(last), upto, db)
}

/// Replays `chain`, which is of the generation and epoch `upto` at least.
fn replay(
    segments: &Segments,
    chain: &Chain,
    mut replay: Replay,
    upto: (u64, Epoch),
    db: Connection,
) -> Result<Replayed, ManagerError> {
    segments.replay(chain, &mut replay, &db)?;
    let tx = db.unchecked_transaction().map_err(crate::catalog::Error::from)?;
    let left_out = replay.finish(&tx)?;
    tx.commit().map_err(crate::catalog::Error::from)?;
    super::close(db)?;
    let last = chain.segments.last();
    Ok(Replayed {
        segments: chain.segments.len() as u64,
        until_ms: last.map(|last| last.header.wall_ms),
        gaps: chain.gaps,
        left_out,
        unread: segments.unread,
        passed_over: chain::passed_over(upto.0, upto.1, &segments.seen),
        overtaken: false,
    })
}

/// Writes the newest checkpoint that is whole to `to`.
async fn newest(
    fetch: &mut Fetch<'_>,
    collecting: &Collecting,
    to: &Path,
    tell: &impl Fn(&str),
) -> Result<(), ManagerError> {
    let mut heads = Vec::new();
    for seen in collecting.heads() {
        heads.extend(head(fetch, seen).await);
    }
    heads.sort_by_key(|head| std::cmp::Reverse((head.taken.epoch, head.taken.sequence)));
    let (answered, found) = (collecting.progress().answered, heads.len());
    for head in heads {
        let number = head.taken.sequence;
        tell(&format!("fetching checkpoint {number}"));
        match pieces(fetch, &head, to).await? {
            None => return Ok(()),
            Some(why) => tell(&format!("checkpoint {number} is not whole: {why}")),
        }
    }
    Err(ManagerError::NothingFound { answered, found })
}

async fn head(fetch: &mut Fetch<'_>, seen: Seen) -> Option<Head> {
    let kind = RecordKind::Checkpoint;
    let (sequence, text) = fetch.record(kind, &seen).await?;
    let head: Head = serde_json::from_slice(&text).ok()?;
    (head.taken.sequence == sequence).then_some(head)
}

/// Writes all pieces to `to`; why not, if one cannot be had.
async fn pieces(
    fetch: &mut Fetch<'_>,
    head: &Head,
    to: &Path,
) -> Result<Option<String>, ManagerError> {
    let io = |source| ManagerError::Io { path: to.into(), source };
    let mut options = File::options();
    let mut file =
        options.write(true).create(true).truncate(true).mode(0o600).open(to).map_err(io)?;
    let pieces_key = fetch.key.space_key();
    let pages = head.pages.iter().map(|page| &page.0[..]);
    let Ok(entries) = recipe::unpack(&head.digest, pages) else {
        return Ok(Some("its recipe cannot be read".into()));
    };
    for entry in entries {
        let len = entry.stored_len();
        let everybody: Vec<_> = fetch.donors().into_iter().map(|donor| (donor, len)).collect();
        let Some(mut piece) = fetch.chunk(entry.name, &everybody).await else {
            return Ok(Some(format!("no donor that answered has its piece {}", entry.name)));
        };
        if pieces_key.open(Meaning::Chunk, &entry.digest, &mut piece).is_err() {
            return Ok(Some(format!("its piece {} does not open", entry.name)));
        }
        file.write_all(&piece).map_err(io)?;
    }
    file.sync_all().map_err(io)?;
    Ok(None)
}
