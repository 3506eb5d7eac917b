//! Versions of files that several wrote, made of what each contributed.
//!
//! What writers contribute is in `open` of the staging directory. Whoever makes a version takes all of that by a rename,
//! so that what comes later is of the next version; makes the version out of sight; renames what it was made of to say over
//! which version; moves it to its place, if that version is still there; and removes the rest. Each of these is one step, and
//! whoever finds it half done goes on with the next. A client that takes over from another renames first, so that the other
//! finds nothing where it was.

use crate::contribution::{ByteSource, Composition, FOOTER, Index, Overlap};
use crate::file::File;
use crate::pool::Pool;
use crate::shared_writer::{SharedOutcome, SharedWriter};
use crate::write::options::PutOptions;
use crate::writer::{Attributes, Writer, unit};
use futures_util::stream::{StreamExt, TryStreamExt};
use potluck_core::attributes::EntryAttributes;
use potluck_core::checkpoint::{CheckpointId, CommitStyle};
use potluck_core::clock::Tick;
use potluck_core::ids::{SharedWriterId, VersionId};
use potluck_core::path::PoolPath;
use potluck_core::policy::Cutting;
use potluck_wire::control::{
    CLAIM_LEASE, CheckpointAbort, Condition, EntryKind, ListedEntry, Move, SharedLeave, SharedLeft,
    SharedTurn, SharedTurnTaken, SharedWriterAbout, SharedWriters,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The directory of what writers contribute now.
const OPEN: &str = "open";
/// What the names begin with of directories in which a version is made.
const CLOSED: &str = "closed-";
/// What such a version is made of, in its directory.
const CONTRIBUTIONS: &str = "contributions";
/// What the name of these begins with once the version is made; behind it is the version that was there before, or nothing.
const COMPOSED: &str = "composed-over-";
/// The version that is made.
const WHOLE: &str = "whole";
/// What the names of contributions begin with.
const WRITER: &str = "w-";
/// While this is there, the last writer makes no version: somebody is to say that all have written.
const KEPT_BACK: &str = "kept-back";
/// Bytes that are read at once of what fills no row.
const BLOCK: u64 = 256 << 10;
/// Blocks that are kept: writers that take turns have many pieces in each.
const BLOCKS_KEPT: usize = 128;
/// Blocks that are read at a time.
const READ_AT_ONCE: usize = 16;
/// How often in a lease whoever makes a version says so.
const SIGNS_OF_LIFE: u32 = 4;
/// The pause before somebody asks again whether it is its turn.
const PAUSE: Duration = Duration::from_millis(200);

/// Where the contributions to a file are staged.
#[derive(Debug, Clone)]
pub(crate) struct SharedPlace {
    path: PoolPath,
    staging: PoolPath,
    /// How long the file stays shared while nobody contributes.
    pub idle: Duration,
}

fn below(dir: &PoolPath, names: &[&str]) -> Result<PoolPath, Failure> {
    let joined = names.iter().try_fold(dir.clone(), |path, name| path.join(name));
    joined.map_err(|why| {
        Failure::new(ErrorKind::Usage, code::BAD_PATH, why.to_string())
            .hint("choose a shorter name, without “/”")
    })
}

impl SharedPlace {
    /// Has writers share the file at `path` from now on, if they do not yet.
    pub async fn share(client: &Pool, path: &PoolPath) -> Result<Self, Failure> {
        let id = CheckpointId::of_shared_file(path);
        let begun = client.join_checkpoint(id, path, CommitStyle::Share).await?;
        Ok(Self { path: path.clone(), staging: begun.staging().clone(), idle: begun.idle() })
    }

    /// Has the file stay shared.
    pub async fn renew(&self, client: &Pool) -> Result<(), Failure> {
        Self::share(client, &self.path).await.map(drop)
    }

    /// Where the contribution of a writer is staged.
    pub fn contribution(&self, name: &str) -> Result<PoolPath, Failure> {
        below(&self.staging, &[OPEN, &format!("{WRITER}{name}")])
    }
}

/// A writer leaves. The last one makes a version of what was contributed.
///
/// Whether it is the last is known once another was heard after it left, or all others are silent for their lease: one that
/// died a moment ago would else be taken for the one that makes the version, and nobody would.
pub(crate) async fn leave(
    client: &Pool,
    place: &SharedPlace,
    writer: SharedWriterId,
    has_finished: bool,
) -> Result<SharedOutcome, Failure> {
    let mut leave = SharedLeave { path: place.path.clone(), writer, has_finished, waited_ms: 0 };
    let mut left = None;
    loop {
        match client.call_retrying(&leave).await? {
            SharedLeft::OthersWrite => return Ok(SharedOutcome::Waiting),
            SharedLeft::NotKnown => {}
            SharedLeft::Last => break,
        }
        let left = *left.get_or_insert_with(|| client.now());
        tokio::time::sleep(PAUSE).await;
        leave.waited_ms = client.now().saturating_sub(left).as_millis() as u64;
    }
    let making = Making { client, place, writer, leave_out: &[], is_told: false };
    Ok(match making.take_turn().await? {
        Some(SharedOutcome::Published) => SharedOutcome::Published,
        // Another makes the version, or has made it of this contribution, too.
        None | Some(SharedOutcome::Waiting) => SharedOutcome::Waiting,
        Some(SharedOutcome::Nothing) if has_finished => SharedOutcome::Waiting,
        Some(SharedOutcome::Nothing) => SharedOutcome::Nothing,
    })
}

impl Pool {
    /// Joins those who write a file at once, each other bytes; the first of them has the file be shared. What nobody
    /// writes is as it was in the version before, or zeros. A writer without a `name` has one by lot. One of the name of
    /// a writer that went away takes its place.
    ///
    /// Errors: those of [`Pool::session`]; [`code::CLAIMED`] where a writer of that name is there, or has finished;
    /// [`code::WRONG_KIND`] for a directory.
    pub async fn shared_writer(
        &self,
        path: &PoolPath,
        name: Option<&str>,
        options: &PutOptions,
        attributes: Attributes,
    ) -> Result<SharedWriter, Failure> {
        SharedWriter::join(self, path, name, options, attributes).await
    }

    /// Has writers share a file from now on. With `is_kept_back` no version is made before [`Pool::publish_shared`], though
    /// all writers have finished that there are.
    ///
    /// Errors: those of [`Pool::shared_writer`].
    pub async fn share(&self, path: &PoolPath, is_kept_back: bool) -> Result<(), Failure> {
        let place = SharedPlace::share(self, path).await?;
        if is_kept_back {
            let mark = below(&place.staging, &[OPEN, KEPT_BACK])?;
            let (options, attributes) = (PutOptions::default(), Attributes::default());
            self.create(&mark, &options, attributes).await?.finish().await?;
        }
        Ok(())
    }

    /// Makes a version of what writers have contributed to a shared file, but for those that are called as `leave_out`
    /// says.
    ///
    /// Errors: [`code::NOT_TOGETHER`] where others have not finished, or two wrote the same bytes; [`code::NO_CHECKPOINT`]
    /// where nobody shares it.
    pub async fn publish_shared(
        &self,
        path: &PoolPath,
        leave_out: &[String],
    ) -> Result<SharedOutcome, Failure> {
        if self.call(&SharedWriters { path: path.clone() }).await?.staging.is_none() {
            let what = format!("{path} is not shared, or not any more");
            return Err(Failure::new(ErrorKind::NotFound, code::NO_CHECKPOINT, what)
                .hint("`potluck shared ls` shows the files that are"));
        }
        let place = SharedPlace::share(self, path).await?;
        let writer = SharedWriterId(self.random());
        let making = Making { client: self, place: &place, writer, leave_out, is_told: true };
        let began = self.now();
        loop {
            match making.take_turn().await? {
                Some(outcome) => return Ok(outcome),
                // Whoever took the turn over may fail, and nothing of what was contributed is given up before it is made.
                None if making.waits_too_long(began) => return Err(making.is_anothers()),
                None => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Ends the sharing of a file. What was contributed and is in no version is removed.
    ///
    /// Errors: [`code::NO_CHECKPOINT`] where nobody shares it.
    pub async fn end_sharing(&self, path: &PoolPath) -> Result<(), Failure> {
        let id = CheckpointId::of_shared_file(path);
        self.abort_checkpoint(path.space(), id).await
    }

    /// Ends the sharing of a file, if nobody contributes to its next version.
    pub async fn end_unused_sharing(&self, path: &PoolPath) -> Result<(), Failure> {
        let (space, id) = (path.space().to_owned(), CheckpointId::of_shared_file(path));
        let ended = self.call_retrying(&CheckpointAbort { space, id, if_empty: true }).await;
        ended.map(drop).or_else(|failure| match failure.code.as_str() {
            code::NO_CHECKPOINT | code::NOT_EMPTY => Ok(()),
            _ => Err(failure),
        })
    }

    /// The writers of a shared file since its last version, by name.
    ///
    /// Errors: [`code::NO_SPACE_NAMED`], [`code::NO_RIGHT`].
    pub async fn shared_writers(&self, path: &PoolPath) -> Result<Vec<SharedWriterState>, Failure> {
        let heard = self.call(&SharedWriters { path: path.clone() }).await?;
        let state = |about: SharedWriterAbout| {
            let state =
                if about.has_finished { WriterStatus::Finished } else { WriterStatus::Writing };
            let SharedWriterAbout { name, member_name: member, claimed, has_finished: _ } = about;
            (name.clone(), SharedWriterState { name, state, claimed: Some(claimed), member })
        };
        let mut writers: BTreeMap<String, SharedWriterState> =
            heard.writers.into_iter().map(state).collect();
        let Some(staging) = heard.staging else { return Ok(writers.into_values().collect()) };
        for Contributed { name, entry } in contributed(self, &below(&staging, &[OPEN])?).await? {
            let state = if entry.size > 0 { WriterStatus::Finished } else { WriterStatus::Silent };
            let of_name =
                SharedWriterState { name: name.clone(), state, claimed: None, member: None };
            writers.entry(name).or_insert(of_name);
        }
        Ok(writers.into_values().collect())
    }
}

/// A writer of a shared file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SharedWriterState {
    /// The name of the writer.
    pub name: String,
    /// What it does.
    pub state: WriterStatus,
    /// Bytes that it has claimed, where the manager has heard of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed: Option<u64>,
    /// The name of the member that writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
}

/// What a writer of a shared file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WriterStatus {
    /// The writer has not finished, and is heard.
    Writing,
    /// What it wrote will be in the next version.
    Finished,
    /// It has not finished, and is not heard.
    Silent,
}

impl fmt::Display for WriterStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Writing => "writing",
            Self::Finished => "finished",
            Self::Silent => "silent",
        })
    }
}

/// The making of a version.
struct Making<'a> {
    client: &'a Pool,
    place: &'a SharedPlace,
    writer: SharedWriterId,
    /// The names of writers of whom nothing is taken.
    leave_out: &'a [String],
    /// Whether somebody said that all have written.
    is_told: bool,
}

/// A contribution, or what says that one is to come.
struct Contributed {
    name: String,
    entry: ListedEntry,
}

impl Contributed {
    fn has_finished(&self) -> bool {
        self.entry.size > 0
    }
}

impl Making<'_> {
    fn turn(&self) -> SharedTurn {
        let path = self.place.path.clone();
        SharedTurn { path, writer: self.writer, over: None }
    }

    fn waits_too_long(&self, began: Tick) -> bool {
        self.client.now().saturating_sub(began) > self.client.retry_limits().under_way
    }

    fn is_anothers(&self) -> Failure {
        let what = format!("somebody else is making a version of {}", self.place.path);
        Failure::new(ErrorKind::Retry, code::NOT_TOGETHER, what).hint("wait until that is done")
    }

    /// Makes the version when nobody else does; `None` where another took the turn over from this client, which was not heard
    /// for too long.
    async fn take_turn(&self) -> Result<Option<SharedOutcome>, Failure> {
        let began = self.client.now();
        let turn = self.turn();
        while self.client.call_retrying(&turn).await? == SharedTurnTaken::Another {
            // A writer has stored its part, and waits for whoever makes a version of it.
            if self.is_told && self.waits_too_long(began) {
                return Err(self.is_anothers());
            }
            tokio::time::sleep(PAUSE).await;
        }
        let keeping = async {
            loop {
                tokio::time::sleep(CLAIM_LEASE / SIGNS_OF_LIFE).await;
                if let Err(failure) = self.client.call(&turn).await {
                    tracing::warn!(%failure, "others may make the version, too");
                }
            }
        };
        let mut published = Vec::new();
        let made = tokio::select! {
            made = self.make(&mut published) => match made {
                Err(failure) => match failure.code.as_str() {
                    code::NO_ENTRY | code::WRONG_VERSION => Ok(None),
                    _ => Err(failure),
                },
                Ok(outcome) => Ok(Some(outcome)),
            },
            () = keeping => unreachable!("it never ends"),
        };
        let over = SharedTurn { over: Some(published), ..turn.clone() };
        if let Err(failure) = self.client.call_retrying(&over).await {
            tracing::debug!(%failure, "the turn ends with its lease");
        }
        made
    }

    fn is_left_out(&self, contributed: &Contributed) -> bool {
        self.leave_out.contains(&contributed.name)
    }

    /// Makes versions of what was contributed, and says whose contributions are in them.
    async fn make(&self, published: &mut Vec<String>) -> Result<SharedOutcome, Failure> {
        let SharedPlace { staging, .. } = self.place;
        let open = below(staging, &[OPEN])?;
        let entries = list_if_there(self.client, staging).await?;
        let closed = entries.iter().filter(|entry| entry.path.starts_with(CLOSED));
        let mut outcome = SharedOutcome::Nothing;
        for left in closed {
            let taken = self.new_closed()?;
            self.client.rename(&below(staging, &[&left.path])?, &taken, true).await?;
            outcome = self.go_on(&taken, published).await?;
        }
        let contributed = contributed(self.client, &open).await?;
        let is_missing = |it: &&Contributed| !it.has_finished() && !self.is_left_out(it);
        let missing: Vec<&str> =
            contributed.iter().filter(is_missing).map(|it| it.name.as_str()).collect();
        if !missing.is_empty() {
            return Err(self.unfinished(&missing));
        }
        let is_kept_back =
            list_if_there(self.client, &open).await?.iter().any(|it| it.path == KEPT_BACK);
        if is_kept_back && !self.is_told {
            return Ok(SharedOutcome::Waiting);
        }
        if contributed.is_empty() && !is_kept_back {
            return Ok(outcome);
        }
        let taken = self.new_closed()?;
        self.client.make_dir(&taken, true).await?;
        let contributions = below(&taken, &[CONTRIBUTIONS])?;
        self.client.rename(&open, &contributions, true).await?;
        match self.go_on(&taken, published).await? {
            SharedOutcome::Nothing => Ok(outcome),
            made => Ok(made),
        }
    }

    fn new_closed(&self) -> Result<PoolPath, Failure> {
        let number = SharedWriterId(self.client.random());
        below(&self.place.staging, &[&format!("{CLOSED}{number}")])
    }

    fn unfinished(&self, names: &[&str]) -> Failure {
        let SharedPlace { path, .. } = self.place;
        let what = format!(
            "{path} has no new version: {} went away or has not finished",
            names.join(", ")
        );
        Failure::new(ErrorKind::Conflict, code::NOT_TOGETHER, what).hint(format!(
            "wait for it, or let it write again under that name; `potluck shared commit {path} --leave-out {}` does \
             without what it wrote, and `potluck shared abort {path}` gives all up",
            names[0]
        ))
    }

    /// Makes the version of what is in a directory that was taken, or goes on with it, and has it appear.
    async fn go_on(
        &self,
        taken: &PoolPath,
        published: &mut Vec<String>,
    ) -> Result<SharedOutcome, Failure> {
        let (contributions, whole) = (below(taken, &[CONTRIBUTIONS])?, below(taken, &[WHOLE])?);
        let mut outcome = SharedOutcome::Nothing;
        loop {
            let entries = list_if_there(self.client, taken).await?;
            let made = entries.iter().find_map(|entry| {
                Some((entry.path.clone(), entry.path.strip_prefix(COMPOSED)?.parse().ok()))
            });
            let Some((composed, before)) = made else {
                if self.compose_all(taken, &contributions, &whole).await? {
                    continue;
                }
                published.extend(names(self.client, &contributions).await?); // those that are left out
                break;
            };
            let composed = below(taken, &[&composed])?;
            // Where it is not there it was moved, by a client that died before it removed the rest.
            if entries.iter().any(|entry| entry.path == WHOLE) {
                if let Some(above) = self.place.path.parent().filter(|it| !it.names().is_empty()) {
                    self.client.make_dir(&above, true).await?;
                }
                let (from, to) = (whole.clone(), self.place.path.clone());
                let replaces = before.map(VersionId);
                let no_replace = replaces.is_none();
                let moved = self.client.call(&Move { from, to, no_replace, replaces }).await;
                if let Err(failure) = moved {
                    if !matches!(failure.code.as_str(), code::WRONG_VERSION | code::EXISTS) {
                        return Err(failure);
                    }
                    // Somebody replaced the file meanwhile: what nobody contributed to is as it is there now.
                    self.client.rename(&composed, &contributions, true).await?;
                    continue;
                }
            }
            published.extend(names(self.client, &composed).await?);
            outcome = SharedOutcome::Published;
            break;
        }
        self.client.remove(taken, true).await?;
        Ok(outcome)
    }

    /// Makes the version of all contributions that were taken, out of sight, and says so by their name; or says that there are
    /// none.
    async fn compose_all(
        &self,
        taken: &PoolPath,
        contributions: &PoolPath,
        whole: &PoolPath,
    ) -> Result<bool, Failure> {
        let all = contributed(self.client, contributions).await?;
        let all = all.into_iter().filter(|it| !self.is_left_out(it));
        let (finished, missing): (Vec<_>, Vec<_>) = all.partition(Contributed::has_finished);
        for Contributed { name, entry } in missing {
            // It came when all of this was taken, and is of the next version.
            let (from, to) =
                (below(contributions, &[&entry.path])?, self.place.contribution(&name)?);
            self.client.make_dir(&below(&self.place.staging, &[OPEN])?, true).await?;
            match self.client.rename(&from, &to, true).await {
                Err(failure) if failure.code != code::EXISTS => return Err(failure),
                _ => {} // or one of its name has come since
            }
        }
        if finished.is_empty() {
            return Ok(false);
        }
        // Whoever is here still, and has lost its turn, finds another version there and stores none.
        let (options, attributes) = (PutOptions::default(), Attributes::default());
        let empty = self.client.create(whole, &options, attributes).await?.finish().await?;
        let before = self.compose(contributions, &finished, (whole, empty)).await?;
        let before = before.map(|version| version.0.to_string()).unwrap_or_default();
        let composed = below(taken, &[&format!("{COMPOSED}{before}")])?;
        self.client.rename(contributions, &composed, true).await?;
        Ok(true)
    }

    /// Writes a version of what was contributed, and gives the one before, of which it has what nobody wrote.
    async fn compose(
        &self,
        dir: &PoolPath,
        contributed: &[Contributed],
        (whole, there): (&PoolPath, VersionId),
    ) -> Result<Option<VersionId>, Failure> {
        let before = match self.client.open_leased(&self.place.path).await {
            Err(failure) if failure.code == code::NO_ENTRY => None,
            opened => Some(opened?),
        };
        let mut files = Vec::new();
        let mut composition = Composition::of_version(before.as_ref().map_or(0, File::size));
        for (number, Contributed { entry, .. }) in contributed.iter().enumerate() {
            let file = self.client.open(&below(dir, &[&entry.path])?).await?;
            let index = read_index(&file).await?;
            composition.add(number, &index).map_err(|it| self.overlap(&it, contributed))?;
            files.push(file);
        }
        let attributes = match (&before, files.first()) {
            (Some(file), _) | (None, Some(file)) => file.attributes(),
            (None, None) => return Ok(None),
        };
        let EntryAttributes { permissions, owner, .. } = attributes;
        let attributes = Attributes { mtime: None, permissions, owner };
        let condition = Condition::IfVersion(there);
        let mut options = PutOptions { condition, ..PutOptions::default() };
        options.policy.cut = Some(Cutting::Fixed);
        let writer = self.client.create(whole, &options, attributes).await?;
        let unit = unit(&writer.policy()?) as u64;
        let version = before.as_ref().map(File::version);
        let composer = Composer { composition, files, before, blocks: Blocks::default(), unit };
        composer.write(writer).await?;
        Ok(version)
    }

    fn overlap(&self, overlap: &Overlap, contributed: &[Contributed]) -> Failure {
        let Overlap { range, numbers } = overlap;
        let [one, other] = [numbers.0, numbers.1].map(|number| contributed[number].name.as_str());
        let path = &self.place.path;
        let what = format!(
            "{path} has no new version: {one} and {other} both wrote bytes {} to {}",
            range.start,
            range.end - 1
        );
        Failure::new(ErrorKind::Conflict, code::NOT_TOGETHER, what).hint(format!(
            "`potluck shared commit {path} --leave-out {other}` does without what one of them wrote, and `potluck \
             shared abort {path}` gives all up"
        ))
    }
}

/// What is contributed in a directory, if it is there.
async fn contributed(client: &Pool, dir: &PoolPath) -> Result<Vec<Contributed>, Failure> {
    let entries = list_if_there(client, dir).await?;
    let files = entries.into_iter().filter(|entry| entry.kind == EntryKind::File);
    let named = files.filter_map(|entry| {
        let name = entry.path.strip_prefix(WRITER)?.to_owned();
        Some(Contributed { name, entry })
    });
    Ok(named.collect())
}

/// The names of those who contributed in a directory.
async fn names(client: &Pool, dir: &PoolPath) -> Result<Vec<String>, Failure> {
    Ok(contributed(client, dir).await?.into_iter().map(|it| it.name).collect())
}

async fn list_if_there(client: &Pool, dir: &PoolPath) -> Result<Vec<ListedEntry>, Failure> {
    match client.list(dir, false).await {
        Err(failure) if failure.code == code::NO_ENTRY => Ok(Vec::new()),
        listed => listed,
    }
}

async fn read_index(file: &File) -> Result<Index, Failure> {
    let footer = file.read_at(file.size().saturating_sub(FOOTER as u64), FOOTER).await?;
    let (bytes, size) = Index::of_footer(&footer)?;
    let start = file.size().saturating_sub((FOOTER + bytes) as u64);
    Index::decode(&file.read_at(start, bytes).await?, size, start)
}

/// Brings a version to its writer, row by row.
struct Composer {
    composition: Composition,
    files: Vec<File>,
    before: Option<File>,
    blocks: Blocks,
    unit: u64,
}

/// A block of a contribution, or of the version before (`None`), by its number.
type BlockPlace = (Option<usize>, u64);

/// Blocks that were read last.
#[derive(Default)]
struct Blocks {
    kept: HashMap<BlockPlace, Arc<Vec<u8>>>,
    order: VecDeque<BlockPlace>,
}

/// A part of a row, and where it comes from.
struct Piece {
    range: Range<u64>,
    file: Option<usize>,
    from: u64,
}

impl Composer {
    async fn write(mut self, mut writer: Writer) -> Result<(), Failure> {
        let (mut at, size) = (0, self.composition.size());
        while at < size {
            let (run, source) = self.composition.run(at);
            let len = run.end - run.start;
            let kept = match (source, &self.before) {
                (ByteSource::Contribution { number, from }, _) => {
                    writer.keep_rows(&self.files[number], from..from + len).await?
                }
                (ByteSource::Before, Some(before)) => writer.keep_rows(before, run).await?,
                (ByteSource::Before | ByteSource::Zeros, _) => 0,
            };
            at += kept;
            if kept == 0 {
                let row = at..size.min((at / self.unit + 1) * self.unit);
                at = row.end;
                writer.write(&self.row(row).await?).await?;
            }
        }
        writer.finish().await.map(drop)
    }

    /// The bytes of a row that comes from several places.
    async fn row(&mut self, row: Range<u64>) -> Result<Vec<u8>, Failure> {
        let mut pieces = Vec::new();
        let mut at = row.start;
        while at < row.end {
            let (run, source) = self.composition.run(at);
            let range = at..run.end.min(row.end);
            at = range.end;
            match source {
                ByteSource::Contribution { number, from } => {
                    pieces.push(Piece { range, file: Some(number), from });
                }
                ByteSource::Before => pieces.push(Piece { from: range.start, range, file: None }),
                ByteSource::Zeros => {}
            }
        }
        let numbers = |piece: &Piece| {
            let last = (piece.from + (piece.range.end - piece.range.start) - 1) / BLOCK;
            let file = piece.file;
            (piece.from / BLOCK..=last).map(move |number| (file, number))
        };
        let needed: BTreeSet<BlockPlace> = pieces.iter().flat_map(numbers).collect();
        let blocks = self.read(needed.into_iter()).await?;
        let mut bytes = vec![0; (row.end - row.start) as usize];
        for Piece { range, file, from } in pieces {
            let (mut at, mut from) = (range.start, from);
            while at < range.end {
                let block = &blocks[&(file, from / BLOCK)];
                let skip = (from % BLOCK) as usize;
                let len = (block.len() - skip).min((range.end - at) as usize);
                let to = (at - row.start) as usize;
                bytes[to..to + len].copy_from_slice(&block[skip..skip + len]);
                (at, from) = (at + len as u64, from + len as u64);
            }
        }
        Ok(bytes)
    }

    /// These blocks, those that are not kept from donors.
    async fn read(
        &mut self,
        places: impl Iterator<Item = BlockPlace>,
    ) -> Result<HashMap<BlockPlace, Arc<Vec<u8>>>, Failure> {
        let mut blocks = HashMap::new();
        let mut missing = Vec::new();
        for place in places {
            match self.blocks.kept.get(&place) {
                Some(block) => drop(blocks.insert(place, Arc::clone(block))),
                None => missing.push(place),
            }
        }
        let (files, before) = (&self.files, &self.before);
        let read = |place: BlockPlace| async move {
            let file = match place.0 {
                Some(number) => Some(&files[number]),
                None => before.as_ref(),
            };
            let bytes = match file {
                Some(file) => file.read_at(place.1 * BLOCK, BLOCK as usize).await?,
                None => Vec::new(),
            };
            Ok::<_, Failure>((place, Arc::new(bytes)))
        };
        let read = futures_util::stream::iter(missing).map(read).buffer_unordered(READ_AT_ONCE);
        let read: Vec<_> = read.try_collect().await?;
        for (place, block) in read {
            self.blocks.kept.insert(place, Arc::clone(&block));
            self.blocks.order.push_back(place);
            blocks.insert(place, block);
        }
        while self.blocks.order.len() > BLOCKS_KEPT {
            let oldest = self.blocks.order.pop_front();
            oldest.and_then(|place| self.blocks.kept.remove(&place));
        }
        Ok(blocks)
    }
}
