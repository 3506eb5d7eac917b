//! Keeps files, directories and links that were replaced or removed, for as long as the policy of their
//! directory says ([`potluck_core::policy::Retention`]).
//!
//! A kept thing stays an entry: it moves into the directory [`KEPT_DIR`] beside it, under its number. So it is
//! repaired, scanned, counted and logged as all files are, moves with its directory, and inherits its policies. A row
//! says which name it had, and when it is let go ([note 0012](../../../docs/notes/0012-versions-and-trash.md)).

pub(crate) mod bygone;
pub(crate) mod bygone_name;
pub(crate) mod kept;
pub(crate) mod kept_entry;
pub(crate) mod kept_rows;
pub(crate) mod reaping;
pub(crate) mod series;
pub(crate) mod snapshot_rows;
pub(crate) mod snapshots;
pub(crate) mod taken_snapshot;
pub(crate) mod trash;

use crate::chunks::ReferenceCounts;
use crate::error::Error;
use crate::history::{bygone::BygoneRow, kept_entry::KeptEntry, kept_rows::HistoryRow};
use crate::log::{changes, notes, records::Record};
use crate::names::{
    dir_policies,
    dir_times::touched,
    entries::{self, DirId, EntryPlace, FoundEntry, split},
    entry_attributes,
};
use crate::pool_records::{
    meta::Counter,
    spaces::{self, Sums},
};
use crate::sql::Tx;
use crate::versions;
use crate::when::{WhatIsKept, When};
use potluck_core::attributes::{EntryAttributes, FileTime};
use potluck_core::ids::VersionId;
use potluck_core::kept_place::{KEPT_DIR, KeptPlace};
use potluck_core::path::{MAX_PATH, PoolPath};
use potluck_core::policy::{MOST_VERSIONS, Policy, Retention};
use std::collections::BTreeSet;

/// The time in milliseconds after which a failed attempt to let something go is repeated.
const TRIED_AGAIN_MS: u64 = 3_600_000;

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
/// and of which no snapshot shows anything is not kept. In any case it is noted which snapshot shows the entry under
/// its name.
pub(crate) fn keep(
    db: &Tx,
    leaving: &LeavingEntry<'_>,
    retention: Retention,
    when: When,
) -> Result<bool, Error> {
    bygone::note(db, (leaving.dir, leaving.path), when)?;
    if let (true, EntryPlace::Dir(dir)) = (leaving.removed, leaving.place)
        && is_void(db, *dir)?
    {
        return Ok(false);
    }
    let keeps = match leaving.removed {
        true => !retention.removed.is_none(),
        // A link that is replaced is not kept, for nothing is in it but its target.
        false => !retention.replaced.is_none() && !matches!(leaving.place, EntryPlace::Link(_)),
    };
    let is_shown = when.keeps != WhatIsKept::AsTheLogSays
        && !keeps
        && bygone::of_place(db, leaving.place)?.is_some();
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
        end_by(db, (leaving.dir, leaving.path), until_ms, true)?;
    }
    let most = if removed { MOST_VERSIONS } else { retention.replaced.newest };
    trim(db, (dir, leaving.name()), most, when)?;
    Ok(true)
}

/// Returns whether nothing is in a directory, and no snapshot shows anything that was in it. A thing that is shown
/// there and was moved elsewhere is kept there when it is removed, so a path must lead to the directory until then.
pub(crate) fn is_void(db: &Tx, dir: DirId) -> Result<bool, Error> {
    Ok(!entries::has_children(db, dir)? && !bygone::is_any_of(db, dir)?)
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
    let now_ms = notes::without_leaps(db, when.pool_ms)?;
    match when.keeps {
        WhatIsKept::AsTheLogSays => Ok(()),
        _ if is_final => end_by(db, (dir, path), now_ms, false),
        _ => {
            let time = retention(db, path, when)?.removed;
            end_by(db, (dir, path), now_ms + time.ms(), true)
        }
    }
}

fn end_by(
    db: &Tx,
    (dir, path): (DirId, &PoolPath),
    until_ms: u64,
    only_endless: bool,
) -> Result<(), Error> {
    let name = path.file_name().unwrap_or_default();
    if kept_rows::end_by(db, dir, name, until_ms, only_endless)? {
        let path = path.clone();
        changes::tell(db, Record::KeptUntil { path, until_ms, only_endless })?;
    }
    Ok(())
}

/// Pins what has taken the place of a pinned entry: a pin stays with the name.
pub(crate) fn stay_pinned(db: &Tx, path: &PoolPath) -> Result<(), Error> {
    let (above, name) = split(path)?;
    entries::set_pinned(db, entries::existing_dir(db, &above)?, name, true)?;
    changes::tell(db, Record::Pinned { path: path.clone(), pinned: true })
}

/// Moves an entry to where it is kept.
fn put_away(
    db: &Tx,
    leaving: &LeavingEntry<'_>,
    (until_ms, shown): (Option<u64>, bool),
    when: When,
) -> Result<(), Error> {
    let LeavingEntry { dir, path, place, removed } = *leaving;
    let above = path.parent().ok_or_else(|| Error::OutsideSpaces(path.clone()))?;
    let row = HistoryRow {
        number: number_of(db, place)?,
        dir,
        name: leaving.name().into(),
        removed,
        kept_wall_ms: when.wall_ms,
        kept_ms: when.pool_ms,
        by: when.by,
        until_ms,
        shown,
    };
    let at = move_to(db, (dir, leaving.name()), &above, &row)?;
    let from = Some(path.clone());
    changes::tell(db, Record::Kept(KeptEntry { from, ..entry(row, at) }))
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

/// Moves an entry to where a row says that it is kept, writes the row, and returns the path there.
fn move_to(
    db: &Tx,
    from: (DirId, &str),
    above: &PoolPath,
    row: &HistoryRow,
) -> Result<PoolPath, Error> {
    let place = KeptPlace { dir: above.clone(), number: row.number };
    let at = place.path().map_err(|_| Error::TooLongToKeep(above.clone()))?;
    let attributes = EntryAttributes::of_dir(row.kept_wall_ms);
    let holder = match entries::lookup(db, row.dir, KEPT_DIR)? {
        Some(FoundEntry { place: EntryPlace::Dir(holder), .. }) => holder,
        Some(_) => return Err(Error::Damaged(format!("{KEPT_DIR} above {at} is no directory"))),
        None => entries::make_dir(db, row.dir, KEPT_DIR, attributes)?,
    };
    entries::rename(db, from, (holder, &place.name()))?;
    kept_rows::put(db, row)?;
    Ok(at)
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
    let at = move_to(db, from, &above, &row)?;
    changes::tell(db, Record::Kept(entry(row, at)))?;
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
    match find(db, &row)? {
        Some((_, found)) if found.place == *place => {
            let until_ms = Some(notes::without_leaps(db, when.pool_ms)?);
            write_anew(db, HistoryRow { until_ms, shown: false, ..row })
        }
        _ => Ok(()),
    }
}

/// Writes a row that was changed, and tells the log of it if a path leads to what the row is about.
fn write_anew(db: &Tx, row: HistoryRow) -> Result<(), Error> {
    let place = |dir| KeptPlace { dir, number: row.number }.path().ok();
    kept_rows::put(db, &row)?;
    match entries::path_of(db, row.dir)?.and_then(place) {
        Some(at) => changes::tell(db, Record::Kept(entry(row, at))),
        None => Ok(()),
    }
}

/// Returns a row in the form in which the log tells of it.
fn entry(row: HistoryRow, at: PoolPath) -> KeptEntry {
    let HistoryRow { name, removed, kept_wall_ms, kept_ms, by, until_ms, shown, .. } = row;
    KeptEntry { from: None, at, name, removed, kept_wall_ms, kept_ms, by, until_ms, shown }
}

/// Returns the row about what a path leads to, as the log tells of it.
pub(crate) fn entry_at(db: &Tx, at: &PoolPath) -> Result<Option<KeptEntry>, Error> {
    let Some(place) = KeptPlace::of(at) else { return Ok(None) };
    Ok(kept_rows::get(db, place.number)?.map(|row| entry(row, at.clone())))
}

/// Writes the row of something that is kept, and moves it there if the record says from where.
pub(crate) fn put(db: &Tx, told: &KeptEntry) -> Result<(), Error> {
    let outside = || Error::OutsideSpaces(told.at.clone());
    let place = KeptPlace::of(&told.at).ok_or_else(outside)?;
    let dir = entries::existing_dir(db, &place.dir)?;
    let KeptEntry { name, removed, kept_wall_ms, kept_ms, by, until_ms, shown, .. } = told.clone();
    let number = place.number;
    let row = HistoryRow { number, dir, name, removed, kept_wall_ms, kept_ms, by, until_ms, shown };
    match &told.from {
        Some(from) => {
            move_to(db, (dir, from.file_name().unwrap_or_default()), &place.dir, &row)?;
        }
        None => kept_rows::put(db, &row)?,
    }
    Counter::Version.pass(db, number.0 as i64)
}

/// Sets the time at which the things that are kept of a name are let go at the latest.
pub(crate) fn end_at(
    db: &Tx,
    path: &PoolPath,
    until_ms: u64,
    only_endless: bool,
) -> Result<(), Error> {
    let (above, name) = split(path)?;
    let dir = entries::existing_dir(db, &above)?;
    kept_rows::end_by(db, dir, name, until_ms, only_endless).map(drop)
}

/// Forgets the row of what was at a path, if that was kept there.
pub(crate) fn forget_at(db: &Tx, path: &PoolPath) -> Result<(), Error> {
    KeptPlace::of(path).map_or(Ok(()), |place| kept_rows::forget(db, place.number))
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

/// Lets one kept thing go for good: its place is given up at once, and a tree is taken apart in the background. A thing
/// that a snapshot shows stays, for that snapshot alone.
pub(crate) fn let_go(db: &Tx, row: &HistoryRow, when: When) -> Result<(), Error> {
    if let Some((_, found)) = find(db, row)?
        && bygone::of_place(db, &found.place)?.is_some()
    {
        return write_anew(db, HistoryRow { until_ms: None, shown: true, ..row.clone() });
    }
    kept_rows::forget(db, row.number)?;
    // If no path leads to the thing's directory any more, the thing is taken apart together with that.
    let Some(above) = entries::path_of(db, row.dir)? else { return Ok(()) };
    let place = KeptPlace { dir: above, number: row.number };
    let Some((holder, found)) = find(db, row)? else { return Ok(()) };
    let space = spaces::named(db, place.dir.space())?.id;
    entries::delete(db, holder, &place.name())?;
    let mut sums = Sums::default();
    match found.place {
        EntryPlace::File(version) => {
            let mut counts = ReferenceCounts::new(db, when.pool_ms);
            let deleted = versions::delete(db, version, &mut counts)?;
            sums.deleted(deleted.data, deleted.in_catalog);
            counts.close()?;
        }
        EntryPlace::Link(_) => sums.sub(0),
        EntryPlace::Dir(dir) => trash::throw(db, dir, space)?,
    }
    spaces::add_sums(db, space, sums)?;
    // If the path of the thing is too long by now, because a directory above was moved, the log has the thing at
    // another path, where its time is over as well.
    if let Ok(at) = place.path() {
        changes::tell(db, Record::Removed { path: at })?;
    }
    leave(db, row.dir, &place.dir, holder)
}

/// Returns the entry that a row is about, with the directory that it is in.
pub(crate) fn find(db: &Tx, row: &HistoryRow) -> Result<Option<(DirId, FoundEntry)>, Error> {
    let holder = entries::lookup(db, row.dir, KEPT_DIR)?.map(|found| found.place);
    let Some(EntryPlace::Dir(holder)) = holder else { return Ok(None) };
    let found = entries::lookup(db, holder, &row.number.0.to_string())?;
    Ok(found.map(|found| (holder, found)))
}

/// Removes the directory in which things are kept, if nothing is left in it.
fn leave(db: &Tx, dir: DirId, path: &PoolPath, holder: DirId) -> Result<(), Error> {
    if entries::has_children(db, holder)? {
        return Ok(());
    }
    entries::delete(db, dir, KEPT_DIR)?;
    entries::dir_ended(db, spaces::named(db, path.space())?.id, holder)?;
    path.join(KEPT_DIR).map_or(Ok(()), |path| changes::tell(db, Record::Removed { path }))
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
    let parent = above_of(db, path, &above, now_ms)?;
    let rows = kept_rows::of_name(db, parent, name)?;
    let is_meant = |row: &HistoryRow| {
        row.is_live(now_ms)
            && number.is_none_or(|number| number == row.number)
            && (row.removed || !removed)
    };
    let none = || Error::NotKept { path: path.clone(), number };
    let row = rows.into_iter().find(is_meant).ok_or_else(none)?;
    let (holder, found) = find(db, &row)?.ok_or_else(none)?;
    let current = entries::lookup(db, parent, name)?.map(|found| found.place);
    let was_pinned = entries::is_pinned(db, parent, name)?;
    let is_dir = |place: &EntryPlace| matches!(place, EntryPlace::Dir(_));
    kept_rows::forget(db, row.number)?;
    if let Some(current) = &current {
        if removed || is_dir(current) != is_dir(&found.place) {
            return Err(Error::Exists(path.clone()));
        }
        let leaving = LeavingEntry { dir: parent, path, place: current, removed: false };
        let retention = retention(db, path, when)?;
        if !keep(db, &leaving, retention, when)? {
            put_away(db, &leaving, (row.until_ms, row.shown), when)?;
        }
    }
    let place = KeptPlace { dir: above.clone(), number: row.number };
    let from = place.path().map_err(|why| Error::Bug(why.to_string()))?;
    entries::rename(db, (holder, &place.name()), (parent, name))?;
    entries::set_used(db, parent, name, 0)?; // a step of a series counts as used now, when it is looked at next
    changes::tell(db, Record::Moved { from, to: path.clone() })?;
    entry_attributes::is_renamed(db, path, when)?;
    if was_pinned {
        stay_pinned(db, path)?;
    }
    leave(db, parent, &above, holder)?;
    if current.is_none() {
        touched(db, &above, parent, FileTime::of_ms(when.wall_ms))?;
    }
    Ok(BroughtBack { number: row.number, replaced: current.is_some() })
}

/// Returns the directory above a path. `now_ms` is the pool's time without its leaps.
///
/// Errors: [`Error::RemovedAbove`] if one of the directories above was removed and is kept, [`Error::NoEntry`] if one
/// is not known, and [`Error::NotADirectory`] if a file or link is in its place.
pub(crate) fn above_of(
    db: &Tx,
    path: &PoolPath,
    above: &PoolPath,
    now_ms: u64,
) -> Result<DirId, Error> {
    let mut dir = spaces::named(db, path.space())?.root;
    for (depth, name) in above.names().iter().enumerate() {
        dir = match entries::lookup(db, dir, name)?.map(|found| found.place) {
            Some(EntryPlace::Dir(next)) => next,
            Some(_) => return Err(Error::NotADirectory(path.ancestor(depth + 1))),
            None => {
                let missing = path.ancestor(depth + 1);
                let rows = kept_rows::of_name(db, dir, name)?;
                let was_removed = |row: &HistoryRow| row.removed && row.is_live(now_ms);
                return Err(match rows.iter().any(was_removed) {
                    true => Error::RemovedAbove { path: path.clone(), removed: missing },
                    false => Error::NoEntry(missing),
                });
            }
        };
    }
    Ok(dir)
}
