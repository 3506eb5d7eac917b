//! Making versions visible at paths, as a commit and a copy inside the pool do.
//!
//! Each file is first looked at and only then put, so that a refused file leaves no trace and the others of its
//! transaction go on.

use crate::chunks::ReferenceCounts;
use crate::error::Error;
use crate::log::changes::{self, ChangeOp};
use crate::members::quotas::QuotaLimits;
use crate::names::{
    dir_policies,
    entries::{self, DirId, EntryPlace},
};
use crate::operations::{
    checkpoints::staging,
    commits::{commit::PreparedChunk, enough_copies::Promise},
    history::keeping::{self, LeavingEntry},
    names::directories::{make_dirs, touched},
};
use crate::pool_records::spaces::{self, Space, Sums};
use crate::sql::Tx;
use crate::versions;
use crate::when::When;
use potluck_core::attributes::{EntryAttributes, FileTime};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{SpaceId, VersionId};
use potluck_core::origin::CacheState;
use potluck_core::path::PoolPath;
use potluck_core::policy::{AskedPolicy, Override, Redundancy, Retention};
use potluck_pool::redundancy::Version;
use potluck_pool::{InUseAgain, OpenReservation};
use potluck_wire::control::Condition;
use std::collections::{BTreeSet, HashMap};

/// Files of one space that become visible in one transaction.
pub struct Visible<'db> {
    db: &'db Tx,
    /// The moment at which the files become visible.
    pub when: When,
    space: Option<&'db Space>,
    /// The references of the files' chunks.
    pub counts: ReferenceCounts<'db>,
    /// The directories of these files, kept so that a thousand files of one directory look it up once.
    dirs: HashMap<Vec<String>, DirId>,
    /// The requirements of these directories' policies, kept so that they are worked out once.
    asks: HashMap<Vec<String>, Asks>,
    sums: Sums,
    /// The number of directories that were made for these files, which are in the sums of the space already.
    made_dirs: u64,
    /// The room that is reserved for others, which counts in quotas as if files were there.
    reserved: &'db [OpenReservation],
    /// The quotas that these files come under, once they were looked up.
    limits: Option<QuotaLimits>,
    /// The requirements of the files' command, whatever directories say.
    asked: AskedPolicy,
    /// The files that became visible, for the log.
    files: Vec<(PoolPath, VersionId)>,
    /// The paths of those `files` whose replaced versions are kept: the log must tell of a version before it tells that
    /// this version is kept.
    untold: BTreeSet<PoolPath>,
    /// The paths of those `files` that are to be pinned because they replaced pinned ones.
    pinned: Vec<PoolPath>,
    /// The directories to which files came.
    grown: BTreeSet<PoolPath>,
}

/// The requirements on the files of a directory.
#[derive(Clone, Copy)]
struct Asks {
    redundancy: Redundancy,
    promise: Promise,
    retention: Retention,
    cache: bool,
}

/// A place that may take a file.
pub struct PutTarget {
    path: PoolPath,
    replaced: Option<VersionId>,
    /// The rule for what is kept of a replaced file.
    retention: Retention,
    /// The redundancy that the command asks for, or else the directory.
    pub keeping: Redundancy,
    /// The conditions that the command or the directory sets for a file to become visible.
    pub promise: Promise,
    /// True if files that have an origin are cached here.
    cache: bool,
}

/// A file that is to become visible, or a part of one.
pub struct FileToPut<'a> {
    /// The version of the file; number, goal and safety are given by [`Visible::put_version`].
    pub version: Version,
    /// The content of the file, if it lives in the catalog.
    pub inline: Option<&'a [u8]>,
    /// The recipe of the file as it is kept, if its content does not live in the catalog.
    pub pages: &'a [Vec<u8>],
    /// The chunks of the file in order, then its parity.
    pub chunks: &'a [PreparedChunk],
    /// True if all the redundancy of the version is there.
    pub safe: bool,
}

impl<'db> Visible<'db> {
    /// Begins without files; `space` is the space of all the files, if it is still there.
    pub(crate) fn new(db: &'db Tx, space: Option<&'db Space>, when: When) -> Self {
        let counts = ReferenceCounts::new(db, when.pool_ms);
        let (dirs, asks, sums, limits, asked, files) = Default::default();
        let (untold, pinned, grown) = Default::default();
        Self {
            db,
            when,
            space,
            counts,
            dirs,
            asks,
            sums,
            made_dirs: 0,
            reserved: &[],
            limits,
            asked,
            files,
            untold,
            pinned,
            grown,
        }
    }

    /// Adds the requirements of a command, as far as the files' directories allow it.
    pub(crate) fn asking(self, asked: AskedPolicy) -> Self {
        Self { asked, ..self }
    }

    /// Counts in quotas the room of these reservations, except for files below the path of a reservation.
    pub(crate) fn beside(self, reserved: &'db [OpenReservation]) -> Self {
        Self { reserved, ..self }
    }

    /// Looks at the place of a file with `data` bytes that are in no hole, and refuses a file that cannot or must not come there.
    pub fn look(
        &mut self,
        path: PoolPath,
        condition: Condition,
        data: u64,
    ) -> Result<PutTarget, Error> {
        let space = self.space.ok_or_else(|| Error::NoSpaceNamed(path.space().into()))?;
        if space.name != path.space() {
            return Err(Error::NoSpaceNamed(path.space().into()));
        }
        let Some((name, above)) = path.names().split_last() else {
            return Err(Error::OutsideSpaces(path));
        };
        let dir = self.dir_of(&path, above)?;
        let found = dir.map_or(Ok(None), |dir| entries::lookup(self.db, dir, name))?;
        let replaced = match found.map(|found| found.place) {
            Some(EntryPlace::Dir(_)) => return Err(Error::IsADirectory(path)),
            Some(EntryPlace::File(version)) => Some(version),
            Some(EntryPlace::Link(target)) => return Err(Error::IsALink { path, target }),
            None => None,
        };
        check_condition(self.db, &path, condition, replaced)?;
        let Asks { redundancy: keeping, promise, retention, cache } =
            self.asks(space, &path, above)?;
        let is_dir_known = self.dirs.contains_key(above);
        let change = |db: &Tx| {
            let mut change = Sums::default();
            change.add(i64::try_from(data).unwrap_or(i64::MAX));
            // A version that is kept still counts in the sums.
            if let (Some(version), Some(dir)) = (replaced, dir)
                && !keeping::stays_when_replaced(db, (dir, &path), version, retention)?
            {
                change.sub(versions::data_of(db, version)? as i64);
            }
            if let (None, false, Some(above)) = (replaced, is_dir_known, path.parent()) {
                change.dirs = entries::missing_dirs(db, &above)? as i64;
            }
            Ok(change)
        };
        self.admit(space, &path, change)?;
        Ok(PutTarget { path, replaced, retention, keeping, promise, cache })
    }

    /// Returns the directory of a file, if it is there, and keeps its number. Refuses a path where nothing may be
    /// written, or below a file.
    fn dir_of(&mut self, path: &PoolPath, above: &[String]) -> Result<Option<DirId>, Error> {
        if let Some(known) = self.dirs.get(above) {
            return Ok(Some(*known));
        }
        staging::check_writable(self.db, path, Some(self.counts.now_ms()))?;
        let parent = path.parent().ok_or_else(|| Error::OutsideSpaces(path.clone()))?;
        match entries::resolve(self.db, &parent)?.map(|found| found.place) {
            Some(EntryPlace::Dir(dir)) => {
                self.dirs.insert(above.to_vec(), dir);
                Ok(Some(dir))
            }
            Some(EntryPlace::File(_) | EntryPlace::Link(_)) => Err(Error::NotADirectory(parent)),
            None => Ok(None),
        }
    }

    /// Refuses a change at a path that exceeds a quota, counting the changes made before in this transaction.
    fn admit(
        &mut self,
        space: &Space,
        path: &PoolPath,
        change: impl FnOnce(&Tx) -> Result<Sums, Error>,
    ) -> Result<(), Error> {
        let limits = match self.limits.take() {
            Some(known) => known,
            None => QuotaLimits::in_space(self.db, space)?,
        };
        let limits = self.limits.insert(limits);
        if limits.are_none() {
            return Ok(());
        }
        let (before, made_dirs, reserved) = (self.sums, self.made_dirs, self.reserved);
        let besides = |spaces: &BTreeSet<SpaceId>| {
            // Room that is reserved at a directory above a file is reserved for the file, too, whoever writes it.
            let others = reserved
                .iter()
                .filter(|it| spaces.contains(&it.space) && !path.is_inside(&it.room.path));
            let bytes = others.map(|it| it.left).fold(0, u64::saturating_add);
            let bytes = before.bytes.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX));
            Sums { files: before.files, dirs: made_dirs as i64, bytes, ..Sums::default() }
        };
        limits.admit(besides, change(self.db)?)
    }

    /// Returns the requirements of the command and the directory of a file; a directory that is not there yet inherits
    /// those of the one above.
    fn asks(&mut self, space: &Space, path: &PoolPath, above: &[String]) -> Result<Asks, Error> {
        if let Some(known) = self.asks.get(above) {
            return Ok(*known);
        }
        let dir = path.parent().ok_or_else(|| Error::OutsideSpaces(path.clone()))?;
        let policy = dir_policies::effective_in(self.db, space, &dir)?;
        if !self.asked.is_allowed_by(&policy) {
            return Err(Error::LessSafe(path.clone()));
        }
        let Override { strict, cache, .. } = self.asked.over;
        let promise = Promise {
            mirror: policy.mirror,
            strict: strict.unwrap_or(policy.strict),
            ack: policy.ack,
        };
        let redundancy = self.asked.over.redundancy().unwrap_or(policy.redundancy());
        let retention = keeping::retention_of(&policy, path);
        let cache = cache.unwrap_or(policy.cache);
        let asks = Asks { redundancy, promise, retention, cache };
        self.asks.insert(above.to_vec(), asks);
        Ok(asks)
    }

    /// Makes a file visible at `target` as version `id`. Returns the time at which its directory is modified by that;
    /// `None` if the file replaces another.
    pub fn put(
        &mut self,
        target: PutTarget,
        id: VersionId,
        file: FileToPut<'_>,
    ) -> Result<Option<FileTime>, Error> {
        let (data, in_catalog) = (file.version.data(), file.version.chunks == 0);
        self.put_version(&target, id, file)?;
        let PutTarget { path, mut replaced, retention, .. } = target;
        let (Some((name, above)), Some(parent)) = (path.names().split_last(), path.parent()) else {
            return Err(Error::OutsideSpaces(path));
        };
        let dir = match self.dirs.get(above) {
            Some(known) => *known,
            None => self.make_dir(&parent)?,
        };
        let dir_modified = replaced.is_none().then(|| self.modified());
        if dir_modified.is_some() {
            self.grown.insert(parent);
        }
        let was_pinned = replaced.is_some() && entries::is_pinned(self.db, dir, name)?;
        if let Some(version) = replaced
            && self.keeps(dir, &path, version, retention)?
        {
            replaced = None;
        }
        entries::put_file(self.db, dir, name, id)?;
        if was_pinned {
            self.pinned.push(path.clone());
        }
        self.sums.add(data as i64);
        self.sums.in_catalog += i64::from(in_catalog);
        if let Some(replaced) = replaced {
            let old = versions::delete(self.db, replaced, &mut self.counts)?;
            self.sums.deleted(old.data, old.in_catalog);
        }
        if !retention.replaced.is_none() {
            self.untold.insert(path.clone());
        }
        self.files.push((path, id));
        Ok(dir_modified)
    }

    /// Keeps the version of a file that another replaces, if the policy says so, and returns whether it does.
    fn keeps(
        &mut self,
        dir: DirId,
        path: &PoolPath,
        version: VersionId,
        retention: Retention,
    ) -> Result<bool, Error> {
        if self.untold.contains(path) {
            self.tell()?;
        }
        let place = &EntryPlace::File(version);
        let leaving = LeavingEntry { dir, path, place, removed: false };
        keeping::keep(self.db, &leaving, retention, self.when)
    }

    /// Has the log record the files that became visible.
    fn tell(&mut self) -> Result<(), Error> {
        self.untold.clear();
        match std::mem::take(&mut self.files) {
            files if files.is_empty() => {}
            files => changes::append(self.db, &ChangeOp::Files(files))?,
        }
        let mut pinned = std::mem::take(&mut self.pinned).into_iter();
        pinned.try_for_each(|path| keeping::stay_pinned(self.db, &path))
    }

    /// Writes a version that no path names yet. If `target` asks for another redundancy, that is the version's goal.
    pub fn put_version(
        &mut self,
        target: &PutTarget,
        id: VersionId,
        file: FileToPut<'_>,
    ) -> Result<(), Error> {
        for chunk in file.chunks {
            self.counts.add(id, &chunk.name, chunk.len, &chunk.holders)?;
        }
        let parity = file.chunks.get(file.version.chunks as usize..).unwrap_or_default();
        let parity: Vec<ChunkName> = parity.iter().map(|chunk| chunk.name).collect();
        // A session writes all its files with the policy at its root, a copy has the redundancy of its source, and
        // policies change meanwhile. A file that is stored with another redundancy than its directory asks for is
        // converted, and is unsafe until then if it tolerates fewer losses.
        let has = file.version.redundancy();
        let asks = target.keeping;
        let goal = (file.version.chunks > 0 && asks != has).then_some(asks);
        let enough = goal.is_none_or(|goal| goal.tolerates() <= has.tolerates());
        let safe_wall_ms = (file.safe && enough).then_some(self.when.wall_ms);
        let cache = match target.cache && file.version.origin.is_some() {
            true => CacheState::Cached,
            false => CacheState::Kept,
        };
        let version = Version { id, safe_wall_ms, goal, cache, ..file.version };
        versions::insert(self.db, &version, file.inline, file.pages, &parity)?;
        if version.parts > 0 {
            // Its parts were stored when its directory may have asked for another redundancy.
            versions::set_goal(self.db, id, goal)?;
        }
        Ok(())
    }

    /// Removes a version that no path names.
    pub fn remove_version(&mut self, id: VersionId) -> Result<(), Error> {
        versions::delete(self.db, id, &mut self.counts).map(drop)
    }

    /// Returns the directory of a file, which is made if it is not there.
    fn make_dir(&mut self, dir: &PoolPath) -> Result<DirId, Error> {
        let made = EntryAttributes::of_dir(self.when.wall_ms);
        self.made_dirs += entries::missing_dirs(self.db, dir)?;
        let id = make_dirs(self.db, dir, made, made.mtime)?;
        self.dirs.insert(dir.names().to_vec(), id);
        Ok(id)
    }

    /// Makes a directory without a file, with those above it that are missing, where quotas leave room for them.
    pub fn make_dirs(
        &mut self,
        path: &PoolPath,
        attributes: EntryAttributes,
        now: FileTime,
    ) -> Result<(), Error> {
        let missing = entries::missing_dirs(self.db, path)?;
        if let Some(space) = self.space {
            self.admit(space, path, |_| Ok(Sums::of_dirs(missing)))?;
        }
        self.made_dirs += missing;
        make_dirs(self.db, path, attributes, now).map(drop)
    }

    /// Returns the time at which directories are modified to which files come.
    fn modified(&self) -> FileTime {
        FileTime::of_ms(self.when.wall_ms)
    }

    /// Writes the changes that all files make together. Returns the chunks that were condemned or gone and are in use
    /// again.
    pub fn close(mut self) -> Result<InUseAgain, Error> {
        self.tell()?;
        let now = self.modified();
        let again = self.counts.close()?;
        if let Some(space) = self.space {
            spaces::add_sums(self.db, space.id, self.sums)?;
        }
        for path in self.grown {
            touched(self.db, &path, now)?;
        }
        Ok(again)
    }
}

/// Refuses a change whose condition does not hold for the version that was found at its path.
pub(crate) fn check_condition(
    db: &Tx,
    path: &PoolPath,
    condition: Condition,
    found: Option<VersionId>,
) -> Result<(), Error> {
    match condition {
        Condition::Always => Ok(()),
        Condition::IfAbsent if found.is_none() => Ok(()),
        Condition::IfAbsent => Err(Error::Exists(path.clone())),
        Condition::IfVersion(expected) if found == Some(expected) => Ok(()),
        Condition::IfVersion(expected) => {
            Err(Error::WrongVersion { path: path.clone(), expected, found })
        }
        // What is sealed again becomes visible nowhere.
        Condition::SealsAgain(version) => Err(Error::NotSealedAgain(version)),
        Condition::IfEmpty => {
            let bytes = found.map_or(Ok(0), |version| versions::size_of(db, version))?;
            if bytes > 0 { Err(Error::HasContent { path: path.clone(), bytes }) } else { Ok(()) }
        }
    }
}

/// Returns whether `why` refuses one file, before it had any effect. Any other error undoes the whole transaction.
pub fn is_refusal(why: &Error) -> bool {
    matches!(
        why,
        Error::NoSpaceNamed(_)
            | Error::Exists(_)
            | Error::WrongVersion { .. }
            | Error::HasContent { .. }
            | Error::NoCheckpoint(_)
            | Error::KeptPlace(_)
            | Error::TooLongToKeep(_)
            | Error::NotADirectory(_)
            | Error::IsADirectory(_)
            | Error::IsALink { .. }
            | Error::IsAFile(_)
            | Error::OutsideSpaces(_)
            | Error::NotAcknowledged { .. }
            | Error::TooFewCopies { .. }
            | Error::NotApart { .. }
            | Error::HoldersAway { .. }
            | Error::NotStrict { .. }
            | Error::OverQuota { .. }
            | Error::LessSafe(_)
            | Error::PartsDiffer(_)
            | Error::TooManyChunks { .. }
            | Error::WrongLength { .. }
            | Error::NotSealedAgain(_)
            | Error::OpenElsewhere(_)
    )
}
