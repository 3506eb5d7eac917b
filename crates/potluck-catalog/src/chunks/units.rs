//! The units of redundancy of a version (core's `repair_plan`), with the copies of their shards.

use crate::chunks::placements::CopyState;
use crate::error::Error;
use crate::members::grants::SeenSpaces;
use crate::names::{
    entries::{self, DirId, EntryPlace},
    walk::{BrokenEntry, Walk, WalkedEntry, What},
};
use crate::policies::conversions;
use crate::pool_records::spaces::Space;
use crate::sql::{Tx, params};
use crate::versions;
use crate::versions::parts;
use potluck_core::chunk::ChunkName;
use potluck_core::ids::DonorId;
use potluck_core::path::PoolPath;
use potluck_core::policy::Redundancy;
use potluck_pool::redundancy::Findings;
use potluck_pool::redundancy::{Layout, LayoutChunk, Unit, Version, units};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The limits at which a page of files ends. The file, or part of a file, that reaches a limit is still in the page.
#[derive(Debug, Clone, Copy)]
pub struct PageLimit {
    /// The number of chunks of its files at which a page ends.
    pub chunks: u64,
    /// The number of entries at which a page ends, directories included.
    pub entries: usize,
}

/// The units of a version that are to be looked at, because all others are as they should be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SomeUnits {
    /// The numbers of units, in order.
    pub numbers: Vec<u32>,
    /// The names of chunks whose units are looked at as well.
    pub names: Vec<ChunkName>,
}

impl SomeUnits {
    /// Keeps only these units in a layout whose pieces are `names`, and only the pieces of these units in `names`.
    fn select(&self, layout: &mut Layout, names: &mut Vec<ChunkName>) {
        let wanted: HashSet<&ChunkName> = self.names.iter().collect();
        let is_wanted = |unit: &Unit| {
            self.numbers.binary_search(&unit.number).is_ok()
                || unit.shards.iter().any(|piece| wanted.contains(&names[*piece]))
        };
        layout.units.retain(is_wanted);
        let pieces: BTreeSet<usize> =
            layout.units.iter().flat_map(|unit| unit.shards.iter().copied()).collect();
        layout.data = pieces.range(..layout.data).count();
        let places: HashMap<usize, usize> = pieces.iter().copied().zip(0..).collect();
        for shard in layout.units.iter_mut().flat_map(|unit| &mut unit.shards) {
            *shard = places[&*shard];
        }
        *names = pieces.into_iter().map(|piece| names[piece]).collect();
    }
}

/// Returns the layout of a version. It is empty for a version without chunks, and for one that is made of parts, each
/// of which has a layout of its own.
pub(crate) fn layout(db: &Tx, version: &Version) -> Result<Layout, Error> {
    layout_of(db, version, None)
}

fn layout_of(db: &Tx, version: &Version, some: Option<&SomeUnits>) -> Result<Layout, Error> {
    let mut layout = Layout::default();
    if version.chunks == 0 || version.parts > 0 {
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
    } else if let Some(some) = some {
        some.select(&mut layout, &mut names);
    }
    layout.pieces = pieces(db, &names)?;
    Ok(layout)
}

/// The result of looking at the file at one path.
#[derive(Debug)]
pub enum Met {
    /// A file with its layout; of a file that is made of parts, the first part.
    File(Box<Version>, Layout),
    /// A further part of the file that was met before.
    Part(Box<Version>, Layout),
    /// A file or part whose records in the catalog are damaged, with the damage in words. Which chunks it uses is
    /// unknown.
    Damaged(String),
}

/// A page of files, and the cursor of the next page.
#[derive(Debug, Default)]
pub struct FilePage {
    /// The files and parts of files, each with its path relative to where the page was asked for.
    pub files: Vec<(String, Met)>,
    /// The cursor from which the next page goes on: the path of the last entry, or a place inside a file. `None` at the
    /// end.
    pub next: Option<String>,
}

/// The separator of the file's path and the number of its next part, in the cursor of a page that ends inside a file.
/// No path has it, because no name is empty.
const INSIDE: &str = "//";

/// Returns a page of the files below a directory.
pub(crate) fn page(
    db: &Tx,
    dir: DirId,
    after: Option<&str>,
    limit: PageLimit,
) -> Result<FilePage, Error> {
    page_below(db, dir, after, limit, (&SeenSpaces::ALL, false))
}

fn page_below(
    db: &Tx,
    dir: DirId,
    after: Option<&str>,
    limit: PageLimit,
    (seen, hides_staged): (&SeenSpaces, bool),
) -> Result<FilePage, Error> {
    let inside = after.and_then(|after| after.rsplit_once(INSIDE));
    let path = inside.map_or(after, |(path, _)| Some(path));
    let mut filling = Filling::new(db, limit);
    if let Some((path, number)) = inside
        && (dir != DirId::ROOT || seen.has_below_root(path))
        && let Some(EntryPlace::File(version)) = entries::below(db, dir, path)?
    {
        let whole = versions::get(db, version)?;
        filling.parts(path, &whole, number.parse().map_err(|_| Error::BadCursor)?)?;
    }
    let mut walk = Walk::of_seen(db, dir, true, path, seen)?;
    if hides_staged {
        walk = walk.without_staged();
    }
    while !filling.is_full()
        && let Some(item) = walk.next_or_broken()?
    {
        filling.entry(item)?;
    }
    Ok(filling.page)
}

/// A page that is being filled.
struct Filling<'db> {
    db: &'db Tx,
    page: FilePage,
    chunks: u64,
    entries: usize,
    limit: PageLimit,
}

impl<'db> Filling<'db> {
    fn new(db: &'db Tx, limit: PageLimit) -> Self {
        Self { db, page: FilePage::default(), chunks: 0, entries: 0, limit }
    }

    fn is_full(&mut self) -> bool {
        let full = self.chunks >= self.limit.chunks || self.entries >= self.limit.entries;
        if !full {
            // A page that does not get full is the last.
            self.page.next = None;
        }
        full
    }

    /// Adds the next entry of a walk. A damaged file is added as such, and does not end the page.
    fn entry(&mut self, item: Result<WalkedEntry, BrokenEntry>) -> Result<(), Error> {
        self.entries += 1;
        let WalkedEntry { path, what, .. } = match item {
            Err(BrokenEntry { path, why }) => {
                self.page.next = Some(path.clone());
                self.page.files.push((path, Met::Damaged(why)));
                return Ok(());
            }
            Ok(item) => item,
        };
        self.page.next = Some(path.clone());
        match what {
            What::Dir(_) | What::Link(_) => {}
            What::File(version) if version.parts > 0 => self.parts(&path, &version, 0)?,
            What::File(version) => {
                self.chunks += version.chunks;
                self.page.files.push((path, file(self.db, version)?));
            }
        }
        Ok(())
    }

    /// Adds the parts of a file from number `from` on, as far as there is room.
    fn parts(&mut self, path: &str, whole: &Version, from: u32) -> Result<(), Error> {
        let mut follows_one = from > 0;
        let mut next = from;
        while let Some((number, part)) = parts::next(self.db, whole.id, next)? {
            next = number + 1;
            let part = match versions::get(self.db, part) {
                Ok(part) => part,
                Err(Error::Damaged(why)) => {
                    self.page.files.push((path.to_owned(), Met::Damaged(why)));
                    continue;
                }
                Err(why) => return Err(why),
            };
            self.chunks += part.chunks;
            let met = match file(self.db, Box::new(part))? {
                Met::File(part, layout) if follows_one => Met::Part(part, layout),
                met => met,
            };
            self.page.files.push((path.to_owned(), met));
            follows_one = true;
            if self.chunks >= self.limit.chunks && u64::from(next) < whole.parts {
                self.page.next = Some(format!("{path}{INSIDE}{next}"));
                return Ok(());
            }
        }
        self.page.next = Some(path.to_owned());
        Ok(())
    }
}

/// Returns the file at a path, or the next of its parts, under an empty name; or a page of the files below the
/// directory there, without what checkpoints stage. Nothing is returned for a link.
pub(crate) fn page_at(
    db: &Tx,
    path: &PoolPath,
    after: Option<&str>,
    limit: PageLimit,
    seen: &SeenSpaces,
) -> Result<FilePage, Error> {
    let version = match entries::existing(db, path)?.place {
        EntryPlace::Dir(dir) => return page_below(db, dir, after, limit, (seen, true)),
        EntryPlace::File(version) => versions::get(db, version)?,
        EntryPlace::Link(_) => return Ok(FilePage::default()),
    };
    if version.parts == 0 {
        let met = file(db, Box::new(version))?;
        return Ok(FilePage { files: vec![(String::new(), met)], next: None });
    }
    let number = after.and_then(|after| after.strip_prefix(INSIDE));
    let number = number.map_or(Ok(0), str::parse).map_err(|_| Error::BadCursor)?;
    let mut filling = Filling::new(db, limit);
    filling.parts("", &version, number)?;
    filling.page.next = filling.page.next.filter(|next| next.starts_with(INSIDE));
    Ok(filling.page)
}

/// Returns a file with its layout, or its damage if its records cannot be read.
pub(crate) fn file(db: &Tx, version: Box<Version>) -> Result<Met, Error> {
    let layout = layout(db, &version);
    met(version, layout)
}

/// Returns a file with the layout of some of its units, or its damage if its records cannot be read.
pub(crate) fn file_in_part(db: &Tx, version: Box<Version>, some: &SomeUnits) -> Result<Met, Error> {
    let layout = layout_of(db, &version, Some(some));
    met(version, layout)
}

fn met(version: Box<Version>, layout: Result<Layout, Error>) -> Result<Met, Error> {
    match layout {
        Ok(layout) => Ok(Met::File(version, layout)),
        Err(Error::Damaged(why)) => Ok(Met::Damaged(why)),
        Err(why) => Err(why),
    }
}

/// Returns the rows of chunks with the donors whose copies count or are leaving. Each chunk costs a look-up.
///
/// Errors: [`Error::Damaged`] if a chunk has no row.
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

/// Judges the files of a page, and adds what is found to `findings`.
pub fn judge(space: &Space, files: Vec<(String, Met)>, findings: &mut Findings) {
    for (path, met) in files {
        match met {
            Met::File(version, layout) => {
                findings.add_any(&version, space.chunk_kind(), &layout);
            }
            Met::Part(version, layout) => findings.add_part(&version, space.chunk_kind(), &layout),
            Met::Damaged(_) if findings.own => findings.add_own_damaged(),
            Met::Damaged(why) => findings.add_damaged(&space.name, &path, &why),
        }
    }
}
