//! A state directory that is being restored.
//!
//! Everything is made in the directory [`RESTORING`] inside the new state directory. At the end its
//! entries move to their places one by one, the catalog last: that one rename makes a pool of the
//! state directory. Until then nothing starts there, whatever interrupted the restore
//! ([`StateDir::refuse_unfinished`]), and the next restore into it removes what the last one left.
//! Renaming the whole directory would be simpler; but a state directory may be a mount point, or the
//! only one above which this user may not write.
//!
//! Where a manager's catalog is exchanged for a newer one, what moves out of its place goes to the directory
//! [`REPLACING`], which gets its last name when the new catalog is in its place. An exchange that was interrupted is
//! undone by the next.

use super::{Replayed, Restore, Restored};
use crate::admin::NewAdmin;
use crate::ca::Ca;
use crate::error::StateError;
use crate::kit::{self, Kit};
use crate::state_dir::{ADMIN, CA, CATALOG, KIT, LOCK, RESTORING, StateDir, names};
use potluck_catalog::{Authority, Catalog, Rebuild, Revival};
use potluck_core::chunk::Digest;
use potluck_core::ids::Epoch;
use potluck_wire::addresses::Addresses;
use potluck_wire::env::Env;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The number by which the restored epoch goes beyond the last known one: more starts than a lost manager is likely to
/// have made since.
const STARTS_SINCE: u64 = 1000;

/// The reason of the GC freeze after a restore.
const RESTORED: &str = "the catalog was restored from its log";
/// The reason of the GC freeze after a restore that lacks something.
const RESTORED_WITH_GAPS: &str = "the catalog was restored from a log with gaps: donors that did not answer may have more, \
     which a restore into another directory brings back";

/// The name of the admin that a restore makes.
const NEW_ADMIN: &str = "admin after restore";
/// The name of the catalog while it is made. It is not the usual one, so that the staging directory is no pool
/// either.
const UNDER_WAY: &str = "catalog.part";
/// The names that move out of the staging directory before the catalog does.
const MOVED_FIRST: [&str; 3] = [CA, ADMIN, KIT];
/// The directory in a state directory for what an exchange that is under way moves out of its place.
const REPLACING: &str = "replacing";
/// The beginning of the names of directories with catalogs for which newer ones were taken.
const OLDER: &str = "older-";

/// A state directory that is being filled, which only this process uses meanwhile.
pub struct Staging {
    /// The recovery kit that the admin has of the pool.
    pub kit: Kit,
    /// The staging directory, laid out as a state directory is.
    state: StateDir,
    /// The state directory that is being restored.
    place: StateDir,
    ca: Ca,
    /// True if the catalog that is in its place makes room for the one that is made.
    exchanges: bool,
}

impl Staging {
    /// Removes what an interrupted restore left, and begins with all that the kit has.
    ///
    /// Errors: the state directory is not empty, the kit cannot be read, another process has the directory, or the
    /// disk fails. Nothing is touched when the kit cannot be read.
    pub fn begin(ask: &Restore) -> Result<Self, StateError> {
        refuse_used(&ask.state)?;
        let kit = Kit::load(&ask.kit)?;
        let place = StateDir::take(&ask.state)?;
        refuse_used(&ask.state)?; // another process may have finished a restore meanwhile
        clear_interrupted(&ask.state)?;
        Self::fill(place, kit, &ask.kit, false)
    }

    /// Begins to make a catalog in the place of the one in the state directory `state`, with the kit that is there. An
    /// exchange that was interrupted is undone first.
    ///
    /// Errors: no catalog is there, the kit cannot be read, another process has the directory, or the disk fails.
    pub fn exchange(state: &Path) -> Result<Self, StateError> {
        let place = StateDir::take(state)?;
        undo_exchange(&place).map_err(StateDir::io(state.into()))?;
        if !place.has_catalog() {
            return Err(StateError::NotInitialised(state.into()));
        }
        let (path, staging) = (place.kit(), place.restoring());
        if staging.exists() {
            fs::remove_dir_all(&staging).map_err(StateDir::io(staging))?;
        }
        let kit = Kit::load(&path)?;
        Self::fill(place, kit, &path, true)
    }

    fn fill(
        place: StateDir,
        kit: Kit,
        kit_path: &Path,
        exchanges: bool,
    ) -> Result<Self, StateError> {
        // The staging directory is made before anything else that can fail, so that no empty pool is made where a
        // restore began.
        let state = StateDir::take(&place.restoring())?;
        let ca = Ca::restore(&state.ca(), &kit.ca());
        let ca = ca.map_err(|why| match why {
            StateError::Certificates { detail, .. } => {
                let detail = format!("its authority cannot be read: {detail}");
                StateError::BadKit { path: kit_path.into(), detail }
            }
            other => other,
        })?;
        kit::keep_key(&state.ca(), &kit.recovery_key())?;
        kit.save(&state.kit())?;
        Ok(Self { kit, state, place, ca, exchanges })
    }

    /// Returns the path of the catalog in the state directory, where it lies at the end.
    pub fn final_catalog(&self) -> PathBuf {
        self.place.catalog()
    }

    /// Begins to make the catalog in the staging directory.
    pub fn rebuild(&self) -> Result<Rebuild, StateError> {
        Ok(Rebuild::begin(&self.state.root().join(UNDER_WAY), &self.kit.pool)?)
    }

    /// Returns the path of an entry of this name in the staging directory.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.state.root().join(name)
    }

    /// Returns the directory of the authority's files.
    pub fn ca(&self) -> PathBuf {
        self.state.ca()
    }

    /// Returns the authority of the pool that is restored.
    pub fn authority(&self) -> Authority {
        Authority::new(&self.kit.pool, &self.pool())
    }

    /// Returns the pool, by the fingerprint of its first authority.
    pub fn pool(&self) -> Digest {
        self.ca.pool()
    }

    /// Checks the catalog that was made, and makes a pool of the state directory. The catalog's epoch
    /// becomes a later one than `above`, so that donors obey it. With `may_lack` its log counts less than others that
    /// donors keep, until an admin says so.
    pub fn finish(
        self,
        advertise: &Addresses,
        rebuild: Rebuild,
        above: Epoch,
        log: Replayed,
        may_lack: bool,
    ) -> Result<Restored, StateError> {
        let moved = Some(advertise).filter(|there| !there.is_empty());
        let addresses = moved.unwrap_or(&self.kit.addresses).clone();
        let (pool, wall_ms) = (self.kit.pool.clone(), Env::system().clock.wall());
        let revival = Revival {
            why: if log.has_gaps() { RESTORED_WITH_GAPS } else { RESTORED },
            may_lack,
            // It is not known how often the lost manager started since, and members follow the manager of the later
            // epoch.
            above: Epoch(above.0 + STARTS_SINCE),
            authority: self.pool(),
            admin: NEW_ADMIN,
            wall_ms,
        };
        let admin = NewAdmin { pool: &pool, name: NEW_ADMIN, manager: addresses.clone() };
        let (content, left_out) =
            rebuild.finish(&revival, |id| admin.certify(&self.state, &self.ca, id))?;
        let place = self.place.root().to_path_buf();
        self.put_in_place().map_err(StateDir::io(place))?;
        Ok(Restored {
            pool,
            addresses,
            spaces: content.spaces,
            files: content.files,
            bytes: content.bytes,
            donors: content.donors,
            log: Replayed { left_out, ..log },
            chains: Vec::new(),
            unlisted: None,
        })
    }

    /// Makes everything in the staging directory durable, and moves it to its place.
    fn put_in_place(self) -> io::Result<()> {
        let (from, to) = (self.state.root(), self.place.root());
        File::open(from.join(UNDER_WAY))?.sync_all()?;
        // The files in them were made durable one by one.
        for dir in [&self.state.ca(), &self.state.admin(), from] {
            File::open(dir)?.sync_all()?;
        }
        let moves = moves(&self.place, self.exchanges);
        if self.exchanges {
            make_replacing(to)?;
        }
        carry_out(&moves)?;
        if self.exchanges {
            name_replaced(to)?;
        }
        // The directory is a pool now, and starts. What is left of the restore does no harm.
        let _ = fs::remove_dir_all(from);
        Ok(())
    }
}

impl Drop for Staging {
    /// Leaves the catalog that is in its place there, if the exchange has not begun to move it. What a restore into an
    /// empty directory left stays: it shows that this is no new pool.
    fn drop(&mut self) {
        if self.exchanges && !self.place.root().join(REPLACING).exists() {
            let _ = fs::remove_dir_all(self.state.root()); // after an exchange it is gone already
        }
    }
}

/// Returns the moves that put what is staged in its place, in order. Where it `exchanges` a catalog, that one moves out
/// first, with the first admin's identity: without a catalog no manager starts there.
fn moves(place: &StateDir, exchanges: bool) -> Vec<(PathBuf, PathBuf)> {
    let (from, to) = (place.restoring(), place.root());
    let (mut moves, replaced, catalog) = (Vec::new(), to.join(REPLACING), place.catalog());
    let old = Catalog::stored_in(&catalog).chain([place.admin()]);
    for path in old.filter(|path| exchanges && path.exists()) {
        let name = path.file_name().map(|name| replaced.join(name));
        moves.extend(name.map(|to| (path, to)));
    }
    let moved_first = if exchanges { &[ADMIN][..] } else { &MOVED_FIRST };
    moves.extend(moved_first.iter().map(|name| (from.join(name), to.join(name))));
    moves.push((from.join(UNDER_WAY), place.catalog()));
    moves
}

/// Moves one after the other, each durably before the next.
fn carry_out(moves: &[(PathBuf, PathBuf)]) -> io::Result<()> {
    for (from, to) in moves {
        fs::rename(from, to)?;
        for dir in [to.parent(), from.parent()].into_iter().flatten() {
            File::open(dir)?.sync_all()?;
        }
    }
    Ok(())
}

/// Makes the directory for what moves out of its place in the state directory `state`.
fn make_replacing(state: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(state.join(REPLACING))?;
    File::open(state)?.sync_all()
}

/// Gives what was replaced its last name, and returns that.
fn name_replaced(state: &Path) -> io::Result<PathBuf> {
    let to = last_replaced(state)?.map_or(1, |(number, _)| number + 1);
    let to = state.join(format!("{OLDER}{to}"));
    fs::rename(state.join(REPLACING), &to)?;
    File::open(state)?.sync_all()?;
    Ok(to)
}

/// Returns the directory with what an exchange replaced last, with its number.
pub fn last_replaced(state: &Path) -> io::Result<Option<(u64, PathBuf)>> {
    let mut last = None;
    for entry in fs::read_dir(state)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(OLDER)?.parse().ok());
        last = last.max(number.map(|number: u64| (number, entry.path())));
    }
    Ok(last)
}

/// Puts back what an exchange that was interrupted had moved; ends one that was interrupted in its last step.
fn undo_exchange(place: &StateDir) -> io::Result<()> {
    let replaced = place.root().join(REPLACING);
    if !replaced.exists() {
        return Ok(());
    }
    if !place.restoring().join(UNDER_WAY).exists() {
        return name_replaced(place.root()).map(drop);
    }
    carry_out(&moves_back(place))?;
    fs::remove_dir(&replaced)
}

/// Returns the moves that put back what an exchange moved, in order: the catalog last, for a manager starts where it is.
fn moves_back(place: &StateDir) -> Vec<(PathBuf, PathBuf)> {
    let (mut back, replaced) = (Vec::new(), place.root().join(REPLACING));
    if replaced.join(ADMIN).exists() && place.admin().exists() {
        back.push((place.admin(), place.restoring().join(ADMIN)));
    }
    let catalog = place.catalog();
    let old = Catalog::stored_in(&catalog).chain([place.admin()]);
    let there = old.filter_map(|to| Some((replaced.join(to.file_name()?), to)));
    let mut there: Vec<_> = there.filter(|(from, _)| from.exists()).collect();
    there.reverse();
    back.extend(there);
    back
}

/// Refuses a state directory that holds more than a lock file: its content may be the last copy of a pool, so nothing
/// is ever written over. Of an interrupted restore, the staging directory and the names that move out of it are allowed
/// too, because that restore began in an empty directory.
fn refuse_used(state: &Path) -> Result<(), StateError> {
    let names = names(state)?;
    let interrupted = names.iter().any(|name| name == RESTORING);
    let ours = |name: &str| {
        name == LOCK || interrupted && (name == RESTORING || MOVED_FIRST.contains(&name))
    };
    if names.iter().all(|name| ours(name)) {
        return Ok(());
    }
    let holds_pool = names.iter().any(|name| name == CATALOG);
    Err(StateError::NotEmpty { path: state.into(), holds_pool })
}

/// Removes what an interrupted restore left; the staging directory last, because it shows whose the
/// rest is.
fn clear_interrupted(state: &Path) -> Result<(), StateError> {
    if !state.join(RESTORING).exists() {
        return Ok(());
    }
    for name in MOVED_FIRST.into_iter().chain([RESTORING]) {
        let path = state.join(name);
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { remove_file(&path) };
        removed.map_err(StateDir::io(path))?;
    }
    Ok(())
}

/// Removes a file, if it is there.
fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_an_interrupted_restore_left_is_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let (state, make) = (dir.path(), |name: &str| fs::create_dir(dir.path().join(name)));
        make(ADMIN).expect("made");
        let somebodys = |state| matches!(refuse_used(state), Err(StateError::NotEmpty { .. }));
        assert!(somebodys(state), "an identity");
        make(RESTORING).expect("made");
        for name in [KIT, "lock", "restoring/catalog.part-wal"] {
            fs::write(state.join(name), "").expect("written");
        }
        refuse_used(state).expect("all of a restore that was killed while it moved things");
        fs::write(state.join("notes.txt"), "").expect("written");
        assert!(somebodys(state), "a file of somebody else");
        fs::remove_file(state.join("notes.txt")).expect("removed");
        clear_interrupted(state).expect("cleared");
        assert_eq!(names(state).expect("listed"), ["lock"]);
        fs::write(state.join(CATALOG), "").expect("written");
        assert!(somebodys(state), "a pool");
    }

    #[test]
    fn interrupted_state_exchange_is_undone_or_finished() {
        let begun = || {
            let dir = tempfile::tempdir().expect("a directory");
            let place = StateDir::take(&dir.path().join("manager")).expect("taken");
            let write = |path: PathBuf, text: &str| {
                fs::create_dir_all(path.parent().expect("above")).expect("made");
                fs::write(path, text).expect("written");
            };
            Catalog::stored_in(&place.catalog()).for_each(|path| write(path, "old"));
            write(place.admin().join("identity.json"), "old");
            write(place.restoring().join(UNDER_WAY), "new");
            write(place.restoring().join(ADMIN).join("identity.json"), "new");
            make_replacing(place.root()).expect("made");
            let moves = moves(&place, true);
            (dir, place, moves)
        };
        let files = |place: &StateDir| Catalog::stored_in(&place.catalog()).collect::<Vec<_>>();
        let is_all = |place: &StateDir, text: &str| {
            let there = files(place).into_iter().filter(|path| path.exists());
            let mut there = there.chain([place.admin().join("identity.json")]);
            there.all(|path| fs::read_to_string(path).is_ok_and(|read| read == text))
        };
        // A crash may come after any of the moves, and another after any of those that undo them.
        let check = |steps: usize, undone: usize| {
            let (_dir, place, moves) = begun();
            let moved_in = steps == moves.len();
            carry_out(&moves[..steps]).expect("moved");
            let back = if moved_in { Vec::new() } else { moves_back(&place) };
            carry_out(&back[..undone.min(back.len())]).expect("moved back");
            let (step, now) = (format!("{steps}, {undone}"), if moved_in { "new" } else { "old" });
            let starts = moved_in || undone >= back.len();
            assert_eq!(place.refuse_unfinished().is_ok(), starts, "a manager starts after {step}");
            assert!(!starts || is_all(&place, now), "it is all {now} after {step}");

            undo_exchange(&place).expect("undone");
            assert!(place.has_catalog() && !place.root().join(REPLACING).exists());
            assert!(is_all(&place, now), "after {step}");
            for path in files(&place).iter().chain([&place.admin()]) {
                let name = path.file_name().expect("a name");
                let kept = place.root().join("older-1").join(name);
                assert_eq!(kept.exists(), moved_in, "{path:?} after {step}");
                assert!(moved_in || path.exists(), "{path:?} is back after {step}");
            }
        };
        for steps in 0..=begun().2.len() {
            (0..=steps).for_each(|undone| check(steps, undone));
        }
    }
}
