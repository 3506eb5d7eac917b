//! Reads a catalog as records: its changes, row by row, or its whole state at one moment.

use crate::checkpoints::checkpoint_rows;
use crate::engine::{self, Database};
use crate::history::{bygone, kept_rows, snapshot_rows, snapshots};
use crate::log::{
    changes::{self, ChangeNumber, ChangeOp},
    log_position::{LogCopy, Position},
    records::{Keeping, PARITY_NAMES, Record},
    restored,
};
use crate::members::{
    grants, groups,
    quotas::{self, StoredQuota},
};
use crate::names::{
    dir_policies,
    entries::{self, DirId},
    walk::{BrokenEntry, Walk, What},
};
use crate::pool_records::{
    donors,
    logged_reservation::LoggedReservation,
    meta, notes, reservations,
    spaces::{self, Space},
};
use crate::sql::Tx;
use crate::versions;
use crate::versions::{parts, wholes};
use crate::{Error, members};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{Epoch, SessionId, SnapshotId, VersionId};
use potluck_core::path::PoolPath;
use potluck_core::policy::Override;
use potluck_core::quota::{Quota, QuotaOf};
use potluck_pool::redundancy::Version;
use potluck_wire::addresses::Addresses;
use potluck_wire::packed::{Blob, Packed};
use std::collections::{HashMap, VecDeque};
use std::path::Path;

/// The number of bytes of records at which one read ends: a row may be a commit of thousands of files.
const AT_ONCE: usize = 4 << 20;
/// The approximate number of bytes of a record without recipe, parity and content.
const SMALL: usize = 256;
/// The most names shown by snapshots that are read at once.
const BYGONE: usize = 1000;

/// Changes of the catalog as records of the metadata log.
#[derive(Debug)]
pub struct LogChanges {
    /// The changes, each as a record.
    pub records: Vec<Record>,
    /// The last change that the records cover.
    pub last: ChangeNumber,
}

/// Returns the first changes after the row `after`, of at most `limit` rows and until [`AT_ONCE`] bytes were read;
/// `None` if there are no rows.
pub(crate) fn changes(db: &Tx, after: i64, limit: usize) -> Result<Option<LogChanges>, Error> {
    let rows = changes::rows(db, after, limit)?;
    let Some(first) = rows.first() else { return Ok(None) };
    let (mut out, mut last) = (Out::default(), first.0);
    let latest = latest_of_reservations(&rows);
    for (row, op) in rows {
        last = row;
        if reservation_of(&op).is_some_and(|id| latest[&id] > row) {
            continue;
        }
        change(db, op, &mut out)?;
        if out.is_full() {
            break;
        }
    }
    if !out.records.is_empty() {
        out.time(db)?;
    }
    Ok(Some(LogChanges { records: out.records, last: ChangeNumber(last) }))
}

/// Returns the number of the last of the given rows about each reservation. A reservation changes with each session
/// that takes room of it, and is told of once.
fn latest_of_reservations(rows: &[(i64, ChangeOp)]) -> HashMap<SessionId, i64> {
    rows.iter().filter_map(|(row, op)| Some((reservation_of(op)?, *row))).collect()
}

fn reservation_of(op: &ChangeOp) -> Option<SessionId> {
    match op {
        ChangeOp::Told(
            Record::Reservation(LoggedReservation { id, .. }) | Record::ReservationEnded { id },
        ) => Some(*id),
        _ => None,
    }
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
            Record::File { content, .. } => content.as_ref().map_or(0, |content| content.0.len()),
            _ => 0,
        } + SMALL;
        self.records.push(record);
    }

    fn is_full(&self) -> bool {
        self.bytes >= AT_ONCE
    }

    /// Adds a version at a path, after the records of its chunks. The parts of a version are added before, by
    /// [`Self::part`]. Nothing is added of a version whose record is damaged.
    fn file(&mut self, db: &Tx, path: PoolPath, version: &Version) -> Result<(), Error> {
        let id = version.id;
        let inline = if version.inline { versions::inline(db, id)? } else { None };
        if version.parts == 0 {
            self.chunks(db, version)?;
        }
        let version = Box::new(version.clone());
        self.add(Record::File { path, version, content: inline.map(Blob) });
        Ok(())
    }

    /// Adds part `number` of a version.
    fn part(
        &mut self,
        db: &Tx,
        whole: VersionId,
        number: u32,
        part: &Version,
    ) -> Result<(), Error> {
        self.chunks(db, part)?;
        self.add(Record::Part { whole, number, version: Box::new(part.clone()) });
        Ok(())
    }

    /// Adds the first part of a version from number `from` on, and returns its number, if there is one.
    fn next_part(&mut self, db: &Tx, whole: VersionId, from: u32) -> Result<Option<u32>, Error> {
        let Some((number, part)) = wholes::next(db, whole, from)? else { return Ok(None) };
        self.part(db, whole, number, &part)?;
        Ok(Some(number))
    }

    /// Adds the recipe of a version, and its parity.
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

    /// Adds records of the first snapshot that shows an entry, unless that is snapshot 1, of the pin if the entry is
    /// pinned, and of what it is kept for.
    fn marks(&mut self, db: &Tx, path: PoolPath, marks: EntryMarks) -> Result<(), Error> {
        if let Some(kept) = kept_rows::entry_at(db, &path)? {
            self.add(Record::Kept(kept));
        }
        if marks.pinned {
            self.add(Record::Pinned { path: path.clone(), pinned: true });
        }
        if marks.since > SnapshotId(1) {
            self.add(Record::Since { path, since: marks.since });
        }
        Ok(())
    }

    /// Adds the pool's time as it was saved last, by which announcements and reservations end.
    fn time(&mut self, db: &Tx) -> Result<(), Error> {
        if let Some(pool_ms) = meta::saved_pool_time(db)? {
            self.add(Record::Time { pool_ms, leapt_ms: notes::time_leapt_ms(db)? });
        }
        Ok(())
    }
}

fn change(db: &Tx, op: ChangeOp, out: &mut Out) -> Result<(), Error> {
    let is_removal = matches!(op, ChangeOp::Told(Record::SpaceRemoved { .. }));
    if let Some(space) = op.space().filter(|_| !is_removal)
        && entries::lookup(db, DirId::ROOT, space)?.is_none()
    {
        return Ok(()); // a later row says that the whole space was removed
    }
    match op {
        ChangeOp::Told(Record::Published { from, to, style, .. }) => {
            out.add(Record::Published { from, to, style, merged: Vec::new() });
        }
        ChangeOp::Told(record) => out.add(record),
        ChangeOp::Files(files) => {
            for (path, id) in files {
                let written = match versions::find(db, id) {
                    Ok(Some(version)) => out.file(db, path.clone(), &version).map(|()| true),
                    Ok(None) => Ok(false),
                    Err(why) => Err(why),
                };
                let written = sound(written)?;
                if written.is_none() {
                    // A damaged file is lost, and the one that it replaced must not take its place.
                    out.add(Record::Removed { path: path.clone() });
                }
                if written != Some(true) {
                    out.add(Record::Passed { path });
                }
            }
        }
        ChangeOp::Part(whole, number) => {
            if let Some(part) = parts::at(db, whole, number)? {
                sound(versions::get(db, part).and_then(|it| out.part(db, whole, number, &it)))?;
            }
        }
        ChangeOp::Version(id) => {
            sound(keeping(db, id, out))?;
        }
        ChangeOp::SealedAgain(id) => {
            sound(sealed_again(db, id, out))?;
        }
    }
    Ok(())
}

/// Leaves out an entry whose record is damaged, by returning `None`: no catalog could be made of it, and the log goes
/// on without it. Scans find and report damaged files.
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

fn sealed_again(db: &Tx, id: VersionId, out: &mut Out) -> Result<(), Error> {
    let Some(version) = versions::find(db, id)? else { return Ok(()) };
    let Some(key) = version.key else { return Ok(()) };
    out.chunks(db, &version)?;
    let inline = if version.inline { versions::inline(db, id)?.map(Blob) } else { None };
    out.add(Record::SealedAgain { version: id, key, inline, keeping: Keeping::of(&version) });
    Ok(())
}

fn keeping(db: &Tx, id: VersionId, out: &mut Out) -> Result<(), Error> {
    let Some(version) = versions::find(db, id)? else { return Ok(()) };
    if version.parts == 0 {
        out.parity(id, &versions::parity(db, &version)?);
    }
    out.add(Record::Keeping { version: id, keeping: Keeping::of(&version) });
    Ok(())
}

/// The whole state of a catalog at one moment, read a few records at a time while writes go on.
pub struct CatalogSnapshot {
    /// The connection, in one transaction from the first read to the end.
    db: Database,
    /// The last change that the state includes.
    pub last: ChangeNumber,
    spaces: VecDeque<Space>,
    cursor: Option<String>,
    /// The versions whose parts are to be read first.
    in_parts: VecDeque<WholeInTurn>,
    /// True once reservations were read, which happens after all spaces.
    reservations_told: bool,
    /// The last row that was read of what snapshots show; `None` before the first.
    bygone: Option<i64>,
    out: Out,
}

/// The facts about an entry that belong to its name and not to what the name leads to.
#[derive(Debug, Clone, Copy)]
struct EntryMarks {
    since: SnapshotId,
    pinned: bool,
}

/// A version that is made of parts, while the parts are read.
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
        let spaces = spaces::all(&db)?.into_iter().filter(|space| !space.is_system()).collect();
        let mut out = Out::default();
        out.time(&db)?;
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
        let (cursor, bygone) = (None, None);
        Ok(Self { db, last, spaces, cursor, in_parts, reservations_told: false, bygone, out })
    }

    /// Returns the manager's epoch at the moment of the state.
    pub fn epoch(&self) -> Result<Epoch, Error> {
        meta::epoch(&self.db)
    }

    /// Returns the number of bytes of the pages that the catalog uses, with those that have not been moved to its file yet.
    pub fn bytes(&self) -> Result<u64, Error> {
        self.db.bytes()
    }

    /// Returns whether the catalog may lack changes that another log has, and no admin has accepted it yet.
    pub fn may_lack(&self) -> Result<bool, Error> {
        Ok(notes::get(&self.db, notes::MAY_LACK)?.is_some())
    }

    /// Returns the number of files in all spaces but that of the pool's own metadata.
    pub fn files(&self) -> Result<u64, Error> {
        Ok(restored::content(&self.db)?.files)
    }

    /// Returns the position of the copy of the log on donors; of a catalog that may lack changes, the one that it had
    /// before that was known.
    pub fn on_donors(&self) -> Result<Option<Position>, Error> {
        match self.may_lack()? {
            true => Position::left(&self.db),
            false => Position::of(&self.db, LogCopy::OnDonors),
        }
    }

    /// Returns the addresses at which the donors of the pool were reached last.
    pub fn donor_addresses(&self) -> Result<Vec<Addresses>, Error> {
        Ok(donors::all(&self.db)?.into_iter().map(|donor| donor.addresses).collect())
    }

    /// Returns the name of the pool.
    pub fn pool_name(&self) -> Result<String, Error> {
        meta::pool_name(&self.db)
    }

    /// Returns the next records; none at the end.
    pub fn next_records(&mut self) -> Result<Vec<Record>, Error> {
        while !self.out.is_full() {
            if let Some(file) = self.in_parts.front_mut() {
                // A file with a damaged part is left out; no name leads to the parts of it that were written before.
                let part = sound(self.out.next_part(&self.db, file.whole, file.next))?;
                if let Some(Some(number)) = part {
                    file.next = number + 1;
                } else {
                    let then = self.in_parts.pop_front().and_then(|file| file.then);
                    if let Some((path, version, marks)) = then.filter(|_| part.is_some()) {
                        self.out.file(&self.db, path.clone(), &version)?;
                        self.out.marks(&self.db, path, marks)?;
                    }
                }
            } else if let Some(space) = self.spaces.front().cloned() {
                if self.walk(&space)? {
                    self.spaces.pop_front();
                    self.cursor = None;
                }
            } else if !std::mem::replace(&mut self.reservations_told, true) {
                let all = reservations::all(&self.db)?.into_iter();
                all.for_each(|reservation| self.out.add(Record::Reservation(reservation)));
            } else if !self.bygone()? {
                break;
            }
        }
        Ok(std::mem::take(&mut self.out).records)
    }

    /// Reads the next rows of what snapshots show, after all names, and returns whether there may be more.
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

    /// Reads on in a space until enough was read, and returns whether it has been walked to its end.
    fn walk(&mut self, space: &Space) -> Result<bool, Error> {
        let (db, out) = (&self.db, &mut self.out);
        let root = PoolPath::space_root(&space.name).map_err(bad)?;
        if self.cursor.is_none() {
            out.add(space.clone().into());
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
        let mut walk = Walk::new(db, space.root, true, self.cursor.as_deref())?;
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
            let path = root.join_all(item.path.split('/'));
            let path = match path {
                Ok(path) => path,
                Err(why) => {
                    // An impossible path is treated as a damaged record is: the log goes on without it, and says so.
                    sound::<()>(Err(Error::Damaged(format!("{root}/{}: {why}", item.path))))?;
                    self.cursor = Some(item.path);
                    continue;
                }
            };
            let marks = EntryMarks { since: item.since, pinned: item.pinned };
            match item.what {
                What::File(version) if version.parts > 0 => {
                    let (whole, then) = (version.id, Some((path, *version, marks)));
                    self.in_parts.push_back(WholeInTurn { whole, next: 0, then });
                    self.cursor = Some(item.path);
                    return Ok(false);
                }
                What::File(version) => {
                    sound(out.file(db, path.clone(), &version))?;
                    out.marks(db, path, marks)?;
                }
                What::Link(target) => {
                    let (at, attributes) = (path.clone(), item.attributes);
                    out.add(Record::Link { path, target, attributes });
                    out.marks(db, at, marks)?;
                }
                // Snapshots are told of when all that they show is there.
                What::Dir(dir) if dir.snapshot().is_some() => {}
                What::Dir(dir) => {
                    let (path, attributes) = (path.clone(), item.attributes);
                    out.add(Record::Dir { path: path.clone(), made_above: 0, attributes });
                    out.marks(db, path.clone(), marks)?;
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
