//! Operations on files, directories and links that were replaced or removed and are kept.

pub(crate) mod keeping;

use crate::checkpoints::checkpoint_rows;
use crate::history::{
    bygone, kept,
    kept_rows::{self, HistoryRow},
    snapshot_rows,
    snapshots::{self, place},
    taken_snapshot::TakenSnapshot,
};
use crate::log::{apply, records::Record};
use crate::names::{
    entries::{self, DirId, EntryPlace, split},
    entry_moves,
};
use crate::operations::{
    checkpoints::staging,
    history::keeping::{LeavingEntry, keep, put_away, retention, stay_pinned, write_anew},
    names::{
        attributes,
        directories::{admit_dirs, touched},
    },
};
use crate::pool_records::notes;
use crate::sql::Tx;
use crate::when::When;
use crate::{Catalog, Durability, Error, SeenSpaces};
use potluck_core::attributes::FileTime;
use potluck_core::checkpoint::StagedPlace;
use potluck_core::ids::VersionId;
use potluck_core::kept_place::{KEPT_DIR, KeptPlace};
use potluck_core::path::PoolPath;
use potluck_wire::control::{KeptListed, KeptScope};

/// The most kept things that one transaction lets go: each may have a thousand chunks.
const LET_GO_AT_ONCE: usize = 8;
/// The time in milliseconds after which a failed attempt to let something go is repeated.
const TRIED_AGAIN_MS: u64 = 3_600_000;
/// The most snapshots that one directory may have: a change in a directory looks at all that cover it.
const MOST: u64 = 256;

impl Catalog {
    /// Returns a page of what is kept of a name, or below a directory.
    pub async fn kept(
        &self,
        path: PoolPath,
        scope: KeptScope,
        after: Option<String>,
        now_ms: u64,
        seen: SeenSpaces,
    ) -> Result<KeptListed, Error> {
        self.read(move |db| kept::list(db, &path, scope, after.as_deref(), now_ms, &seen)).await
    }

    /// Brings a kept thing back to the name that it had: the one with this `number`, or the one that was kept last. An
    /// entry that has the name now is kept in turn. With `removed`, the thing must have been removed, and nothing may
    /// have the name.
    pub async fn bring_back(
        &self,
        path: PoolPath,
        number: Option<VersionId>,
        removed: bool,
        when: When,
    ) -> Result<BroughtBack, Error> {
        let bring = move |db: &_| {
            staging::check_writable(db, &path, None)?;
            bring_back(db, &path, number, removed, when)
        };
        self.write(Durability::Disk, bring).await
    }

    /// Lets go for good those of the given things that are kept of `path` or below it, a few in each transaction. A
    /// thing that a snapshot shows stays for the snapshot.
    pub async fn let_go(
        &self,
        path: PoolPath,
        numbers: Vec<VersionId>,
        when: When,
    ) -> Result<(), Error> {
        for numbers in numbers.chunks(LET_GO_AT_ONCE) {
            let (path, numbers) = (path.clone(), numbers.to_vec());
            let let_go = move |db: &_| let_go_of(db, &path, &numbers, when);
            self.write(Durability::Disk, let_go).await?;
        }
        Ok(())
    }

    /// Takes a snapshot of a directory, which can be read below the directory from then on.
    pub async fn take_snapshot(
        &self,
        dir: PoolPath,
        name: String,
        when: When,
    ) -> Result<TakenSnapshot, Error> {
        self.write(Durability::Disk, move |db| take_snapshot(db, &dir, &name, when)).await
    }

    /// Removes a snapshot; what only it kept is let go in the background.
    pub async fn remove_snapshot(&self, dir: PoolPath, name: String) -> Result<(), Error> {
        self.write(Durability::Disk, move |db| remove_snapshot(db, &dir, &name)).await
    }

    /// Returns the snapshots of a directory, the oldest first.
    pub async fn snapshots(&self, dir: PoolPath) -> Result<Vec<TakenSnapshot>, Error> {
        self.read(move |db| snapshots::of_dir(db, &dir)).await
    }
}

/// Lets one kept thing go for good: its place is given up at once, and a tree is taken apart in the background. A thing
/// that a snapshot shows stays, for that snapshot alone.
pub(crate) fn let_go(db: &Tx, row: &HistoryRow, when: When) -> Result<(), Error> {
    if let Some((_, found)) = kept_rows::find(db, row)?
        && bygone::of_place(db, &found.place)?.is_some()
    {
        return write_anew(db, HistoryRow { until_ms: None, shown: true, ..row.clone() });
    }
    // If no path leads to the thing's directory any more, the thing is taken apart together with that.
    let Some(above) = entries::path_of(db, row.dir)? else {
        return kept_rows::forget(db, row.number);
    };
    let place = KeptPlace { dir: above, number: row.number };
    let Some((holder, _)) = kept_rows::find(db, row)? else {
        return kept_rows::forget(db, row.number);
    };
    match place.path() {
        Ok(path) => apply::write_at(db, Record::Removed { path }, when.pool_ms)?,
        // A directory above was moved, and the path of the thing is too long by now. The log has the thing at another
        // path, where its time is over as well.
        Err(_) => {
            kept_rows::forget(db, row.number)?;
            let at = (holder, &*place.name());
            entry_moves::vacate(db, place.dir.space(), at, when.pool_ms)?;
        }
    }
    leave(db, &place.dir, holder, when)
}

/// Removes the directory in which things are kept of a directory at `path`, if nothing is left in it.
pub(crate) fn leave(db: &Tx, path: &PoolPath, holder: DirId, when: When) -> Result<(), Error> {
    match path.join(KEPT_DIR) {
        Ok(path) if !entries::has_children(db, holder)? => {
            apply::write_at(db, Record::Removed { path }, when.pool_ms)
        }
        _ => Ok(()),
    }
}

/// Lets go the first `limit` kept things whose time is over, and returns whether there may be more. A thing that cannot
/// be let go is tried again after [`TRIED_AGAIN_MS`].
pub(crate) fn expire(db: &Tx, limit: usize, pool_ms: u64) -> Result<bool, Error> {
    let now_ms = notes::without_leaps(db, pool_ms)?;
    let due = kept_rows::due(db, now_ms, limit)?;
    let when = When { pool_ms, ..When::default() };
    for row in &due {
        match db.savepoint(|| let_go(db, row, when)) {
            Err(why) if !why.is_of_catalog() => {
                tracing::warn!(number = %row.number, %why, "something that is kept cannot be let go");
                // The thing is tried again later, so that it holds up no others that are due.
                let until_ms = Some(now_ms + TRIED_AGAIN_MS);
                kept_rows::put(db, &HistoryRow { until_ms, ..row.clone() })?;
            }
            done => done?,
        }
    }
    Ok(due.len() == limit)
}

/// Returns whether the time of anything that is kept is over.
pub(crate) fn any_due(db: &Tx, pool_ms: u64) -> Result<bool, Error> {
    Ok(!kept_rows::due(db, notes::without_leaps(db, pool_ms)?, 1)?.is_empty())
}

/// Lets go those of the given things that are kept of `path`, or below it.
pub(crate) fn let_go_of(
    db: &Tx,
    path: &PoolPath,
    numbers: &[VersionId],
    when: When,
) -> Result<(), Error> {
    for number in numbers {
        let Some(row) = kept_rows::get(db, *number)? else { continue };
        let of = entries::path_of(db, row.dir)?.and_then(|dir| dir.join(&row.name).ok());
        if of.is_some_and(|of| of.is_inside(path)) {
            let_go(db, &row, when)?;
        }
    }
    Ok(())
}

/// The outcome of bringing something back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BroughtBack {
    /// The number of the version, or of the directory or link.
    pub number: VersionId,
    /// True if something had the name, which is now kept.
    pub replaced: bool,
}

/// Gives what is kept of a name that name again: the thing with this number, or the one that was kept last. With
/// `removed`, the thing must have been removed, and nothing may have the name. An entry that has the name is kept as if
/// it were replaced; where the policy keeps nothing any more, it is kept for as long as the thing that takes its place
/// would have been.
pub(crate) fn bring_back(
    db: &Tx,
    path: &PoolPath,
    number: Option<VersionId>,
    removed: bool,
    when: When,
) -> Result<BroughtBack, Error> {
    let (above, name) = split(path)?;
    let now_ms = notes::without_leaps(db, when.pool_ms)?;
    let parent = kept::above_of(db, path, &above, now_ms)?;
    let rows = kept_rows::of_name(db, parent, name)?;
    let is_meant = |row: &HistoryRow| {
        row.is_live(now_ms)
            && number.is_none_or(|number| number == row.number)
            && (row.removed || !removed)
    };
    let none = || Error::NotKept { path: path.clone(), number };
    let row = rows.into_iter().find(is_meant).ok_or_else(none)?;
    let (holder, found) = kept_rows::find(db, &row)?.ok_or_else(none)?;
    let current = entries::lookup(db, parent, name)?.map(|found| found.place);
    let was_pinned = entries::is_pinned(db, parent, name)?;
    let is_dir = |place: &EntryPlace| matches!(place, EntryPlace::Dir(_));
    if let Some(current) = &current {
        if removed || is_dir(current) != is_dir(&found.place) {
            return Err(Error::Exists(path.clone()));
        }
        let leaving = LeavingEntry { dir: parent, path, place: current, removed: false };
        let retention = retention(db, path, when)?;
        // Its row must not count among those that are kept of the name from now on.
        kept_rows::forget(db, row.number)?;
        if !keep(db, &leaving, retention, when)? {
            put_away(db, &leaving, (row.until_ms, row.shown), when)?;
        }
    }
    let place = KeptPlace { dir: above.clone(), number: row.number };
    let from = place.path().map_err(|why| Error::Bug(why.to_string()))?;
    apply::write_at(db, Record::Moved { from, to: path.clone() }, when.pool_ms)?;
    entries::set_used(db, parent, name, 0)?; // a step of a series counts as used now, when it is looked at next
    attributes::is_renamed(db, path, when)?;
    if was_pinned {
        stay_pinned(db, path)?;
    }
    leave(db, &above, holder, when)?;
    if current.is_none() {
        touched(db, &above, FileTime::of_ms(when.wall_ms))?;
    }
    Ok(BroughtBack { number: row.number, replaced: current.is_some() })
}

/// Takes a snapshot of a directory.
pub(crate) fn take_snapshot(
    db: &Tx,
    dir: &PoolPath,
    name: &str,
    when: When,
) -> Result<TakenSnapshot, Error> {
    checkpoint_rows::check_not_kept(dir)?;
    if dir.space().is_empty() {
        return Err(Error::OutsideSpaces(dir.clone()));
    }
    if StagedPlace::of(dir).is_some() {
        return Err(Error::StagingPlace(dir.clone()));
    }
    let (_, at) = place(dir, name)?;
    let of = entries::existing_dir(db, dir)?;
    if snapshot_rows::count_of(db, of)? >= MOST {
        return Err(Error::TooManySnapshots { dir: dir.clone(), most: MOST });
    }
    if entries::resolve(db, &at)?.is_some() {
        return Err(Error::Exists(at));
    }
    admit_dirs(db, dir, entries::missing_dirs(db, &at)?)?;
    let number = snapshot_rows::next(db)?;
    let taken = TakenSnapshot { at, number, made_wall_ms: when.wall_ms, by: when.by };
    apply::write(db, Record::Snapshot(taken.clone()))?;
    Ok(taken)
}

/// Removes a snapshot; what only it kept is let go in the background.
pub(crate) fn remove_snapshot(db: &Tx, dir: &PoolPath, name: &str) -> Result<(), Error> {
    let (_, mut at) = place(dir, name)?;
    let found = entries::resolve(db, &at)?;
    if found.and_then(|found| found.place.snapshot()).is_none() {
        return Err(Error::NoSnapshot(at));
    }
    // The directories that hold snapshots are removed with the last of them.
    while at != *dir {
        let above = at.parent().unwrap_or_else(PoolPath::root);
        apply::write(db, Record::Removed { path: at })?;
        if above == *dir || entries::has_children(db, entries::existing_dir(db, &above)?)? {
            break;
        }
        at = above;
    }
    Ok(())
}

/// Lets go, in one step, some of what a snapshot that has ended kept, and returns whether there may be more to do.
pub(crate) fn release(db: &Tx, limit: usize, when: When) -> Result<bool, Error> {
    let Some(ended) = snapshot_rows::any_ended(db)? else { return Ok(false) };
    let released = bygone::release(db, ended, limit)?;
    for place in &released.not_shown {
        keeping::not_shown(db, place, when)?;
    }
    if released.all {
        snapshot_rows::forget(db, ended, limit)?;
    }
    Ok(true)
}
