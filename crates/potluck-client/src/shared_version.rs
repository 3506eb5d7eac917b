//! Versions of shared files, composed of what each writer contributed.
//!
//! The contributions are staged in the directory `open` of the staging directory. A client that makes a version renames
//! that directory, so that later contributions belong to the next version; composes the version out of sight; renames
//! the directory of the contributions so that its name tells the version that was replaced; moves the new version to
//! its place, if that earlier version is still there; and removes the rest. Each of these is one step, and a client
//! that finds the work half done goes on with the next step. A client that takes over from another renames first, so
//! that the other finds nothing where it was.

use crate::attributes::Attributes;
use crate::contribution::{Composition, FOOTER, Index, MOST_EXTENTS, NotComposed};
use crate::file::File;
use crate::pool::Pool;
use crate::shared_writer::{SharedOutcome, SharedWriter};
use crate::version_composer::Composer;
use crate::write::options::PutOptions;
use crate::writer::unit;
use futures_util::stream::{StreamExt, TryStreamExt};
use potluck_core::attributes::EntryAttributes;
use potluck_core::checkpoint::{CheckpointId, CommitStyle};
use potluck_core::clock::Tick;
use potluck_core::ids::{SharedWriterId, VersionId};
use potluck_core::path::PoolPath;
use potluck_core::policy::Cutting;
use potluck_wire::control::{
    CLAIM_LEASE, CheckpointAbort, Condition, EntryKind, ListedEntry, Move, SharedLeave, SharedLeft,
    SharedTurn, SharedTurnOver, SharedTurnTaken, SharedWriterAbout, SharedWriters, Stat,
};
use potluck_wire::error::{ErrorKind, Failure, code};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// The name of the directory of the contributions to the next version.
const OPEN: &str = "open";
/// The prefix of the names of directories in which a version is made.
const CLOSED: &str = "closed-";
/// The name of the directory of the contributions that a version is made of, inside the directory in which it is made.
const CONTRIBUTIONS: &str = "contributions";
/// The prefix of the name of the directory of contributions once their version is composed; the version before, if
/// there was one, follows.
const COMPOSED: &str = "composed-over-";
/// The name of the version that is being made.
const WHOLE: &str = "whole";
/// The prefix of the names of contributions.
const WRITER: &str = "w-";
/// The name of a mark. While it is there, the last writer makes no version; [`Pool::publish_shared`] does.
const KEPT_BACK: &str = "kept-back";
/// The number of bytes at the end of a contribution that are read first: most indices are no longer.
const INDEX_AHEAD: usize = 64 << 10;
/// The number of indices that are read at a time: the longest takes some 50 MiB of memory.
const INDICES_AT_ONCE: usize = 4;
/// The number of times in a lease that the client that makes a version says so.
const SIGNS_OF_LIFE: u32 = 4;
/// The pause before a client asks again for its turn to make a version, or whether it is the last writer.
const PAUSE: Duration = Duration::from_millis(200);
/// The first pause before a client asks again whether it is the last writer: clients that write together finish at
/// about the same time.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// The place at which the contributions to a shared file are staged.
#[derive(Debug, Clone)]
pub(crate) struct SharedPlace {
    path: PoolPath,
    staging: PoolPath,
    /// The time for which the file stays shared while nobody contributes.
    pub idle: Duration,
}

fn below(dir: &PoolPath, names: &[&str]) -> Result<PoolPath, Failure> {
    let joined = dir.join_all(names.iter().copied());
    joined.map_err(|why| {
        Failure::new(ErrorKind::Usage, code::BAD_PATH, why.to_string())
            .hint("choose a shorter name, without “/”")
    })
}

impl SharedPlace {
    /// Makes the file at `path` a shared file, if it is not shared yet.
    pub async fn share(client: &Pool, path: &PoolPath) -> Result<Self, Failure> {
        let id = CheckpointId::of_shared_file(path);
        let begun = client.join_checkpoint(id, path, CommitStyle::Share).await?;
        Ok(Self { path: path.clone(), staging: begun.staging().clone(), idle: begun.idle() })
    }

    /// Keeps the file shared for longer.
    pub async fn renew(&self, client: &Pool) -> Result<(), Failure> {
        Self::share(client, &self.path).await.map(drop)
    }

    /// Returns whether no version is to be made before [`Pool::publish_shared`].
    async fn is_kept_back(&self, client: &Pool) -> Result<bool, Failure> {
        let path = below(&self.staging, &[OPEN, KEPT_BACK])?;
        let stat = Stat { path, chunks: false, unjudged: true, room: false, after: None };
        match client.call_retrying(&stat).await {
            Err(failure) if failure.code == code::NO_ENTRY => Ok(false),
            stated => stated.map(|_| true),
        }
    }

    /// Returns the path at which the contribution of a writer is staged.
    pub fn contribution(&self, name: &str) -> Result<PoolPath, Failure> {
        below(&self.staging, &[OPEN, &format!("{WRITER}{name}")])
    }
}

/// Takes a writer out of a shared file. The last one that leaves makes a version of all contributions.
///
/// This waits until another writer was heard after this one left, or all others have been silent for their lease.
/// Otherwise a writer that died a moment ago could be taken for the last one, and nobody would make the version.
pub(crate) async fn leave(
    client: &Pool,
    place: &SharedPlace,
    writer: SharedWriterId,
    has_finished: bool,
) -> Result<SharedOutcome, Failure> {
    let mut leave = SharedLeave { path: place.path.clone(), writer, has_finished, waited_ms: 0 };
    let (mut left, mut pause) = (None, FIRST_PAUSE);
    loop {
        let is_last = match client.call_retrying(&leave).await? {
            SharedLeft::OthersWrite | SharedLeft::Published => return Ok(SharedOutcome::Waiting),
            SharedLeft::NotKnown => false,
            SharedLeft::Last => true,
        };
        if left.is_none() && has_finished && place.is_kept_back(client).await? {
            return Ok(SharedOutcome::Waiting); // the maker of the version looks for unfinished writers
        }
        if is_last {
            break;
        }
        let left = *left.get_or_insert_with(|| client.now());
        tokio::time::sleep(pause).await;
        pause = PAUSE.min(pause * 2);
        leave.waited_ms = client.now().saturating_sub(left).as_millis() as u64;
    }
    let making = Making { client, place, writer, leave_out: &[], is_told: false };
    Ok(match making.publish().await? {
        Some(SharedOutcome::Published) => SharedOutcome::Published,
        // Another client makes the version, or has made one with this contribution, too.
        None | Some(SharedOutcome::Waiting) => SharedOutcome::Waiting,
        Some(SharedOutcome::Nothing) if has_finished => SharedOutcome::Waiting,
        Some(SharedOutcome::Nothing) => SharedOutcome::Nothing,
    })
}

impl Pool {
    /// Makes a writer of a file that several write at once, each other bytes; the first writer makes the file a shared
    /// one. Bytes that no writer writes are those of the version before, or zeros. Without a `name` the writer gets a
    /// random one. A writer with the name of a writer that went away takes its place.
    ///
    /// Errors: those of [`Pool::session`]; [`code::CLAIMED`] where a writer of that name is at work, or has finished;
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

    /// Makes a file a shared one. With `is_kept_back` no version is made before [`Pool::publish_shared`], even if all
    /// its writers have finished.
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

    /// Makes a version of what writers have contributed to a shared file. The contributions of the writers named in
    /// `leave_out` are removed.
    ///
    /// Errors: [`code::NOT_TOGETHER`] where another writer has not finished, two wrote the same bytes, the file was
    /// written in too many pieces, or another client is making a version; [`code::NO_CHECKPOINT`] where the file is not
    /// shared.
    pub async fn publish_shared(
        &self,
        path: &PoolPath,
        leave_out: &[String],
    ) -> Result<SharedOutcome, Failure> {
        if self.call(&SharedWriters { path: path.clone() }).await?.staging.is_none() {
            let what = format!("{path} is not shared, or not any more");
            return Err(Failure::new(ErrorKind::NotFound, code::NO_CHECKPOINT, what)
                .hint("`potluck write-shared ls` shows the files that are"));
        }
        let place = SharedPlace::share(self, path).await?;
        let writer = SharedWriterId(self.random());
        let making = Making { client: self, place: &place, writer, leave_out, is_told: true };
        making.publish().await?.ok_or_else(|| making.is_anothers())
    }

    /// Ends the sharing of a file, and removes contributions that are in no version.
    ///
    /// Errors: [`code::NO_CHECKPOINT`] where the file is not shared.
    pub async fn end_sharing(&self, path: &PoolPath) -> Result<(), Failure> {
        let id = CheckpointId::of_shared_file(path);
        self.abort_checkpoint(path.space(), id).await
    }

    /// Ends the sharing of a file, if there is no contribution to its next version. A file that is not shared is no
    /// error.
    pub async fn end_unused_sharing(&self, path: &PoolPath) -> Result<(), Failure> {
        let (space, id) = (path.space().to_owned(), CheckpointId::of_shared_file(path));
        let ended = self.call_retrying(&CheckpointAbort { space, id, if_empty: true }).await;
        ended.map(drop).or_else(|failure| match failure.code.as_str() {
            code::NO_CHECKPOINT | code::NOT_EMPTY => Ok(()),
            _ => Err(failure),
        })
    }

    /// Lists the writers of a shared file since its last version, by name.
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
    /// The state of the writer.
    pub state: WriterStatus,
    /// The number of bytes that the writer has claimed; `None` where the manager has not heard of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed: Option<u64>,
    /// The name of the member that writes; `None` where the manager does not tell it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
}

/// The state of a writer of a shared file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WriterStatus {
    /// The writer has not finished, and the manager hears it.
    Writing,
    /// The writer has finished: what it wrote will be in the next version.
    Finished,
    /// The writer has not finished, and the manager does not hear it.
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

/// The state of a client that makes a version.
struct Making<'a> {
    client: &'a Pool,
    place: &'a SharedPlace,
    writer: SharedWriterId,
    /// The names of writers whose contributions are left out.
    leave_out: &'a [String],
    /// True for [`Pool::publish_shared`], by which a caller says that all have written; false for the last writer.
    is_told: bool,
}

/// A contribution, or the empty file by which a writer marks that its own is to come.
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

    /// Makes the version, and tries again where another client took the turn over or the manager did not answer; `None`
    /// where others took the turn over for too long.
    async fn publish(&self) -> Result<Option<SharedOutcome>, Failure> {
        let began = self.client.now();
        loop {
            let made = self.take_turn().await;
            let is_open = match &made {
                Ok(made) => made.is_none(),
                Err(failure) => failure.code == code::NO_MANAGER,
            };
            if !is_open || self.waits_too_long(began) {
                return made;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits for the turn, and makes the version; `None` where another client took the turn over, since this one was
    /// not heard for too long.
    async fn take_turn(&self) -> Result<Option<SharedOutcome>, Failure> {
        let began = self.client.now();
        let turn = self.turn();
        while self.client.call_retrying(&turn).await? == SharedTurnTaken::Another {
            // A writer waits without limit: its part is stored, and the client that has the turn may not have it.
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
        let mut over = SharedTurnOver::default();
        let made = tokio::select! {
            made = self.make(&mut over) => match made {
                Err(failure) => match failure.code.as_str() {
                    code::NO_ENTRY | code::WRONG_VERSION => Ok(None),
                    _ => Err(failure),
                },
                Ok(outcome) => Ok(Some(outcome)),
            },
            () = keeping => unreachable!("it never ends"),
        };
        let over = SharedTurn { over: Some(over), ..turn.clone() };
        if let Err(failure) = self.client.call_retrying(&over).await {
            tracing::debug!(%failure, "the turn ends with its lease");
        }
        made
    }

    /// Removes the contributions in a directory that are left out, and returns the rest. They are removed because
    /// another client that goes on with this version after this one died is not told their names.
    async fn leave_out(
        &self,
        dir: &PoolPath,
        contributed: Vec<Contributed>,
        over: &mut SharedTurnOver,
    ) -> Result<Vec<Contributed>, Failure> {
        let (out, rest): (Vec<_>, Vec<_>) =
            contributed.into_iter().partition(|it| self.leave_out.contains(&it.name));
        for Contributed { name, entry } in out {
            match self.client.remove(&below(dir, &[&entry.path])?, false).await {
                Err(failure) if failure.code != code::NO_ENTRY => return Err(failure),
                _ => over.left_out.push(name),
            }
        }
        Ok(rest)
    }

    /// Finishes the versions that other clients left half made, and makes one of all contributions; `over` gets the
    /// names of the writers whose contributions are in them, or were left out.
    async fn make(&self, over: &mut SharedTurnOver) -> Result<SharedOutcome, Failure> {
        let SharedPlace { staging, .. } = self.place;
        let open = below(staging, &[OPEN])?;
        let entries = list_if_there(self.client, staging).await?;
        let closed = entries.iter().filter(|entry| entry.path.starts_with(CLOSED));
        let mut outcome = SharedOutcome::Nothing;
        for left in closed {
            let taken = self.new_closed()?;
            self.client.rename(&below(staging, &[&left.path])?, &taken, true).await?;
            if self.go_on(&taken, over).await? == SharedOutcome::Published {
                outcome = SharedOutcome::Published;
            }
        }
        // A writer that the manager hears may have no mark yet, which must not get into this version's directory; or it
        // has stored its contribution, and is still to say so. During the turn nobody joins.
        let heard = self.client.call(&SharedWriters { path: self.place.path.clone() }).await?;
        let at_work = heard.writers.into_iter().filter(|it| !it.has_finished).map(|it| it.name);
        let at_work: Vec<String> = at_work.filter(|name| !self.leave_out.contains(name)).collect();
        let entries = list_if_there(self.client, &open).await?;
        let is_kept_back = entries.iter().any(|it| it.path == KEPT_BACK);
        let contributed = of_writers(entries);
        let is_missing =
            |it: &&Contributed| !it.has_finished() && !self.leave_out.contains(&it.name);
        let marked = contributed.iter().filter(is_missing).map(|it| it.name.as_str());
        let missing = marked.chain(at_work.iter().map(String::as_str)).collect::<BTreeSet<_>>();
        let missing: Vec<&str> = missing.into_iter().collect();
        if !missing.is_empty() && (self.is_told || at_work.is_empty()) {
            return Err(self.unfinished(&missing));
        }
        if !missing.is_empty() {
            // One joined after this writer was told that it is the last, and makes the version in its stead.
            return Ok(match outcome {
                SharedOutcome::Nothing => SharedOutcome::Waiting,
                made => made,
            });
        }
        if is_kept_back && !self.is_told {
            return Ok(SharedOutcome::Waiting);
        }
        let contributed = self.leave_out(&open, contributed, over).await?;
        if contributed.is_empty() && !is_kept_back {
            return Ok(outcome);
        }
        let taken = self.new_closed()?;
        self.client.make_dir(&taken, true).await?;
        let contributions = below(&taken, &[CONTRIBUTIONS])?;
        self.client.rename(&open, &contributions, true).await?;
        match self.go_on(&taken, over).await? {
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
            "wait for it, or let it write again under that name; `potluck write-shared commit {path} --leave-out {}` does \
             without what it wrote, and `potluck write-shared abort {path}` gives all up",
            names[0]
        ))
    }

    /// Composes the version of the contributions in the directory `taken`, or goes on with it, and moves it to its
    /// place.
    async fn go_on(
        &self,
        taken: &PoolPath,
        over: &mut SharedTurnOver,
    ) -> Result<SharedOutcome, Failure> {
        let (contributions, whole) = (below(taken, &[CONTRIBUTIONS])?, below(taken, &[WHOLE])?);
        let mut outcome = SharedOutcome::Nothing;
        loop {
            let entries = list_if_there(self.client, taken).await?;
            let made = entries.iter().find_map(|entry| {
                Some((entry.path.clone(), entry.path.strip_prefix(COMPOSED)?.parse().ok()))
            });
            let Some((composed, before)) = made else {
                match self.compose_all(taken, &whole, over).await? {
                    true => continue,
                    false => break,
                }
            };
            let composed = below(taken, &[&composed])?;
            // If the composed version is not there, a client moved it to its place and died before it removed the rest.
            if entries.iter().any(|entry| entry.path == WHOLE) {
                let in_it = names(self.client, &composed);
                let has_left_out = !self.leave_out.is_empty()
                    && in_it.await?.iter().any(|name| self.leave_out.contains(name));
                if has_left_out || !self.move_to_place(&whole, before.map(VersionId)).await? {
                    // The version is composed once more: without those, or over the file that is there now.
                    self.client.rename(&composed, &contributions, true).await?;
                    continue;
                }
            }
            over.published.extend(names(self.client, &composed).await?);
            outcome = SharedOutcome::Published;
            break;
        }
        if let Err(failure) = self.client.remove(taken, true).await {
            tracing::debug!(%failure, "what a version was made of is removed with the next one");
        }
        Ok(outcome)
    }

    /// Moves a composed version to the path of the file; returns false if another version is there than `replaces`.
    async fn move_to_place(
        &self,
        whole: &PoolPath,
        replaces: Option<VersionId>,
    ) -> Result<bool, Failure> {
        if let Some(above) = self.place.path.parent().filter(|it| !it.names().is_empty()) {
            self.client.make_dir(&above, true).await?;
        }
        let (from, to, no_replace) = (whole.clone(), self.place.path.clone(), replaces.is_none());
        match self.client.call(&Move { from, to, no_replace, replaces, soon: false }).await {
            Err(failure) => match failure.code.as_str() {
                code::WRONG_VERSION | code::EXISTS => Ok(false),
                _ => Err(failure),
            },
            Ok(_) => Ok(true),
        }
    }

    /// Composes the version of all contributions in `taken` out of sight, and renames their directory to tell that;
    /// returns false where there is no contribution.
    async fn compose_all(
        &self,
        taken: &PoolPath,
        whole: &PoolPath,
        over: &mut SharedTurnOver,
    ) -> Result<bool, Failure> {
        let contributions = &below(taken, &[CONTRIBUTIONS])?;
        let all = contributed(self.client, contributions).await?;
        let all = self.leave_out(contributions, all, over).await?;
        let (finished, missing): (Vec<_>, Vec<_>) =
            all.into_iter().partition(Contributed::has_finished);
        for Contributed { name, entry } in missing {
            // The writer of this mark joined while the directory was taken, and its contribution belongs to the next
            // version.
            let (from, to) =
                (below(contributions, &[&entry.path])?, self.place.contribution(&name)?);
            self.client.make_dir(&below(&self.place.staging, &[OPEN])?, true).await?;
            match self.client.rename(&from, &to, true).await {
                Err(failure) if failure.code != code::EXISTS => return Err(failure),
                _ => {} // or a new writer of that name has joined since
            }
        }
        if finished.is_empty() {
            return Ok(false);
        }
        let before = self.compose(contributions, &finished, whole).await?;
        let before = before.map(|version| version.0.to_string()).unwrap_or_default();
        let composed = below(taken, &[&format!("{COMPOSED}{before}")])?;
        self.client.rename(contributions, &composed, true).await?;
        Ok(true)
    }

    /// Writes a version of what was contributed, and returns the version before, from which the bytes come that nobody
    /// wrote.
    async fn compose(
        &self,
        dir: &PoolPath,
        contributed: &[Contributed],
        whole: &PoolPath,
    ) -> Result<Option<VersionId>, Failure> {
        // The version of this empty file is the condition for writing the whole: a client that lost its turn without
        // knowing finds another version here, and stores nothing. It is stored while the contributions are opened.
        let mark = async {
            let (options, attributes) = (PutOptions::default(), Attributes::default());
            self.client.create(whole, &options, attributes).await?.finish().await
        };
        let opening = self.open_all(dir, contributed);
        let (there, (before, composition, files)) = tokio::try_join!(mark, opening)?;
        let attributes = match (&before, files.first()) {
            (Some(file), _) | (None, Some(file)) => file.attributes(),
            (None, None) => return Ok(None),
        };
        let EntryAttributes { permissions, owner, .. } = attributes;
        let attributes = Attributes { permissions, owner, ..Attributes::default() };
        let condition = Condition::IfVersion(there);
        let mut options = PutOptions { condition, ..PutOptions::default() };
        options.policy.cut = Some(Cutting::Fixed);
        let writer = self.client.create(whole, &options, attributes).await?;
        let unit = unit(&writer.policy()?) as u64;
        let version = before.as_ref().map(File::version);
        Composer::new(composition, files, before, unit).write(writer).await?;
        Ok(version)
    }

    /// Opens the version before, if there is one, and the contributions in `dir`, of which the next is composed.
    async fn open_all(
        &self,
        dir: &PoolPath,
        contributed: &[Contributed],
    ) -> Result<(Option<File>, Composition, Vec<File>), Failure> {
        let before = match self.client.open_leased(&self.place.path).await {
            Err(failure) if failure.code == code::NO_ENTRY => None,
            opened => Some(opened?),
        };
        let mut files = Vec::new();
        let mut composition = Composition::of_version(before.as_ref().map_or(0, File::size));
        let paths = contributed.iter().map(|it| below(dir, &[&it.entry.path]));
        let paths: Vec<PoolPath> = paths.collect::<Result<_, _>>()?;
        let open = |path: PoolPath| async move {
            let file = self.client.open(&path).await?;
            let index = read_index(&file).await?;
            Ok::<_, Failure>((file, index))
        };
        let mut opened = futures_util::stream::iter(paths).map(open).buffered(INDICES_AT_ONCE);
        while let Some((file, index)) = opened.try_next().await? {
            let added = composition.add(&index);
            added.map_err(|why| self.not_composed(why, contributed))?;
            files.push(file);
        }
        Ok((before, composition, files))
    }

    fn not_composed(&self, why: NotComposed, contributed: &[Contributed]) -> Failure {
        let path = &self.place.path;
        let name = |number: usize| contributed[number].name.as_str();
        let (what, other) = match why {
            NotComposed::Overlap { range, numbers } => {
                let (one, other) = (name(numbers.0), name(numbers.1));
                let (first, last) = (range.start, range.end - 1);
                (format!("{one} and {other} both wrote bytes {first} to {last}"), other)
            }
            NotComposed::TooManyPieces { number } => {
                (format!("it was written in more than {MOST_EXTENTS} pieces"), name(number))
            }
        };
        let what = format!("{path} has no new version: {what}");
        Failure::new(ErrorKind::Conflict, code::NOT_TOGETHER, what).hint(format!(
            "`potluck write-shared commit {path} --leave-out {other}` does without what one of them wrote, and \
             `potluck write-shared abort {path}` gives all up"
        ))
    }
}

/// Lists the contributions in a directory, if it is there.
async fn contributed(client: &Pool, dir: &PoolPath) -> Result<Vec<Contributed>, Failure> {
    Ok(of_writers(list_if_there(client, dir).await?))
}

/// Picks the entries of a directory that belong to writers.
fn of_writers(entries: Vec<ListedEntry>) -> Vec<Contributed> {
    let files = entries.into_iter().filter(|entry| entry.kind == EntryKind::File);
    let named = files.filter_map(|entry| {
        let name = entry.path.strip_prefix(WRITER)?.to_owned();
        Some(Contributed { name, entry })
    });
    named.collect()
}

/// Returns the names of the writers of the contributions in a directory.
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
    let end = file.size();
    let tail = file.read_at(end.saturating_sub(INDEX_AHEAD as u64), INDEX_AHEAD).await?;
    let footer = tail.len().saturating_sub(FOOTER);
    let (bytes, size) = Index::of_footer(&tail[footer..])?;
    let start = end.saturating_sub((FOOTER + bytes) as u64);
    match footer.checked_sub(bytes) {
        Some(at) => Index::decode(&tail[at..footer], size, start),
        None => Index::decode(&file.read_at(start, bytes).await?, size, start),
    }
}
