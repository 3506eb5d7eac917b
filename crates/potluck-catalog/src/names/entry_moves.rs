//! What records do to entries that lose their place: they are moved, or end. Whatever is to be kept of one that ends was
//! moved away before, as a record of its own tells.

use crate::checkpoints::checkpoint_rows;
use crate::chunks::ReferenceCounts;
use crate::error::Error;
use crate::history::{
    bygone,
    kept_entry::KeptEntry,
    kept_rows::{self, HistoryRow},
    snapshot_rows, snapshots, trash,
};
use crate::names::{
    dir_policies,
    entries::{self, DirId, EntryPlace, FoundEntry, split},
};
use crate::pool_records::{
    meta::Counter,
    spaces::{self, Sums},
};
use crate::sql::Tx;
use crate::versions::{self, DeletedVersion};
use potluck_core::attributes::EntryAttributes;
use potluck_core::checkpoint::CommitStyle;
use potluck_core::ids::{SpaceId, VersionId};
use potluck_core::kept_place::{KEPT_DIR, KeptPlace};
use potluck_core::link_target::LinkTarget;
use potluck_core::path::PoolPath;

/// The attributes of directories that a log with gaps does not tell of.
const UNTOLD: EntryAttributes = EntryAttributes::of_dir(0);

/// Ends what is at a path, if anything is there, and the checkpoint that stages files there.
pub(crate) fn remove(db: &Tx, path: &PoolPath, now_ms: u64) -> Result<(), Error> {
    forget_kept(db, path)?;
    let (above, name) = split(path)?;
    if let Some(dir) = dir_at(db, &above)? {
        vacate(db, path.space(), (dir, name), now_ms)?;
    }
    checkpoint_rows::end_at(db, path, None, now_ms)
}

/// Puts a link at a path, in the place of what is there.
pub(crate) fn put_link(
    db: &Tx,
    path: &PoolPath,
    target: &LinkTarget,
    attributes: EntryAttributes,
    now_ms: u64,
) -> Result<(), Error> {
    let (above, name) = split(path)?;
    let dir = entries::make_dirs(db, &above, EntryAttributes::of_dir(attributes.mtime.ms()))?;
    vacate(db, path.space(), (dir, name), now_ms)?;
    entries::make_link(db, dir, name, target, attributes)?;
    let space = spaces::named(db, path.space())?.id;
    spaces::add_sums(db, space, Sums { files: 1, ..Sums::default() })
}

/// Moves an entry to a path, in the place of what is there. A log has nothing of a file that was replaced before the log
/// was written, and then only what was at the path ends.
pub(crate) fn move_entry(
    db: &Tx,
    from: &PoolPath,
    to: &PoolPath,
    now_ms: u64,
) -> Result<(), Error> {
    forget_kept(db, from)?;
    let ((from_above, from_name), (to_above, to_name)) = (split(from)?, split(to)?);
    let to_dir = entries::make_dirs(db, &to_above, UNTOLD)?;
    vacate(db, to.space(), (to_dir, to_name), now_ms)?;
    let from_dir = if from_above == to_above { Some(to_dir) } else { dir_at(db, &from_above)? };
    let Some(from_dir) = from_dir else { return Ok(()) };
    let moved = entries::lookup(db, from_dir, from_name)?.map(|found| found.place);
    entries::rename(db, (from_dir, from_name), (to_dir, to_name))?;
    match moved {
        Some(EntryPlace::Dir(dir)) => snapshots::moved(db, dir, from_dir, to_dir),
        _ => Ok(()),
    }
}

/// Writes the row of something that is kept, and moves it there if the record says from where.
pub(crate) fn keep(db: &Tx, told: &KeptEntry, now_ms: u64) -> Result<(), Error> {
    let place = KeptPlace::of(&told.at).ok_or_else(|| Error::OutsideSpaces(told.at.clone()))?;
    let row = HistoryRow::of(told, place.number, entries::existing_dir(db, &place.dir)?);
    match told.from.as_ref().and_then(PoolPath::file_name) {
        None => kept_rows::put(db, &row)?,
        Some(name) if entries::lookup(db, row.dir, name)?.is_some() => {
            let holder = kept_dir(db, &row)?;
            vacate(db, told.at.space(), (holder, &place.name()), now_ms)?;
            move_to_kept(db, (row.dir, name), holder, &row)?;
        }
        Some(_) => return Ok(()),
    }
    Counter::Version.pass(db, place.number.0 as i64)
}

/// Moves an entry to where a row says that it is kept, and writes the row.
pub(crate) fn move_to_kept(
    db: &Tx,
    from: (DirId, &str),
    holder: DirId,
    row: &HistoryRow,
) -> Result<(), Error> {
    entries::rename(db, from, (holder, &row.number.0.to_string()))?;
    kept_rows::put(db, row)
}

/// Returns the directory in which the thing of a row is kept, which is made if it is not there.
pub(crate) fn kept_dir(db: &Tx, row: &HistoryRow) -> Result<DirId, Error> {
    match entries::lookup(db, row.dir, KEPT_DIR)? {
        Some(FoundEntry { place: EntryPlace::Dir(holder), .. }) => Ok(holder),
        Some(_) => Err(Error::Damaged(format!("{KEPT_DIR} of {} is no directory", row.number))),
        None => {
            let attributes = EntryAttributes::of_dir(row.kept_wall_ms);
            entries::make_dir(db, row.dir, KEPT_DIR, attributes)
        }
    }
}

/// Makes what a checkpoint stages visible: its staging directory takes the place of the target, or what is in it is put
/// into the directories that are there.
pub(crate) fn publish(
    db: &Tx,
    (staging, target): (&PoolPath, &PoolPath),
    style: CommitStyle,
    now_ms: u64,
) -> Result<(), Error> {
    let staged = entries::make_dirs(db, staging, UNTOLD)?;
    match (style, entries::resolve(db, target)?.map(|found| found.place)) {
        (CommitStyle::Merge, Some(EntryPlace::Dir(dir))) => {
            let space = spaces::named(db, target.space())?.id;
            let (counts, sums) = (ReferenceCounts::new(db, now_ms), Sums::default());
            let mut merge = Merge { db, space, counts, sums };
            merge.directory(staged, dir)?;
            merge.counts.close()?;
            spaces::add_sums(db, space, merge.sums)?;
            let (holder, name) = split(staging)?;
            entries::delete(db, entries::existing_dir(db, &holder)?, name)?;
            dir_ended(db, space, staged)?;
        }
        _ => move_entry(db, staging, target, now_ms)?,
    }
    checkpoint_rows::end_at(db, staging, Some(target), now_ms)
}

/// A merge of staged entries into directories that are there.
struct Merge<'db> {
    db: &'db Tx,
    space: SpaceId,
    counts: ReferenceCounts<'db>,
    sums: Sums,
}

impl Merge<'_> {
    /// Moves what is in one directory into another.
    fn directory(&mut self, from: DirId, to: DirId) -> Result<(), Error> {
        for (name, place) in entries::children(self.db, from, i64::MAX as usize)? {
            let there = entries::lookup(self.db, to, &name)?.map(|found| found.place);
            match (place, there) {
                (EntryPlace::Dir(below), Some(EntryPlace::Dir(there))) => {
                    self.directory(below, there)?;
                    entries::delete(self.db, from, &name)?;
                    dir_ended(self.db, self.space, below)?;
                    continue;
                }
                (_, Some(there)) => {
                    entries::delete(self.db, to, &name)?;
                    let deletes = versions::throw_away;
                    end(self.db, self.space, &there, (&mut self.counts, &mut self.sums), deletes)?;
                }
                (_, None) => {}
            }
            entries::rename(self.db, (from, &name), (to, &name))?;
        }
        Ok(())
    }
}

/// Ends what a name leads to, if it leads to anything.
pub(crate) fn vacate(
    db: &Tx,
    space: &str,
    (dir, name): (DirId, &str),
    now_ms: u64,
) -> Result<(), Error> {
    let Some(found) = entries::lookup(db, dir, name)? else { return Ok(()) };
    let space = spaces::named(db, space)?.id;
    entries::delete(db, dir, name)?;
    let (mut counts, mut sums) = (ReferenceCounts::new(db, now_ms), Sums::default());
    end(db, space, &found.place, (&mut counts, &mut sums), versions::delete)?;
    counts.close()?;
    spaces::add_sums(db, space, sums)
}

type Delete<'db> = fn(&Tx, VersionId, &mut ReferenceCounts<'db>) -> Result<DeletedVersion, Error>;

/// Ends what no name leads to any more. A directory in which anything is left, or a snapshot shows anything, is taken apart
/// in the background.
fn end<'db>(
    db: &Tx,
    space: SpaceId,
    place: &EntryPlace,
    (counts, sums): (&mut ReferenceCounts<'db>, &mut Sums),
    delete: Delete<'db>,
) -> Result<(), Error> {
    match place {
        EntryPlace::File(version) => {
            let deleted = delete(db, *version, counts)?;
            sums.deleted(deleted.data, deleted.in_catalog);
            Ok(())
        }
        EntryPlace::Link(_) => {
            sums.sub(0);
            Ok(())
        }
        EntryPlace::Dir(dir) => {
            if let Some(number) = dir.snapshot() {
                snapshot_rows::end(db, number)?;
            } else if !is_void(db, *dir)? {
                return trash::throw(db, *dir, space);
            }
            dir_ended(db, space, *dir)
        }
    }
}

/// Returns whether nothing is in a directory, and no snapshot shows anything that was in it. A thing that is shown
/// there and was moved elsewhere is kept there when it is removed, so a path must lead to the directory until then.
pub(crate) fn is_void(db: &Tx, dir: DirId) -> Result<bool, Error> {
    Ok(!entries::has_children(db, dir)? && !bygone::is_any_of(db, dir)?)
}

/// Forgets the policy of a directory that is no more, and takes the directory from the sums of its space. The entry of
/// a snapshot counts as a directory.
pub(crate) fn dir_ended(db: &Tx, space: SpaceId, dir: DirId) -> Result<(), Error> {
    dir_policies::forget(db, dir)?;
    spaces::add_sums(db, space, Sums { dirs: -1, ..Sums::default() })
}

/// Forgets the row about what is kept at a path.
fn forget_kept(db: &Tx, path: &PoolPath) -> Result<(), Error> {
    KeptPlace::of(path).map_or(Ok(()), |place| kept_rows::forget(db, place.number))
}

/// Returns the directory at a path, if one is there.
fn dir_at(db: &Tx, path: &PoolPath) -> Result<Option<DirId>, Error> {
    match entries::resolve(db, path) {
        Ok(Some(FoundEntry { place: EntryPlace::Dir(dir), .. })) => Ok(Some(dir)),
        Ok(_) | Err(Error::NoSpaceNamed(_) | Error::NotADirectory(_)) => Ok(None),
        Err(why) => Err(why),
    }
}
