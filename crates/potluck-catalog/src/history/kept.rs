//! Lists of what is kept of files, directories and links that were replaced or removed.

use crate::SeenSpaces;
use crate::error::Error;
use crate::history::kept_rows::{self, HistoryRow};
use crate::names::{
    entries::{self, DirId, EntryPlace, split},
    lists,
    walk::Walk,
};
use crate::pool_records::{notes, spaces};
use crate::sql::Tx;
use potluck_core::kept_place::{KEPT_DIR, KeptPlace};
use potluck_core::path::PoolPath;
use potluck_wire::control::{KeptAbout, KeptListed, KeptScope};

/// The most entries of a tree that are looked at for one page: some milliseconds.
const LOOKED_AT: usize = 4000;
/// The most kept things on one page.
const PAGE: usize = 512;

/// Returns a page of what is kept: of the name `path`, or of the tree below it.
pub(crate) fn list(
    db: &Tx,
    path: &PoolPath,
    scope: KeptScope,
    after: Option<&str>,
    pool_ms: u64,
    seen: &SeenSpaces,
) -> Result<KeptListed, Error> {
    let now_ms = notes::without_leaps(db, pool_ms)?;
    let is_dir = || -> Result<bool, Error> {
        let found = entries::resolve(db, path)?;
        Ok(found.is_some_and(|found| matches!(found.place, EntryPlace::Dir(_))))
    };
    match scope {
        KeptScope::OfName => of_name(db, path, now_ms),
        KeptScope::RemovedBelow | KeptScope::AllBelow if is_dir()? => {
            below(db, path, scope == KeptScope::RemovedBelow, after, now_ms, seen)
        }
        KeptScope::RemovedBelow | KeptScope::AllBelow => {
            let mut listed = of_name(db, path, now_ms)?;
            listed.kept.retain(|about| about.removed || scope == KeptScope::AllBelow);
            Ok(KeptListed { current: None, ..listed })
        }
    }
}

/// Lists what is kept of one name, with the entry that has the name now.
///
/// Errors: [`Error::NoEntry`] if there is neither.
fn of_name(db: &Tx, path: &PoolPath, now_ms: u64) -> Result<KeptListed, Error> {
    let (above, name) = split(path)?;
    let dir = above_of(db, path, &above, now_ms)?;
    let found = entries::lookup(db, dir, name)?;
    let current = found.map(|found| lists::found_entry(db, String::new(), found)).transpose()?;
    let mut kept = Vec::new();
    for row in kept_rows::of_name(db, dir, name)? {
        kept.extend(about(db, &above, row, now_ms)?);
    }
    if current.is_none() && kept.is_empty() {
        return Err(Error::NoEntry(path.clone()));
    }
    Ok(KeptListed { current, kept, next: None })
}

/// Lists a page of what is kept of a tree, in order of paths.
fn below(
    db: &Tx,
    path: &PoolPath,
    only_removed: bool,
    after: Option<&str>,
    now_ms: u64,
    seen: &SeenSpaces,
) -> Result<KeptListed, Error> {
    let dir = entries::existing_dir(db, path)?;
    let mut walk = Walk::of_seen(db, dir, true, after, seen)?.without_staged();
    let mut listed = KeptListed::default();
    for _ in 0..LOOKED_AT {
        // An entry whose record is damaged is passed over here; other commands show it.
        let item = match walk.next_or_broken()? {
            None => return Ok(KeptListed { next: None, ..listed }),
            Some(Err(_)) => continue,
            Some(Ok(item)) => item,
        };
        let depth = item.path.split('/').position(|name| name == KEPT_DIR);
        if let Some(depth) = depth {
            // Everything in a tree that is kept goes with the tree, and is not listed by itself.
            walk.pass_over_below(depth + 2);
            let at = path.join_all(item.path.split('/'));
            if let Some(place) = at.ok().as_ref().and_then(KeptPlace::of)
                && let Some(row) = kept_rows::get(db, place.number)?
                && (row.removed || !only_removed)
            {
                listed.kept.extend(about(db, &place.dir, row, now_ms)?);
            }
        }
        listed.next = Some(item.path);
        if listed.kept.len() >= PAGE {
            break;
        }
    }
    Ok(listed)
}

/// Returns the facts about a kept thing, if the thing is there and its time is not over.
fn about(
    db: &Tx,
    dir: &PoolPath,
    row: HistoryRow,
    now_ms: u64,
) -> Result<Option<KeptAbout>, Error> {
    if !row.is_live(now_ms) {
        return Ok(None);
    }
    let Some((_, found)) = kept_rows::find(db, &row)? else { return Ok(None) };
    let place = KeptPlace { dir: dir.clone(), number: row.number };
    let (Ok(at), Ok(path)) = (place.path(), dir.join(&row.name)) else { return Ok(None) };
    Ok(Some(KeptAbout {
        path,
        at,
        entry: lists::found_entry(db, String::new(), found)?,
        number: row.number,
        removed: row.removed,
        kept_wall_ms: row.kept_wall_ms,
        member: row.by,
        by: None,
        left_ms: row.until_ms.map(|until| until.saturating_sub(now_ms)),
        shown: row.shown,
    }))
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
