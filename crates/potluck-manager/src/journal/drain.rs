//! From what the catalog has to records: its changes, row by row, and its whole state as a base.

use super::record::{About, Keeping, Line, PARITY_NAMES, Record};
use super::segment::{Cutter, Lines};
use crate::catalog::entries::{self, DirId, Place};
use crate::catalog::journal::{self, Op};
use crate::catalog::units::{self, Root};
use crate::catalog::versions;
use crate::catalog::walk::{Broken, Walk, What};
use crate::catalog::{Error, dir_policies, members, schema, spaces};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::VersionId;
use potluck_core::path::{PoolPath, SYSTEM_SPACE};
use potluck_core::policy::Override;
use potluck_pool::redundancy::Version;
use potluck_wire::packed::{Blob, Packed};
use rusqlite::Connection;
use std::collections::VecDeque;
use std::path::Path;

/// Segments in memory at once, about: a row may be a commit of thousands of files.
const SEGMENTS: usize = 8;

/// Changes that are not in the journal yet.
#[derive(Debug)]
pub struct Changes {
    /// As lines.
    pub segments: Vec<Lines>,
    /// The last row they cover.
    pub last: i64,
}

/// The first changes, at most `limit` rows; none if there are none.
pub fn changes(db: &Connection, limit: usize) -> Result<Option<Changes>, Error> {
    let rows = journal::rows(db, limit)?;
    if rows.is_empty() {
        return Ok(None);
    }
    let mut out = Out::default();
    for (row, op) in rows {
        out.row = row;
        change(db, op, &mut out)?;
        if out.cutter.full() >= SEGMENTS {
            break;
        }
    }
    Ok(Some(Changes { last: out.row, segments: out.cutter.finish() }))
}

/// Lines under way, of one row at a time.
#[derive(Default)]
struct Out {
    cutter: Cutter,
    row: i64,
}

impl Out {
    fn add(&mut self, record: Record) -> Result<(), Error> {
        self.cutter.add(&Line { row: self.row, record })
    }

    /// A version at a path, with all that belongs to it before it. Of one whose record is damaged
    /// nothing is added.
    fn file(&mut self, db: &Connection, path: PoolPath, version: &Version) -> Result<(), Error> {
        let id = version.id;
        let inline = if version.inline { versions::inline(db, id)? } else { None };
        let (pages, parity) = (versions::pages(db, id)?, versions::parity(db, version)?);
        for page in pages {
            self.add(Record::Page { version: id, page: Blob(page) })?;
        }
        self.parity(id, &parity)?;
        self.add(Record::File { path, version: id, about: About::of(version, inline) })
    }

    fn parity(&mut self, version: VersionId, parity: &[ChunkName]) -> Result<(), Error> {
        for names in parity.chunks(PARITY_NAMES) {
            self.add(Record::Parity { version, names: Packed(names.to_vec()) })?;
        }
        Ok(())
    }

    fn space(&mut self, db: &Connection, name: &str) -> Result<(), Error> {
        match spaces::named(db, name) {
            Ok(spaces::Space { name, policy, key, .. }) => {
                self.add(Record::Space { name, policy, key })
            }
            Err(Error::NoSpaceNamed(_)) => Ok(()), // its removal is a later row
            Err(why) => Err(why),
        }
    }
}

fn change(db: &Connection, op: Op, out: &mut Out) -> Result<(), Error> {
    if let Some(space) = op.space()
        && entries::lookup(db, DirId::ROOT, space)?.is_none()
    {
        return Ok(()); // a later row says that the whole space was removed
    }
    match op {
        Op::Files(files) => {
            for (path, id) in files {
                let written = match versions::find(db, id) {
                    Ok(Some(version)) => out.file(db, path.clone(), &version).map(|()| true),
                    Ok(None) => Ok(false),
                    Err(why) => Err(why),
                };
                if !sound(written)?.unwrap_or(false) {
                    out.add(Record::Passed { path })?;
                }
            }
            Ok(())
        }
        Op::Version(id) => sound(keeping(db, id, out)).map(drop),
        Op::Dir(path) => {
            let mtime_ms = made_at(db, &path)?;
            out.add(Record::Dir { path, mtime_ms })
        }
        Op::Moved { from, to } => out.add(Record::Moved { from, to }),
        Op::Removed(path) => out.add(Record::Removed { path }),
        Op::Space(name) => out.space(db, &name),
        Op::SpaceRemoved(name) => out.add(Record::SpaceRemoved { name }),
        Op::Policy(path, over) => out.add(Record::Policy { path, over }),
        Op::Member(id) => match members::get(db, id)? {
            Some(member) => out.add(Record::Member(member)),
            None => Err(Error::Damaged(format!("member {id} is missing"))),
        },
    }
}

/// Nothing of a file whose record is damaged: no catalog could be made of it, and the journal goes
/// on without it. Surveys find it and tell of it.
fn sound<T>(written: Result<T, Error>) -> Result<Option<T>, Error> {
    match written {
        Ok(written) => Ok(Some(written)),
        Err(Error::Damaged(why)) => {
            tracing::error!(why, "a damaged record of the catalog is left out of the journal");
            Ok(None)
        }
        Err(why) => Err(why),
    }
}

fn keeping(db: &Connection, id: VersionId, out: &mut Out) -> Result<(), Error> {
    let Some(version) = versions::find(db, id)? else { return Ok(()) };
    out.parity(id, &versions::parity(db, &version)?)?;
    out.add(Record::Keeping { version: id, keeping: Keeping::of(&version) })
}

/// When a directory was made, for people; 0 where it was moved or removed meanwhile.
fn made_at(db: &Connection, path: &PoolPath) -> Result<i64, Error> {
    match entries::resolve(db, path) {
        Ok(Some(found)) if matches!(found.place, Place::Dir(_)) => Ok(found.mtime_ms),
        Ok(_) | Err(Error::NoSpaceNamed(_) | Error::NotADirectory(_)) => Ok(0),
        Err(why) => Err(why),
    }
}

/// The whole state of one moment, read a few segments at a time while writes go on.
pub struct Base {
    /// In a transaction from the first read to the end.
    db: Connection,
    /// The last row whose change the state has.
    pub last: i64,
    spaces: VecDeque<Root>,
    cursor: Option<String>,
    out: Out,
}

impl Base {
    /// Begins to read the catalog in the file at `path`.
    pub fn begin(path: &Path) -> Result<Self, Error> {
        let db = schema::open_reader(path)?;
        db.execute_batch("BEGIN")?;
        let last = journal::last(&db)?;
        let spaces =
            units::roots(&db)?.into_iter().filter(|root| root.name != SYSTEM_SPACE).collect();
        let mut out = Out::default();
        for member in members::all(&db)? {
            out.add(Record::Member(member))?;
        }
        Ok(Self { db, last, spaces, cursor: None, out })
    }

    /// The next whole segments, and what goes on with it; at the end nothing does, and the segments
    /// are the last, perhaps none.
    pub fn next(mut self) -> Result<(Option<Self>, Vec<Lines>), Error> {
        while self.out.cutter.full() == 0 {
            let Some(space) = self.spaces.front().cloned() else {
                return Ok((None, self.out.cutter.finish()));
            };
            if self.walk(&space)? {
                self.spaces.pop_front();
                self.cursor = None;
            }
        }
        let segments = self.out.cutter.take_full();
        Ok((Some(self), segments))
    }

    /// Goes on in a space until a segment is full; whether it has been walked to its end.
    fn walk(&mut self, space: &Root) -> Result<bool, Error> {
        let (db, out) = (&self.db, &mut self.out);
        let root = PoolPath::space_root(&space.name).map_err(bad)?;
        if self.cursor.is_none() {
            out.space(db, &space.name)?;
        }
        let mut walk = Walk::new(db, space.dir, true, self.cursor.as_deref())?;
        while out.cutter.full() == 0 {
            let item = match walk.next_or_broken()? {
                None => return Ok(true),
                Some(Ok(item)) => item,
                Some(Err(Broken { path, why })) => {
                    sound::<()>(Err(Error::Damaged(why)))?;
                    self.cursor = Some(path);
                    continue;
                }
            };
            let path = item.path.split('/').try_fold(root.clone(), |at, name| at.join(name));
            let path = path.map_err(bad)?;
            match item.what {
                What::File(version) => {
                    sound(out.file(db, path, &version))?;
                }
                What::Dir(dir) => {
                    out.add(Record::Dir { path: path.clone(), mtime_ms: item.mtime_ms })?;
                    let over = dir_policies::get(db, dir)?;
                    if over != Override::default() {
                        out.add(Record::Policy { path, over })?;
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
