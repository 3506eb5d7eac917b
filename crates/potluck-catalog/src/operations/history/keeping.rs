//! Keeps files, directories and links that were replaced or removed, for as long as the policy of their
//! directory says ([`potluck_core::policy::Retention`]).
//!
//! A kept thing stays an entry: it moves into the directory [`KEPT_DIR`](potluck_core::kept_place::KEPT_DIR) beside it,
//! under its number. So it is repaired, scanned, counted and logged as all files are, moves with its directory, and
//! inherits its policies. A row says which name it had, and when it is let go
//! ([note 0012](../../../../../docs/notes/0012-versions-and-trash.md)).

use crate::error::Error;
use crate::history::{
    bygone::{self, BygoneRow},
    bygone_name::BygoneName,
    kept_entry::KeptEntry,
    kept_rows::{self, HistoryRow},
};
use crate::log::{apply, changes, records::Record};
use crate::names::{
    dir_policies,
    entries::{self, DirId, EntryPlace},
    entry_moves,
};
use crate::pool_records::{meta::Counter, notes};
use crate::sql::Tx;
use crate::when::{WhatIsKept, When};
use potluck_core::ids::VersionId;
use potluck_core::kept_place::KeptPlace;
use potluck_core::path::{MAX_PATH, PoolPath};
use potluck_core::policy::{MOST_VERSIONS, Policy, Retention};
use std::collections::BTreeSet;

/// An entry that loses its name.
pub(crate) struct LeavingEntry<'a> {
    /// The directory that the entry is in.
    pub dir: DirId,
    /// The path that leads to the entry.
    pub path: &'a PoolPath,
    /// The thing that the entry stands for.
    pub place: &'a EntryPlace,
    /// True if the entry is removed; otherwise something else takes its place.
    pub removed: bool,
}

impl LeavingEntry<'_> {
    fn name(&self) -> &str {
        self.path.file_name().unwrap_or_default()
    }
}

/// Returns how long the policy that holds at `path` keeps things. That is no time where nothing is ever kept, or where
/// `when` says that policies do not decide.
pub(crate) fn retention(db: &Tx, path: &PoolPath, when: When) -> Result<Retention, Error> {
    let keeps = when.keeps == WhatIsKept::AsPoliciesSay && kept_rows::keeps_at(path);
    let policy = || dir_policies::effective(db, path).map(|policy| policy.retention());
    if keeps { policy() } else { Ok(Retention::default()) }
}

/// Returns how long `policy` keeps things at `path`, where it holds. That is no time where nothing is ever kept.
pub(crate) fn retention_of(policy: &Policy, path: &PoolPath) -> Retention {
    if kept_rows::keeps_at(path) { policy.retention() } else { Retention::default() }
}

/// Returns whether the version of a file that another takes the place of is kept, by its policy or for a snapshot, so
/// that it goes on to count in the sums of its space.
pub(crate) fn stays_when_replaced(
    db: &Tx,
    at: (DirId, &PoolPath),
    version: VersionId,
    retention: Retention,
) -> Result<bool, Error> {
    Ok(!retention.replaced.is_none() || bygone::is_shown(db, at, &EntryPlace::File(version))?)
}

/// Moves an entry that loses its name to where it is kept, if its policy or a snapshot keeps it, and returns whether it
/// was moved. A move is told to the log, and the entry counts in its space as before. A removed directory that is empty
/// is kept only for a snapshot. In any case it is noted which snapshot shows the entry under
/// its name.
pub(crate) fn keep(
    db: &Tx,
    leaving: &LeavingEntry<'_>,
    retention: Retention,
    when: When,
) -> Result<bool, Error> {
    note_bygone(db, (leaving.dir, leaving.path))?;
    let is_void = match leaving.place {
        EntryPlace::Dir(dir) => entry_moves::is_void(db, *dir)?,
        EntryPlace::File(_) | EntryPlace::Link(_) => false,
    };
    let keeps = match leaving.removed {
        true => !retention.removed.is_none() && !is_void,
        // A link that is replaced is not kept, for nothing is in it but its target.
        false => !retention.replaced.is_none() && !matches!(leaving.place, EntryPlace::Link(_)),
    };
    let is_shown = !keeps && bygone::of_place(db, leaving.place)?.is_some();
    if is_shown {
        put_away(db, leaving, (None, true), when)?;
    }
    if !keeps {
        return Ok(is_shown);
    }
    let time = if leaving.removed { Some(retention.removed) } else { retention.replaced.time };
    let now_ms = notes::without_leaps(db, when.pool_ms)?;
    let until_ms = time.map(|time| now_ms + time.ms());
    put_away(db, leaving, (until_ms, false), when)?;
    let LeavingEntry { dir, removed, .. } = *leaving;
    if let (true, Some(until_ms)) = (removed, until_ms) {
        // Versions of this name that are kept by their number would stay for ever, since no newer ones follow.
        end_by(db, leaving.path, until_ms, true)?;
    }
    let most = if removed { MOST_VERSIONS } else { retention.replaced.newest };
    trim(db, (dir, leaving.name()), most, when)?;
    Ok(true)
}

/// Refuses to keep a tree in which something would have a longer path than any may have. This reads the whole tree, so
/// it is called before the removal and outside of its transaction.
pub(crate) fn check_lengths(db: &Tx, path: &PoolPath, when: When) -> Result<(), Error> {
    let found = entries::resolve(db, path)?.map(|found| found.place);
    let Some(EntryPlace::Dir(dir)) = found else { return Ok(()) };
    if retention(db, path, when)?.removed.is_none() {
        return Ok(());
    }
    let above = path.parent().unwrap_or_else(PoolPath::root);
    let longest = KeptPlace { dir: above, number: VersionId(u64::MAX) }.path();
    let bytes = longest.map(|longest| longest.to_string().len());
    let bytes = bytes.unwrap_or(MAX_PATH) + entries::longest_below(db, dir)?;
    if bytes > MAX_PATH { Err(Error::TooLongToKeep(path.clone())) } else { Ok(()) }
}

/// Records that a name leads to nothing any more and that what it led to is not kept. After a removal that `is_final`
/// nothing is kept of the name; otherwise kept versions without a time of their own are kept for as long as removed
/// files are.
pub(crate) fn forget_name(
    db: &Tx,
    (dir, path): (DirId, &PoolPath),
    is_final: bool,
    when: When,
) -> Result<(), Error> {
    if kept_rows::count_of_name(db, dir, path.file_name().unwrap_or_default())? == 0 {
        return Ok(());
    }
    let now_ms = notes::without_leaps(db, when.pool_ms)?;
    let until_ms = match is_final {
        true => now_ms,
        false => now_ms + retention(db, path, when)?.removed.ms(),
    };
    end_by(db, path, until_ms, !is_final)
}

fn end_by(db: &Tx, path: &PoolPath, until_ms: u64, only_endless: bool) -> Result<(), Error> {
    apply::write(db, Record::KeptUntil { path: path.clone(), until_ms, only_endless })
}

/// Pins what has taken the place of a pinned entry: a pin stays with the name.
pub(crate) fn stay_pinned(db: &Tx, path: &PoolPath) -> Result<(), Error> {
    apply::write(db, Record::Pinned { path: path.clone(), pinned: true })
}

/// Notes what a name leads to, if a snapshot shows that there. It is called before the name comes to lead elsewhere or
/// nowhere.
pub(crate) fn note_bygone(db: &Tx, (dir, path): (DirId, &PoolPath)) -> Result<(), Error> {
    let Some((since, until, snapshot)) = bygone::showing(db, (dir, path))? else { return Ok(()) };
    let (path, at) = (path.clone(), path.clone());
    let shown = BygoneName { path, at, link: None, since, until, snapshot };
    apply::write(db, Record::Bygone(shown))
}

/// Moves an entry to where it is kept.
pub(crate) fn put_away(
    db: &Tx,
    leaving: &LeavingEntry<'_>,
    (until_ms, shown): (Option<u64>, bool),
    when: When,
) -> Result<(), Error> {
    let LeavingEntry { path, place, removed, .. } = *leaving;
    let above = path.parent().ok_or_else(|| Error::OutsideSpaces(path.clone()))?;
    let kept = KeptEntry {
        from: Some(path.clone()),
        at: kept_at(&above, number_of(db, place)?)?,
        name: leaving.name().into(),
        removed,
        kept_wall_ms: when.wall_ms,
        kept_ms: when.pool_ms,
        by: when.by,
        until_ms,
        shown,
    };
    apply::write_at(db, Record::Kept(kept), when.pool_ms)
}

/// Returns the path at which something is kept of a directory, under a number.
fn kept_at(above: &PoolPath, number: VersionId) -> Result<PoolPath, Error> {
    let place = KeptPlace { dir: above.clone(), number };
    place.path().map_err(|_| Error::TooLongToKeep(above.clone()))
}

/// Returns the number under which something is kept.
fn number_of(db: &Tx, place: &EntryPlace) -> Result<VersionId, Error> {
    match place {
        EntryPlace::File(version) => Ok(*version),
        EntryPlace::Dir(_) | EntryPlace::Link(_) => {
            Ok(VersionId(Counter::Version.take(db, 1)? as u64))
        }
    }
}

/// Moves an entry that is about to be taken apart to where a snapshot shows it, and returns whether one does. A
/// directory that no path leads to any more shows nothing, unless a snapshot shows that directory, too: then it is
/// moved first, in whatever order the tree is taken apart.
pub(crate) fn keep_shown(
    db: &Tx,
    from: (DirId, &str),
    place: &EntryPlace,
    now_ms: u64,
) -> Result<bool, Error> {
    keep_shown_after(db, from, place, now_ms, &mut BTreeSet::new())
}

/// Does what [`keep_shown`] does; `tried` has the directories that were looked at before.
fn keep_shown_after(
    db: &Tx,
    from: (DirId, &str),
    place: &EntryPlace,
    now_ms: u64,
    tried: &mut BTreeSet<DirId>,
) -> Result<bool, Error> {
    let rows = bygone::all_of_place(db, place)?;
    if rows.is_empty() {
        return Ok(false);
    }
    if entries::lookup(db, from.0, from.1)?.is_none() {
        return Ok(true); // it was moved for something that was taken apart before
    }
    let Some((shown, above)) = shown_at(db, rows, now_ms, tried)? else { return Ok(false) };
    let row = HistoryRow {
        number: number_of(db, place)?,
        dir: shown.dir,
        name: shown.name.clone(),
        removed: true,
        kept_wall_ms: 0,
        kept_ms: now_ms,
        by: None,
        until_ms: None,
        shown: true,
    };
    // No path leads to the entry, so the log cannot tell from where it comes.
    let at = kept_at(&above, row.number)?;
    entry_moves::move_to_kept(db, from, entry_moves::kept_dir(db, &row)?, &row)?;
    changes::tell(db, Record::Kept(row.told(at)))?;
    Ok(true)
}

/// Returns the first of these rows whose directory a path leads to, with the path of that directory. If none is, a
/// directory that is to be taken apart as well is moved to where a snapshot shows it.
fn shown_at(
    db: &Tx,
    rows: Vec<BygoneRow>,
    now_ms: u64,
    tried: &mut BTreeSet<DirId>,
) -> Result<Option<(BygoneRow, PoolPath)>, Error> {
    for row in &rows {
        if let Some(above) = entries::path_of(db, row.dir)? {
            return Ok(Some((row.clone(), above)));
        }
    }
    for row in rows {
        attach(db, row.dir, now_ms, tried)?;
        if let Some(above) = entries::path_of(db, row.dir)? {
            return Ok(Some((row, above)));
        }
    }
    Ok(None)
}

/// Moves a directory to which no path leads, or else the nearest one above it, to where a snapshot shows that, if one
/// does.
fn attach(db: &Tx, dir: DirId, now_ms: u64, tried: &mut BTreeSet<DirId>) -> Result<(), Error> {
    let (mut above, mut at) = (Vec::new(), dir);
    while let Some((parent, name)) = entries::holder_of(db, &EntryPlace::Dir(at))? {
        if parent == DirId::ROOT {
            return Ok(()); // a path leads to it, which is too long
        }
        if above.len() > MAX_PATH {
            return Err(Error::Damaged(format!("directory {} is inside itself", dir.0)));
        }
        above.push((at, parent, name));
        at = parent;
    }
    for (dir, parent, name) in above {
        let place = EntryPlace::Dir(dir);
        if tried.insert(dir) && keep_shown_after(db, (parent, &name), &place, now_ms, tried)? {
            break;
        }
    }
    Ok(())
}

/// Lets something go that no snapshot shows any more, if it was kept for snapshots alone.
pub(crate) fn not_shown(db: &Tx, place: &EntryPlace, when: When) -> Result<(), Error> {
    let Some((_, name)) = entries::holder_of(db, place)? else { return Ok(()) };
    let Some(number) = name.parse().ok().map(VersionId) else { return Ok(()) };
    let Some(row) = kept_rows::get(db, number)?.filter(|row| row.shown) else { return Ok(()) };
    // The name alone does not tell: a file elsewhere may have a number as its name, too.
    match kept_rows::find(db, &row)? {
        Some((_, found)) if found.place == *place => {
            let until_ms = Some(notes::without_leaps(db, when.pool_ms)?);
            write_anew(db, HistoryRow { until_ms, shown: false, ..row })
        }
        _ => Ok(()),
    }
}

/// Writes a row that was changed. The log tells of it if a path leads to what the row is about.
pub(crate) fn write_anew(db: &Tx, row: HistoryRow) -> Result<(), Error> {
    let place = |dir| KeptPlace { dir, number: row.number }.path().ok();
    match entries::path_of(db, row.dir)?.and_then(place) {
        Some(at) => apply::write(db, Record::Kept(row.told(at))),
        None => kept_rows::put(db, &row),
    }
}

/// Ends the time of the replaced things of a name beyond the `most` newest of them, and of all things of the name
/// beyond the [`MOST_VERSIONS`] newest, so that the next round of upkeep lets them go. What is kept for a snapshot
/// alone stays.
fn trim(db: &Tx, (dir, name): (DirId, &str), most: u32, when: When) -> Result<(), Error> {
    if kept_rows::count_of_name(db, dir, name)? <= most.into() {
        return Ok(());
    }
    let now_ms = notes::without_leaps(db, when.pool_ms)?;
    let live = kept_rows::of_name(db, dir, name)?.into_iter();
    let live: Vec<HistoryRow> = live.filter(|row| row.is_live(now_ms) && !row.shown).collect();
    let replaced = live.iter().filter(|row| !row.removed).skip(most as usize);
    let any = live.iter().skip(MOST_VERSIONS as usize);
    for row in replaced.chain(any) {
        write_anew(db, HistoryRow { until_ms: Some(now_ms), ..row.clone() })?;
    }
    Ok(())
}
