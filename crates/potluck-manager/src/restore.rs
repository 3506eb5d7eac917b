//! Bringing a manager back whose machine or directory is lost: from its recovery kit and a checkpoint.
//!
//! What comes back never deletes anything by itself: garbage collection is held until an admin ends
//! it, because the pool may know more than a checkpoint does (PROMISES D5).

mod collect;
mod fetch;
mod journal;
mod listen;
mod pool;
mod unlisted;

pub use collect::Collecting;
pub use listen::Patience;
pub use pool::{rebuild, restore_pool};
pub use unlisted::Unlisted;

use crate::backup::authority::{self, Authority};
use crate::backup::checksum::{self, Checked};
use crate::backup::kit::{self, Kit};
use crate::backup::{BY_HAND, Taken};
use crate::ca::Ca;
use crate::catalog::{Error, restored, schema};
use crate::error::ManagerError;
use crate::init::{NewAdmin, make_admin};
use crate::journal::chain::Gaps;
use crate::state_dir::{KIT, StateDir};
use potluck_core::ids::Epoch;
use potluck_wire::env::Env;
use potluck_wire::identity::fingerprint;
use rusqlite::Connection;
use serde::Serialize;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What people call the admin that a restore makes.
const ADMIN: &str = "admin after restore";

/// What is to be brought back, and where.
#[derive(Debug, Clone)]
pub struct Restore {
    /// The recovery kit.
    pub kit: PathBuf,
    /// The new state directory; absent or empty.
    pub state: PathBuf,
    /// The manager's address from now on, if it changes. Donors look for it at the old one.
    pub advertise: Option<String>,
}

/// What was brought back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// What the pool is called.
    pub pool: String,
    /// Where members will look for the manager.
    pub address: String,
    /// Spaces.
    pub spaces: u64,
    /// Files.
    pub files: u64,
    /// Their sizes together.
    pub bytes: u64,
    /// Donors that belong to the pool.
    pub donors: u64,
    /// The number of the checkpoint that was used, if one was.
    pub checkpoint: Option<u64>,
    /// When it was taken, milliseconds since 1970.
    pub taken_ms: Option<i64>,
    /// Whether it came from a file without a checksum: damage within values would not be known.
    pub no_checksum: bool,
    /// What the journal on donors added, or made alone; `None`: nobody looked for one.
    pub journal: Option<Replayed>,
    /// Files that the donors that answered have too little of; `None`: no donor was asked.
    pub unlisted: Option<Unlisted>,
}

/// What was replayed of the journal, and what is known to be missing of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// Segments that were replayed.
    pub segments: u64,
    /// When the last of them was written, milliseconds since 1970.
    pub until_ms: Option<i64>,
    /// What is missing.
    #[serde(flatten)]
    pub gaps: Gaps,
    /// Records that do not fit what is there, as happens after a gap.
    pub left_out: u64,
    /// Segments that donors listed and nobody gave, or that do not open.
    pub unread: u64,
    /// Segments of a later generation of which nothing can be made, because its base is not whole.
    pub passed_over: u64,
    /// Whether a whole generation of the journal is later than every checkpoint: it was taken
    /// instead.
    pub overtaken: bool,
}

impl Restored {
    /// Whether something is known to be lost, or to be unreadable on the donors that answered.
    pub fn verdict(&self) -> Verdict {
        let unlisted = self.unlisted.as_ref().is_some_and(|unlisted| unlisted.files > 0);
        let gaps = self.journal.as_ref().is_some_and(Replayed::has_gaps);
        match (unlisted, gaps) {
            (true, _) => Verdict::Unreadable,
            (false, true) => Verdict::Incomplete,
            (false, false) => Verdict::Whole,
        }
    }
}

impl Replayed {
    fn has_gaps(&self) -> bool {
        self.gaps != Gaps::default() || (self.left_out, self.unread, self.passed_over) != (0, 0, 0)
    }
}

/// How much of what is known to have been there came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All of it.
    Whole,
    /// Changes are missing.
    Incomplete,
    /// Files cannot be read from what the donors that answered have.
    Unreadable,
}

/// A state directory that is being filled. Its catalog gets its name last, so that one that was
/// interrupted is no pool.
struct Site {
    kit: Kit,
    state: StateDir,
    ca: Ca,
}

/// Restores from the checkpoint in the file `from`.
///
/// Errors: a state directory that is not empty, a kit or checkpoint that cannot be read or is
/// damaged. A failed restore leaves a directory without a catalog.
pub fn restore_file(ask: &Restore, from: &Path) -> Result<Restored, ManagerError> {
    let site = Site::prepare(ask)?;
    let temp = site.state.catalog().with_extension("part");
    let io = |source| ManagerError::Io { path: from.into(), source };
    copy_private(from, &temp).map_err(io)?;
    // A copy made by hand may have its last changes beside it: without them it is an older one.
    let mut beside = 0;
    for suffix in ["-wal", "-journal"] {
        let (from, to) = (suffixed(from, suffix), suffixed(&temp, suffix));
        match copy_private(&from, &to) {
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => {}
            copied => beside += copied.map_err(|source| ManagerError::Io { path: from, source })?,
        }
    }
    // Nothing lies beside a checkpoint; what somebody wrote since is not what its checksum is of.
    let checked =
        if beside > 0 { Checked::Without } else { checksum::take_off(&temp).map_err(io)? };
    if let Checked::Damaged(why) = checked {
        return Err(ManagerError::Damaged { path: from.into(), detail: why.into() });
    }
    let report = Restored { no_checksum: checked == Checked::Without, ..Restored::default() };
    site.finish(ask, &temp, Epoch(0), report)
}

/// Copies the file `from` to the new file `to`, which only its owner may read: catalogs hold the keys
/// of sealed spaces. Gives its length.
fn copy_private(from: &Path, to: &Path) -> std::io::Result<u64> {
    let mut from = fs::File::open(from)?;
    let mut to = fs::File::options().write(true).create_new(true).mode(0o600).open(to)?;
    std::io::copy(&mut from, &mut to)
}

impl Site {
    /// Makes the state directory with all that the kit has.
    fn prepare(ask: &Restore) -> Result<Self, ManagerError> {
        let kit = Kit::load(&ask.kit)?;
        refuse_used(&ask.state)?;
        let state = StateDir::take(&ask.state)?;
        clear_interrupted(&ask.state)?;
        let ca = Ca::restore(&state.ca(), &kit.ca_certificate, &kit.ca_key);
        let ca = ca.map_err(|why| match why {
            ManagerError::Certificates { detail, .. } => {
                let detail = format!("its authority cannot be read: {detail}");
                ManagerError::BadKit { path: ask.kit.clone(), detail }
            }
            other => other,
        })?;
        kit::keep_key(&state, &kit.recovery_key())?;
        kit.save(&state.kit())?;
        Ok(Self { kit, state, ca })
    }

    /// Checks the catalog in the file `temp`, ends its former life, and gives it its place. Its epoch
    /// becomes a later one than `above`, so that donors obey it.
    /// The rest of `report` is found in it.
    fn finish(
        &self,
        ask: &Restore,
        temp: &Path,
        above: Epoch,
        report: Restored,
    ) -> Result<Restored, ManagerError> {
        let db = schema::open_whole(temp)?;
        let bad = |why: Error| match why {
            Error::Damaged(detail) => ManagerError::Damaged { path: temp.into(), detail },
            other => ManagerError::Catalog { path: temp.into(), detail: other.to_string() },
        };
        self.check_pool(ask, &authority::of(&db).map_err(bad)?)?;
        let address = ask.advertise.clone().unwrap_or_else(|| self.kit.address.clone());
        let report = self.revive(&db, address, above, report).map_err(bad)?;
        close(db).map_err(bad)?;
        let place = self.state.catalog();
        let renamed = fs::File::open(temp)
            .and_then(|file| file.sync_all())
            .and_then(|()| fs::rename(temp, &place))
            .and_then(|()| fs::File::open(&ask.state)?.sync_all());
        renamed.map_err(StateDir::io(place))?;
        Ok(report)
    }

    /// Donors would obey the kit's pool, and lose what the checkpoint's does not know (PROMISES D5).
    fn check_pool(&self, ask: &Restore, found: &Authority) -> Result<(), ManagerError> {
        let ours = Authority::new(&self.kit.pool, &fingerprint(self.ca.certificate()));
        if found.may_be(&ours) {
            return Ok(());
        }
        Err(ManagerError::OtherPool {
            kit: ask.kit.clone(),
            kit_of: ours.to_string(),
            checkpoint_of: found.to_string(),
        })
    }

    fn revive(
        &self,
        db: &Connection,
        address: String,
        above: Epoch,
        report: Restored,
    ) -> Result<Restored, Error> {
        let taken = Taken::of(db)?;
        let tx = db.unchecked_transaction()?;
        let why = match taken {
            None if report.journal.is_some() => "the catalog was rebuilt from its journal".into(),
            Some(Taken { sequence, .. }) if sequence != BY_HAND => {
                format!("the catalog was restored from checkpoint {sequence}")
            }
            _ => "the catalog was restored from a copy".into(),
        };
        restored::settle(&tx, &why)?;
        schema::raise_epoch(&tx, above)?;
        let pool = schema::pool_name(&tx)?;
        authority::note(&tx, &fingerprint(self.ca.certificate()))?;
        let admin = NewAdmin {
            pool: &pool,
            name: ADMIN,
            manager: &address,
            joined_wall_ms: Env::system().clock.wall(),
        };
        make_admin(&self.state, &self.ca, &tx, admin)?;
        let content = restored::content(&tx)?;
        tx.commit()?;
        Ok(Restored {
            pool,
            address,
            spaces: content.spaces,
            files: content.files,
            bytes: content.bytes,
            donors: content.donors,
            checkpoint: taken.and_then(|taken| taken.number()),
            taken_ms: taken.map(|taken| taken.wall_ms),
            ..report
        })
    }
}

/// What an interrupted restore leaves and the next one uses again.
const REUSED: [&str; 3] = ["lock", KIT, "ca"];

/// The catalog while it is made.
const UNDER_WAY: &str = "catalog.part";

/// What an interrupted restore leaves and the next one removes, of the names in a directory; last
/// the one that shows that it was a restore: without it an `admin` is somebody's identity.
fn left(names: &[String]) -> Vec<&str> {
    let interrupted = names.iter().any(|name| name == UNDER_WAY);
    let is_left = |name: &&str| {
        (*name == "admin" && interrupted)
            || *name == listen::SCRATCH
            || name.starts_with(UNDER_WAY)
            || name.ends_with(".tmp")
    };
    let mut left: Vec<&str> = names.iter().map(String::as_str).filter(is_left).collect();
    left.sort_by_key(|name| *name == UNDER_WAY);
    left
}

/// Nothing is ever written over: a state directory that has something may be somebody's last copy.
fn refuse_used(state: &Path) -> Result<(), ManagerError> {
    let names = names(state)?;
    let left = left(&names);
    let used = |name: &String| !REUSED.contains(&name.as_str()) && !left.contains(&name.as_str());
    if names.iter().any(used) { Err(ManagerError::NotEmpty(state.into())) } else { Ok(()) }
}

fn clear_interrupted(state: &Path) -> Result<(), ManagerError> {
    for name in left(&names(state)?) {
        let path = state.join(name);
        if path.is_dir() { journal::clear(&path)? } else { remove_if_there(&path)? }
    }
    Ok(())
}

fn names(dir: &Path) -> Result<Vec<String>, ManagerError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(ManagerError::Io { path: dir.into(), source }),
    };
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    Ok(entries.flatten().map(name).collect())
}

/// Removes a database with what is beside it.
fn remove_database(path: &Path) -> Result<(), ManagerError> {
    let parts = ["", "-wal", "-shm", "-journal"];
    parts.iter().try_for_each(|suffix| remove_if_there(&suffixed(path, suffix)))
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn remove_if_there(path: &Path) -> Result<(), ManagerError> {
    match fs::remove_file(path) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
            Err(StateDir::io(path.into())(why))
        }
        _ => Ok(()),
    }
}

/// Closes a catalog as one file.
fn close(db: Connection) -> Result<(), Error> {
    db.pragma_update(None, "journal_mode", "DELETE")?;
    db.close().map_err(|(_, why)| why.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_is_left_alone_unless_an_interrupted_restore_made_it() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("admin")).expect("made");
        assert!(matches!(refuse_used(dir.path()), Err(ManagerError::NotEmpty(_))));
        for name in [UNDER_WAY, "catalog.part-wal", "lock", "recovery.tmp"] {
            fs::write(dir.path().join(name), "").expect("written");
        }
        refuse_used(dir.path()).expect("of a restore");
        clear_interrupted(dir.path()).expect("cleared");
        assert_eq!(names(dir.path()).expect("listed"), ["lock"]);
        fs::write(dir.path().join("catalog.db"), "").expect("written");
        assert!(matches!(refuse_used(dir.path()), Err(ManagerError::NotEmpty(_))));
    }

    #[test]
    fn l1_every_loss_that_is_known_shows_in_the_verdict() {
        let of = |replayed: Replayed| {
            Restored { journal: Some(replayed), ..Restored::default() }.verdict()
        };
        assert_eq!(Restored::default().verdict(), Verdict::Whole);
        assert_eq!(
            of(Replayed { overtaken: true, segments: 9, ..Replayed::default() }),
            Verdict::Whole
        );
        for lost in [
            Replayed { unread: 1, ..Replayed::default() },
            Replayed { left_out: 1, ..Replayed::default() },
            Replayed { passed_over: 1, ..Replayed::default() },
            Replayed { gaps: Gaps { missing: 1, ..Gaps::default() }, ..Replayed::default() },
            Replayed { gaps: Gaps { broken: 1, ..Gaps::default() }, ..Replayed::default() },
            Replayed { gaps: Gaps { base_cut: true, ..Gaps::default() }, ..Replayed::default() },
        ] {
            assert_eq!(of(lost.clone()), Verdict::Incomplete, "{lost:?}");
        }
        let unlisted = Some(Unlisted { files: 1, ..Unlisted::default() });
        assert_eq!(Restored { unlisted, ..Restored::default() }.verdict(), Verdict::Unreadable);
    }
}
