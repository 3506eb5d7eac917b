//! The units of redundancy of a version (core's `repair_plan`), with the copies of their shards.

use super::conversions;
use super::entries::{self, DirId, EntryPlace};
use super::error::Error;
use super::grants::SeenSpaces;
use super::placements::CopyState;
use super::versions;
use super::walk::{Walk, WalkedEntry, What};
use crate::sql::{Tx, params};
use potluck_core::chunk::ChunkKind;
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{DonorId, SpaceId};
use potluck_core::path::PoolPath;
use potluck_core::path::SYSTEM_SPACE;
use potluck_core::policy::Redundancy;
use potluck_pool::redundancy::Findings;
use potluck_pool::redundancy::{Layout, LayoutChunk, Version, units};
use std::collections::BTreeMap;

/// The most that one page of files holds, unless one file alone has more chunks.
#[derive(Debug, Clone, Copy)]
pub struct PageLimit {
    /// Chunks of the files in it.
    pub chunks: u64,
    /// Number of entries, directories included.
    pub entries: usize,
}

/// Reads how a version is laid out.
pub(crate) fn layout(db: &Tx, version: &Version) -> Result<Layout, Error> {
    let mut layout = Layout::default();
    if version.chunks == 0 {
        return Ok(layout);
    }
    let mut names: Vec<ChunkName> =
        versions::recipe_of(db, version)?.iter().map(|entry| entry.name).collect();
    layout.data = names.len();
    names.extend(versions::parity(db, version)?);
    let data = layout.data;
    (layout.units, _) =
        units(data, version.redundancy(), |group, ec| Some(data + group * ec.parity()));
    if let Some(goal) = version.goal {
        let mut firsts = BTreeMap::new();
        if let Redundancy::Ec(ec) = goal {
            for (group, parity) in conversions::parity_of(db, version.id, ec)? {
                firsts.insert(group as usize, names.len());
                names.extend(parity);
            }
        }
        (layout.goal, layout.unencoded) =
            units(layout.data, goal, |group, _| firsts.get(&group).copied());
    }
    layout.pieces = pieces(db, &names)?;
    Ok(layout)
}

/// The finding of a look at everything at one path.
#[derive(Debug)]
pub enum Met {
    /// A directory, which has no chunks of its own.
    Dir,
    /// A file and how it is laid out.
    File(Box<Version>, Layout),
    /// A file whose records in the catalog are damaged, and how. Which chunks it uses is unknown.
    Damaged(String),
}

/// Files of a page, each with its path, and from where to go on, if there is more.
#[derive(Debug, Default)]
pub struct FilePage {
    /// The files that have chunks, or might.
    pub files: Vec<(String, Met)>,
    /// The path after which the next page begins.
    pub next: Option<String>,
}

/// A page of the files below a directory.
pub(crate) fn page(
    db: &Tx,
    dir: DirId,
    after: Option<&str>,
    limit: PageLimit,
) -> Result<FilePage, Error> {
    page_of(db, Walk::new(db, dir, true, after)?, limit)
}

fn page_of(db: &Tx, mut walk: Walk<'_>, limit: PageLimit) -> Result<FilePage, Error> {
    let (mut page, mut chunks) = (FilePage::default(), 0);
    for _ in 0..limit.entries {
        let Some((path, met)) = meet(db, &mut walk)? else {
            page.next = None;
            return Ok(page);
        };
        page.next = Some(path.clone());
        if let Met::File(version, _) = &met {
            chunks += version.chunks;
        }
        if !matches!(met, Met::Dir) {
            page.files.push((path, met));
        }
        if chunks >= limit.chunks {
            break;
        }
    }
    Ok(page)
}

/// The file at a path, by an empty name, or a page of those below it.
pub(crate) fn page_at(
    db: &Tx,
    path: &PoolPath,
    after: Option<&str>,
    limit: PageLimit,
    seen: &SeenSpaces,
) -> Result<FilePage, Error> {
    match entries::existing(db, path)?.place {
        EntryPlace::Dir(dir) => page_of(db, Walk::of_seen(db, dir, true, after, seen)?, limit),
        EntryPlace::File(version) => {
            let met = file(db, Box::new(versions::get(db, version)?))?;
            Ok(FilePage { files: vec![(String::new(), met)], next: None })
        }
    }
}

/// A file and how it is laid out, as far as its records can be read.
fn file(db: &Tx, version: Box<Version>) -> Result<Met, Error> {
    match layout(db, &version) {
        Ok(layout) => Ok(Met::File(version, layout)),
        Err(Error::Damaged(why)) => Ok(Met::Damaged(why)),
        Err(why) => Err(why),
    }
}

/// The next entry of a walk, with its path. One damaged file keeps nobody from the others.
pub(crate) fn meet(db: &Tx, walk: &mut Walk<'_>) -> Result<Option<(String, Met)>, Error> {
    let WalkedEntry { path, what, .. } = match walk.next_or_broken()? {
        None => return Ok(None),
        Some(Err(broken)) => return Ok(Some((broken.path, Met::Damaged(broken.why)))),
        Some(Ok(item)) => item,
    };
    let met = match what {
        What::Dir(_) => Met::Dir,
        What::File(version) => file(db, version)?,
    };
    Ok(Some((path, met)))
}

/// Rows and holders of chunks: one question a chunk.
fn pieces(db: &Tx, names: &[ChunkName]) -> Result<Vec<LayoutChunk>, Error> {
    let mut select = db.prepare(
        "SELECT c.len, c.refs, p.donor, p.state FROM chunks c
         LEFT JOIN placements p ON p.chunk = c.id WHERE c.name = ?1",
    )?;
    let mut pieces = Vec::with_capacity(names.len());
    for name in names {
        let mut rows = select.query(params![name.0])?;
        let mut piece: Option<LayoutChunk> = None;
        while let Some(row) = rows.next()? {
            if piece.is_none() {
                let (len, refs) = (row.get(0)?, row.get(1)?);
                piece = Some(LayoutChunk { name: *name, len, refs, holders: Vec::new() });
            }
            let state: Option<i64> = row.get(3)?;
            let leaving = state == Some(CopyState::Leaving as i64);
            if let Some(piece) = &mut piece
                && (leaving || state == Some(CopyState::Here as i64))
            {
                piece.holders.push((DonorId(row.get(2)?), leaving));
            }
        }
        let missing = || Error::Damaged(format!("chunk {name} of a recipe has no row"));
        pieces.push(piece.ok_or_else(missing)?);
    }
    Ok(pieces)
}

/// A space to be walked.
#[derive(Debug, Clone)]
pub struct Root {
    /// The number of the space.
    pub space: SpaceId,
    /// The name of the space.
    pub name: String,
    /// The root directory of the space.
    pub dir: DirId,
}

/// All spaces, those the pool keeps for itself included.
pub(crate) fn roots(db: &Tx) -> Result<Vec<Root>, Error> {
    let mut rows = db.prepare("SELECT id, name, root FROM spaces ORDER BY name")?;
    let roots = rows.query_map(params![], |row| {
        let (space, dir) = (SpaceId(row.get(0)?), DirId(row.get(2)?));
        Ok(Root { space, name: row.get(1)?, dir })
    })?;
    roots.collect()
}

/// Judges the files of a page.
pub fn judge(root: &Root, files: Vec<(String, Met)>, findings: &mut Findings) {
    for (path, met) in files {
        match met {
            Met::Dir => {}
            Met::File(version, layout) => {
                findings.add_any(&version, kind_of(root), &layout);
            }
            Met::Damaged(_) if findings.own => findings.add_own_damaged(),
            Met::Damaged(why) => findings.add_damaged(&root.name, &path, &why),
        }
    }
}

/// Returns the kind of the chunks of the files below a root.
pub fn kind_of(root: &Root) -> ChunkKind {
    if root.name == SYSTEM_SPACE { ChunkKind::Log } else { ChunkKind::Data }
}
