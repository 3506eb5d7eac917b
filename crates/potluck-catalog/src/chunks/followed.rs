//! Looks versions up by their numbers, which are found when a donor's copies are followed to the files that need them.

use crate::chunks::units::{self, Met, PageLimit, SomeUnits};
use crate::error::Error;
use crate::names::entries::DirId;
use crate::sql::{Tx, params};
use crate::versions;
use potluck_core::ids::{SpaceId, VersionId};
use std::collections::HashMap;

/// The most directories above one before the catalog is called damaged: no path is so long.
const MAX_DEPTH: usize = 1 << 16;

/// A version that was asked for by its number.
#[derive(Debug)]
pub struct Followed {
    /// The number of the version, or of a part.
    pub version: VersionId,
    /// The space in which a path leads to the version.
    pub space: SpaceId,
    /// The version with its layout, as far as that was asked for; a part of a file is met as a file of its own.
    pub met: Met,
}

/// A version to be looked at.
#[derive(Debug, Clone)]
pub struct ToFollow {
    /// The number of the version, or of a part.
    pub version: VersionId,
    /// The units that are asked for; `None` asks for all of them. All units are returned of a version that is being
    /// changed to another redundancy.
    pub units: Option<SomeUnits>,
}

/// Looks at the first of these versions, at least one of them, until the page is full. Returns those that a path leads
/// to, and how many were looked at.
pub(crate) fn some(
    db: &Tx,
    versions: &[ToFollow],
    limit: PageLimit,
) -> Result<(Vec<Followed>, usize), Error> {
    let mut spaces = Spaces { db, known: HashMap::new() };
    let (mut followed, mut chunks) = (Vec::new(), 0);
    let mut looked_at = 0;
    for ToFollow { version: id, units } in versions.iter().take(limit.entries.max(1)) {
        let id = *id;
        looked_at += 1;
        let Some(space) = spaces.of(id)? else { continue };
        let met = match versions::find(db, id) {
            Ok(None) => continue,
            Ok(Some(version)) => {
                let version_chunks = version.chunks;
                let met = match units {
                    Some(units) => units::file_in_part(db, Box::new(version), units)?,
                    None => units::file(db, Box::new(version))?,
                };
                if let Met::File(_, layout) = &met {
                    // The whole recipe is read even for a part of it, which costs less for each chunk than its rows.
                    chunks += layout.pieces.len() as u64 + version_chunks / 16;
                }
                met
            }
            Err(Error::Damaged(why)) => Met::Damaged(why),
            Err(why) => return Err(why),
        };
        followed.push(Followed { version: id, space, met });
        if chunks >= limit.chunks {
            break;
        }
    }
    Ok((followed, looked_at))
}

/// Returns those of the given versions that no path leads to any more.
pub(crate) fn pathless(db: &Tx, versions: &[VersionId]) -> Result<Vec<VersionId>, Error> {
    let mut spaces = Spaces { db, known: HashMap::new() };
    let mut pathless = Vec::new();
    for version in versions {
        if spaces.of(*version)?.is_none() {
            pathless.push(*version);
        }
    }
    Ok(pathless)
}

/// The spaces of directories, remembered as they are found.
struct Spaces<'db> {
    db: &'db Tx,
    known: HashMap<DirId, Option<SpaceId>>,
}

impl Spaces<'_> {
    /// Returns the space in which a path leads to a version, or to the file that it is a part of; `None` if no path
    /// does.
    fn of(&mut self, version: VersionId) -> Result<Option<SpaceId>, Error> {
        let whole = self
            .db
            .prepare("SELECT whole FROM parts WHERE part = ?1")?
            .query_one(params![version.0 as i64], |row| row.get(0))?;
        let parent = self
            .db
            .prepare("SELECT parent FROM entries WHERE version = ?1")?
            .query_one(params![whole.unwrap_or(version.0 as i64)], |row| {
                row.get(0).map(DirId::now)
            })?;
        parent.map_or(Ok(None), |parent| self.of_dir(parent))
    }

    fn of_dir(&mut self, dir: DirId) -> Result<Option<SpaceId>, Error> {
        let mut passed = vec![dir];
        let found = loop {
            let below = passed[passed.len() - 1];
            if let Some(known) = self.known.get(&below) {
                break *known;
            }
            let parent = self
                .db
                .prepare("SELECT parent FROM entries WHERE dir = ?1")?
                .query_one(params![below.0], |row| row.get(0).map(DirId::now))?;
            match parent {
                None => break None, // thrown away
                Some(DirId::ROOT) => {
                    break self
                        .db
                        .prepare("SELECT id FROM spaces WHERE root = ?1")?
                        .query_one(params![below.0], |row| row.get(0).map(SpaceId))?;
                }
                Some(parent) if passed.len() < MAX_DEPTH => passed.push(parent),
                Some(_) => {
                    return Err(Error::Damaged(format!("directory {} is inside itself", dir.0)));
                }
            }
        };
        self.known.extend(passed.into_iter().map(|dir| (dir, found)));
        Ok(found)
    }
}
