//! Reading a catalog as records: its changes, row by row, and its whole state of one moment.

use super::bygone;
use super::changes::{self, ChangeNumber, ChangeOp};
use super::checkpoint_rows;
use super::entries::{self, DirId};
use super::history;
use super::quotas::{self, StoredQuota};
use super::records::{Keeping, PARITY_NAMES, Record, VersionFacts};
use super::snapshot_rows;
use super::snapshots;
use super::units::{self, Root};
use super::versions;
use super::walk::{BrokenEntry, Walk, What};
use super::{Error, dir_policies, donors, grants, groups, members, meta, notes, parts, spaces};
use crate::engine::{self, Database};
use crate::sql::Tx;
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{Epoch, SnapshotId, VersionId};
use potluck_core::path::{PoolPath, SYSTEM_SPACE};
use potluck_core::policy::Override;
use potluck_core::quota::{Quota, QuotaOf};
use potluck_pool::redundancy::Version;
use potluck_wire::packed::{Blob, Packed};
use std::collections::VecDeque;
use std::path::Path;

/// Bytes of records that are read at once, about: a row may be a commit of thousands of files.
const AT_ONCE: usize = 4 << 20;
/// Bytes of a record beside recipes, parity and content, about.
const SMALL: usize = 256;
/// Names that snapshots show which are read at once.
const BYGONE: usize = 1000;

/// Changes of the catalog as records of the metadata log.
#[derive(Debug)]
pub struct LogChanges {
    /// The changes, each as a record.
    pub records: Vec<Record>,
    /// The last change that they cover.
    pub last: ChangeNumber,
}

/// The first changes after the row `after`, at most `limit` rows; none if there are none.
pub(crate) fn changes(db: &Tx, after: i64, limit: usize) -> Result<Option<LogChanges>, Error> {
    let rows = changes::rows(db, after, limit)?;
    let Some(first) = rows.first() else { return Ok(None) };
    let (mut out, mut last) = (Out::default(), first.0);
    for (row, op) in rows {
        change(db, op, &mut out)?;
        last = row;
        if out.is_full() {
            break;
        }
    }
    Ok(Some(LogChanges { records: out.records, last: ChangeNumber(last) }))
}

/// Records that are being collected for one read.
#[derive(Default)]
struct Out {
    records: Vec<Record>,
    bytes: usize,
}

impl Out {
    fn add(&mut self, record: Record) {
        self.bytes += match &record {
            Record::Page { page, .. } => page.0.len(),
            Record::Parity { names, .. } => names.0.len() * size_of::<ChunkName>(),
            Record::File { about, .. } => about.inline.as_ref().map_or(0, |inline| inline.0.len()),
            _ => 0,
        } + SMALL;
        self.records.push(record);
    }

    fn is_full(&self) -> bool {
        self.bytes >= AT_ONCE
    }

    /// A version at a path, with all that belongs to it before it. Of one whose record is damaged
    /// nothing is added.
    fn file(&mut self, db: &Tx, path: PoolPath, version: &Version) -> Result<(), Error> {
        let id = version.id;
        let inline = if version.inline { versions::inline(db, id)? } else { None };
        if version.parts == 0 {
            self.chunks(db, version)?;
        }
        self.add(Record::File { path, version: id, about: VersionFacts::of(version, inline) });
        Ok(())
    }

    /// Part `number` of a version; whether there is one.
    fn part(&mut self, db: &Tx, whole: VersionId, number: u32) -> Result<bool, Error> {
        let Some(id) = parts::at(db, whole, number)? else { return Ok(false) };
        let part = versions::get(db, id)?;
        self.chunks(db, &part)?;
        self.add(Record::Part { whole, number, version: id, about: VersionFacts::of(&part, None) });
        Ok(true)
    }

    /// The recipe of a version, and its parity.
    fn chunks(&mut self, db: &Tx, version: &Version) -> Result<(), Error> {
        let id = version.id;
        let (pages, parity) = (versions::pages(db, id)?, versions::parity(db, version)?);
        for page in pages {
            self.add(Record::Page { version: id, page: Blob(page) });
        }
        self.parity(id, &parity);
        Ok(())
    }

    fn parity(&mut self, version: VersionId, parity: &[ChunkName]) {
        for names in parity.chunks(PARITY_NAMES) {
            self.add(Record::Parity { version, names: Packed(names.to_vec()) });
        }
    }

    /// Tells since which snapshot an entry is where it is, unless it was before the first, and whether it is pinned.
    fn marks(&mut self, path: PoolPath, marks: EntryMarks) {
        if marks.pinned {
            self.add(Record::Pinned { path: path.clone(), pinned: true });
        }
        if marks.since > SnapshotId(1) {
            self.add(Record::Since { path, since: marks.since });
        }
    }

    fn space(&mut self, db: &Tx, name: &str) -> Result<(), Error> {
        match spaces::named(db, name) {
            Ok(spaces::Space { name, policy, key, made_by, .. }) => {
                self.add(Record::Space { name, policy, key, made_by });
                Ok(())
            }
            Err(Error::NoSpaceNamed(_)) => Ok(()), // its removal is a later row
            Err(why) => Err(why),
        }
    }
}

fn change(db: &Tx, op: ChangeOp, out: &mut Out) -> Result<(), Error> {
    if let Some(space) = op.space()
        && entries::lookup(db, DirId::ROOT, space)?.is_none()
    {
        return Ok(()); // a later row says that the whole space was removed
    }
    match op {
        ChangeOp::Files(files) => {
            for (path, id) in files {
                let written = match versions::find(db, id) {
                    Ok(Some(version)) => out.file(db, path.clone(), &version).map(|()| true),
                    Ok(None) => Ok(false),
                    Err(why) => Err(why),
                };
                let written = sound(written)?;
                if written.is_none() {
                    // Damaged: it is lost, and what it replaced is no stand-in.
                    out.add(Record::Removed { path: path.clone() });
                }
                if written != Some(true) {
                    out.add(Record::Passed { path });
                }
            }
        }
        ChangeOp::Part(whole, number) => {
            sound(out.part(db, whole, number))?;
        }
        ChangeOp::Version(id) => {
            sound(keeping(db, id, out))?;
        }
        ChangeOp::Dir(path, attributes) => out.add(Record::Dir { path, attributes }),
        ChangeOp::Link(path, target, attributes) => {
            out.add(Record::Link { path, target, attributes });
        }
        ChangeOp::PathAttributes(path, attributes) => {
            out.add(Record::PathAttributes { path, attributes });
        }
        ChangeOp::VersionAttributes(version) => {
            // One that is gone by now was removed or replaced by a later row.
            if let Some(Version { attributes, .. }) = sound(versions::find(db, version))?.flatten()
            {
                out.add(Record::VersionAttributes { version, attributes });
            }
        }
        ChangeOp::Moved { from, to } => out.add(Record::Moved { from, to }),
        ChangeOp::Checkpoint(open) => out.add(Record::Checkpoint(open)),
        ChangeOp::Published { from, to, style, .. } => {
            out.add(Record::Published { from, to, style });
        }
        ChangeOp::Removed(path) => out.add(Record::Removed { path }),
        ChangeOp::Kept { from, entry } => {
            out.add(Record::Moved { from, to: entry.at.clone() });
            out.add(Record::Kept(entry));
        }
        ChangeOp::Pinned(path, pinned) => out.add(Record::Pinned { path, pinned }),
        ChangeOp::Snapshot(taken) => out.add(Record::Snapshot(taken)),
        ChangeOp::Bygone(bygone) => out.add(Record::Bygone(bygone)),
        ChangeOp::KeptAs(entry) => out.add(Record::Kept(entry)),
        ChangeOp::KeptUntil { path, until_ms, only_endless } => {
            out.add(Record::KeptUntil { path, until_ms, only_endless });
        }
        ChangeOp::Space(name) => out.space(db, &name)?,
        ChangeOp::SpaceRemoved(name) => out.add(Record::SpaceRemoved { name }),
        ChangeOp::Policy(path, over) => out.add(Record::Policy { path, over }),
        ChangeOp::Grant(space, to) => {
            let rights = grants::to(db, &space, &to)?;
            out.add(Record::Grant { space, to, rights });
        }
        // One that is gone by now was removed by a later row, which takes what one of before it had with it.
        ChangeOp::Group(name) if !groups::is_there(db, &name)? => {}
        ChangeOp::Group(name) => out.add(Record::Group { name, there: true }),
        ChangeOp::GroupRemoved(name) => out.add(Record::Group { name, there: false }),
        ChangeOp::GroupMember(group, member) => {
            let within = groups::is_within(db, &group, member)?;
            out.add(Record::GroupMember { group, member, within });
        }
        ChangeOp::Quota(of) => {
            let quota = quotas::get(db, &of)?;
            out.add(Record::Quota { of, quota });
        }
        ChangeOp::Member(id) => match members::get(db, id)? {
            Some(member) => out.add(Record::Member(member)),
            None => return Err(Error::Damaged(format!("member {id} is missing"))),
        },
        ChangeOp::Donor(donor) => out.records.extend(donors::get(db, donor)?.map(Record::Donor)),
        ChangeOp::Note(key) => {
            let value = notes::get(db, &key)?;
            out.add(Record::Note { key, value });
        }
    }
    Ok(())
}

/// Leaves out a file whose record is damaged: no catalog could be made of it, and the log goes on
/// without it. Scans find it and tell of it.
fn sound<T>(written: Result<T, Error>) -> Result<Option<T>, Error> {
    match written {
        Ok(written) => Ok(Some(written)),
        Err(Error::Damaged(why)) => {
            tracing::error!(why, "a damaged record of the catalog is left out of the log");
            Ok(None)
        }
        Err(why) => Err(why),
    }
}

fn keeping(db: &Tx, id: VersionId, out: &mut Out) -> Result<(), Error> {
    let Some(version) = versions::find(db, id)? else { return Ok(()) };
    if version.parts == 0 {
        out.parity(id, &versions::parity(db, &version)?);
    }
    out.add(Record::Keeping { version: id, keeping: Keeping::of(&version) });
    Ok(())
}

/// The whole state of one moment, read a few records at a time while writes go on.
pub struct CatalogSnapshot {
    /// The connection, in one transaction from the first read to the end.
    db: Database,
    /// The last change that the state has.
    pub last: ChangeNumber,
    spaces: VecDeque<Root>,
    cursor: Option<String>,
    /// Versions whose parts are to be read first.
    in_parts: VecDeque<WholeInTurn>,
    /// The row up to which it was told what snapshots show; `None` before.
    bygone: Option<i64>,
    out: Out,
}

/// What a name says of its entry beside what it leads to.
#[derive(Debug, Clone, Copy)]
struct EntryMarks {
    since: SnapshotId,
    pinned: bool,
}

/// A version that is made of parts, while they are read.
struct WholeInTurn {
    whole: VersionId,
    /// The number of the next part.
    next: u32,
    /// The place of the version and the facts about it, unless a session is still writing it.
    then: Option<(PoolPath, Version, EntryMarks)>,
}

impl CatalogSnapshot {
    /// Begins to read the catalog at `path`.
    pub fn begin(path: &Path) -> Result<Self, Error> {
        let db = engine::open_snapshot(path)?;
        let last = ChangeNumber(changes::last(&db)?);
        let spaces =
            units::roots(&db)?.into_iter().filter(|root| root.name != SYSTEM_SPACE).collect();
        let mut out = Out::default();
        if let Some(pool_ms) = meta::saved_pool_time(&db)? {
            out.add(Record::Time { pool_ms });
        }
        members::all(&db)?.into_iter().for_each(|member| out.add(Record::Member(member)));
        for (name, members) in groups::all(&db)? {
            out.add(Record::Group { name: name.clone(), there: true });
            for member in members {
                out.add(Record::GroupMember { group: name.clone(), member, within: true });
            }
        }
        for StoredQuota { of, quota, .. } in quotas::all(&db)? {
            if matches!(of, QuotaOf::Member(_)) {
                out.add(Record::Quota { of, quota });
            }
        }
        donors::all(&db)?.into_iter().for_each(|donor| out.add(Record::Donor(donor)));
        for key in notes::LOGGED {
            if let Some(value) = notes::get(&db, key)? {
                out.add(Record::Note { key: key.into(), value: Some(value) });
            }
        }
        let unfinished = parts::unfinished(&db)?.into_iter();
        let in_parts = unfinished.map(|whole| WholeInTurn { whole, next: 0, then: None }).collect();
        Ok(Self { db, last, spaces, cursor: None, in_parts, bygone: None, out })
    }

    /// The manager's epoch at that moment.
    pub fn epoch(&self) -> Result<Epoch, Error> {
        meta::epoch(&self.db)
    }

    /// Bytes of the catalog, with what has not been moved to its file yet.
    pub fn bytes(&self) -> Result<u64, Error> {
        self.db.bytes()
    }

    /// Whether the catalog was made of a log with gaps, and no admin has accepted it yet.
    pub fn is_restored_with_gaps(&self) -> Result<bool, Error> {
        Ok(notes::get(&self.db, notes::RESTORED_WITH_GAPS)?.is_some())
    }

    /// Returns the name of the pool.
    pub fn pool_name(&self) -> Result<String, Error> {
        meta::pool_name(&self.db)
    }

    /// The next records; none at the end.
    pub fn next_records(&mut self) -> Result<Vec<Record>, Error> {
        while !self.out.is_full() {
            if let Some(file) = self.in_parts.front_mut() {
                // One that is damaged is left out, with what was read of it: nothing names it.
                let part = sound(self.out.part(&self.db, file.whole, file.next))?;
                file.next += 1;
                if part != Some(true) {
                    let then = self.in_parts.pop_front().and_then(|file| file.then);
                    if let Some((path, version, marks)) = then.filter(|_| part.is_some()) {
                        self.out.file(&self.db, path.clone(), &version)?;
                        self.out.marks(path, marks);
                    }
                }
            } else if let Some(space) = self.spaces.front().cloned() {
                if self.walk(&space)? {
                    self.spaces.pop_front();
                    self.cursor = None;
                }
            } else if !self.bygone()? {
                break;
            }
        }
        Ok(std::mem::take(&mut self.out).records)
    }

    /// Goes on with what snapshots show, once all names are told; whether there may be more.
    fn bygone(&mut self) -> Result<bool, Error> {
        let (db, out) = (&self.db, &mut self.out);
        let after = match self.bygone {
            Some(after) => after,
            None => {
                snapshots::all(db)?.into_iter().for_each(|taken| out.add(Record::Snapshot(taken)));
                let next = snapshot_rows::next(db)?;
                if next > SnapshotId(1) {
                    out.add(Record::NextSnapshot { next });
                }
                for (dir, snapshot) in snapshot_rows::all_covered(db)? {
                    if let Some(path) = entries::path_of(db, dir)? {
                        out.add(Record::Covered { path, snapshot });
                    }
                }
                0
            }
        };
        let rows = bygone::told(db, after, BYGONE)?;
        self.bygone = Some(rows.last().map_or(after, |(id, _)| *id));
        let more = !rows.is_empty();
        for told in rows.into_iter().filter_map(|(_, told)| told) {
            out.add(Record::Bygone(told));
        }
        Ok(more)
    }

    /// Goes on in a space until enough was read; whether it has been walked to its end.
    fn walk(&mut self, space: &Root) -> Result<bool, Error> {
        let (db, out) = (&self.db, &mut self.out);
        let root = PoolPath::space_root(&space.name).map_err(bad)?;
        if self.cursor.is_none() {
            out.space(db, &space.name)?;
            if let Some(found) = entries::lookup(db, DirId::ROOT, &space.name)? {
                let (path, attributes) = (root.clone(), found.attributes);
                out.add(Record::PathAttributes { path, attributes });
            }
            for (to, rights) in grants::in_space(db, &space.name)? {
                out.add(Record::Grant { space: space.name.clone(), to, rights });
            }
            let of = QuotaOf::Space(space.name.clone());
            let quota = quotas::get(db, &of)?;
            if quota != Quota::NONE {
                out.add(Record::Quota { of, quota });
            }
        }
        let mut walk = Walk::new(db, space.dir, true, self.cursor.as_deref())?;
        while !out.is_full() {
            let item = match walk.next_or_broken()? {
                None => return Ok(true),
                Some(Ok(item)) => item,
                Some(Err(BrokenEntry { path, why })) => {
                    sound::<()>(Err(Error::Damaged(why)))?;
                    self.cursor = Some(path);
                    continue;
                }
            };
            let path = item.path.split('/').try_fold(root.clone(), |at, name| at.join(name));
            let path = match path {
                Ok(path) => path,
                Err(why) => {
                    // It is treated as a damaged record is: the log goes on without it, and says so.
                    sound::<()>(Err(Error::Damaged(format!("{root}/{}: {why}", item.path))))?;
                    self.cursor = Some(item.path);
                    continue;
                }
            };
            let marks = EntryMarks { since: item.since, pinned: item.pinned };
            if let Some(kept) = history::entry_at(db, &path)? {
                out.add(Record::Kept(kept));
            }
            match item.what {
                What::File(version) if version.parts > 0 => {
                    let (whole, then) = (version.id, Some((path, *version, marks)));
                    self.in_parts.push_back(WholeInTurn { whole, next: 0, then });
                    self.cursor = Some(item.path);
                    return Ok(false);
                }
                What::File(version) => {
                    sound(out.file(db, path.clone(), &version))?;
                    out.marks(path, marks);
                }
                What::Link(target) => {
                    let (at, attributes) = (path.clone(), item.attributes);
                    out.add(Record::Link { path, target, attributes });
                    out.marks(at, marks);
                }
                // Snapshots are told of when all that they show is there.
                What::Dir(dir) if dir.snapshot().is_some() => {}
                What::Dir(dir) => {
                    let (path, attributes) = (path.clone(), item.attributes);
                    out.add(Record::Dir { path: path.clone(), attributes });
                    out.marks(path.clone(), marks);
                    let over = dir_policies::get(db, dir)?;
                    if over != Override::default() {
                        out.add(Record::Policy { path, over });
                    }
                    if let Some(open) = checkpoint_rows::staged_in(db, dir, &item.path)? {
                        out.add(Record::Checkpoint(open));
                    }
                }
            }
            self.cursor = Some(item.path);
        }
        Ok(false)
    }
}

fn bad(why: potluck_core::path::BadPath) -> Error {
    Error::Damaged(format!("a name in the catalog: {why}"))
}
