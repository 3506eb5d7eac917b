//! Files of many chunks. Such a file is a sequence of parts, each a version of its own that no entry names, with at
//! most [`PART_CHUNKS`](potluck_core::recipe::PART_CHUNKS) chunks. A part that is a hole is no version, and its number is
//! left out. The version that the entry names, the whole, has no recipe of its own.
//!
//! Parts are committed one by one while the file is still being sent, and they are opened, judged, repaired, logged and
//! taken apart one by one, so that no such step takes more time or memory for a larger file. The file becomes visible
//! in one short transaction, which looks at one row for each part.

use crate::error::Error;
use crate::history::trash;
use crate::sql::{Tx, params};
use potluck_core::chunk::Digest;
use potluck_core::ids::{DonorId, Epoch, SessionId, SpaceId, VersionId};
use potluck_pool::DonorSnapshot;
use potluck_wire::control::StoredPart;

/// The donors on whose copies the safety of a part relies, and when that was judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relied {
    /// The donors that the part relies on, all of which were there.
    pub donors: Vec<DonorId>,
    /// The term of the manager that judged the part.
    pub term: Epoch,
    /// The number of losses of donors that were noted in that term until the part was judged.
    pub losses: u64,
}

impl Relied {
    /// Returns whether the judgement still holds: it was made in this term, and nothing happened to the donors since.
    pub(crate) fn holds(&self, term: Epoch, donors: &DonorSnapshot) -> bool {
        self.term == term && donors.are_unchanged(self.donors.iter().copied(), self.losses)
    }
}

/// Returns the whole that a session is writing as its file number `file`, if it has parts.
pub(crate) fn being_written(
    db: &Tx,
    session: &SessionId,
    file: u32,
) -> Result<Option<VersionId>, Error> {
    db.prepare("SELECT id FROM wholes WHERE session = ?1 AND file = ?2")?
        .query_one(params![session.0, file], |row| Ok(VersionId(row.get::<i64>(0)? as u64)))
}

/// Begins the file number `file` of a session, in this space, as version `whole`.
pub(crate) fn begin(
    db: &Tx,
    whole: VersionId,
    space: SpaceId,
    session: &SessionId,
    file: u32,
) -> Result<(), Error> {
    db.prepare("INSERT INTO wholes (id, space, session, file) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![whole.0 as i64, space.0, session.0, file])?;
    Ok(())
}

/// Notes that a whole is in this space, and that no session is writing it any more.
pub(crate) fn finish(db: &Tx, whole: VersionId, space: SpaceId) -> Result<(), Error> {
    db.prepare(
        "INSERT INTO wholes (id, space) VALUES (?1, ?2)
         ON CONFLICT (id) DO UPDATE SET space = excluded.space, session = NULL, file = NULL",
    )?
    .execute(params![whole.0 as i64, space.0])?;
    Ok(())
}

/// Throws away the parts that a session has committed of files which never became visible.
pub(crate) fn abandon(db: &Tx, session: &SessionId) -> Result<(), Error> {
    let wholes = ids(db, "SELECT id FROM wholes WHERE session = ?1", params![session.0])?;
    for whole in &wholes {
        trash::throw_parts(db, *whole)?;
    }
    db.prepare("UPDATE wholes SET session = NULL, file = NULL WHERE session = ?1")?
        .execute(params![session.0])?;
    Ok(())
}

/// Throws away all parts that belong to no version, where nothing else is known of their sessions.
pub(crate) fn abandon_strays(db: &Tx) -> Result<(), Error> {
    let strays = "SELECT id FROM wholes WHERE id NOT IN (SELECT id FROM versions)";
    for whole in ids(db, strays, params![])? {
        trash::throw_parts(db, whole)?;
    }
    Ok(())
}

/// Returns the wholes that sessions are writing.
pub(crate) fn unfinished(db: &Tx) -> Result<Vec<VersionId>, Error> {
    ids(db, "SELECT id FROM wholes WHERE session IS NOT NULL ORDER BY id", params![])
}

fn ids(db: &Tx, sql: &str, params: &[&dyn crate::sql::Param]) -> Result<Vec<VersionId>, Error> {
    let mut select = db.prepare(sql)?;
    let found = select.query_map(params, |row| Ok(VersionId(row.get::<i64>(0)? as u64)))?;
    found.collect()
}

/// Returns the space that a whole is in, or was in until it was removed.
pub(crate) fn space_of(db: &Tx, whole: VersionId) -> Result<Option<SpaceId>, Error> {
    db.prepare("SELECT space FROM wholes WHERE id = ?1")?
        .query_one(params![whole.0 as i64], |row| row.get(0).map(SpaceId))
}

/// Forgets a whole that has no parts any more.
pub(crate) fn forget_whole(db: &Tx, whole: VersionId) -> Result<(), Error> {
    db.prepare("DELETE FROM wholes WHERE id = ?1")?.execute(params![whole.0 as i64])?;
    Ok(())
}

/// Makes a version part `number` of a whole; `relied` is what its safety was judged by.
pub(crate) fn put(
    db: &Tx,
    whole: VersionId,
    number: u32,
    part: VersionId,
    relied: Option<&Relied>,
) -> Result<(), Error> {
    let (id, part) = (whole.0 as i64, part.0 as i64);
    let donors = relied.map(|relied| packed(&relied.donors));
    let (term, losses) =
        relied.map_or((0, 0), |relied| (relied.term.0 as i64, relied.losses as i64));
    db.prepare(
        "INSERT INTO parts (whole, number, part, donors, term, losses) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (whole, number) DO UPDATE SET part = excluded.part, donors = excluded.donors,
             term = excluded.term, losses = excluded.losses",
    )?
    .execute(params![id, number, part, donors, term, losses])?;
    Ok(())
}

/// Notes what a part was judged by, if its version is still the same; `None`: the part lacks chunks.
pub(crate) fn set_relied(
    db: &Tx,
    whole: VersionId,
    (number, part): (u32, VersionId),
    relied: Option<&Relied>,
) -> Result<(), Error> {
    let donors = relied.map(|relied| packed(&relied.donors));
    let (term, losses) =
        relied.map_or((0, 0), |relied| (relied.term.0 as i64, relied.losses as i64));
    db.prepare(
        "UPDATE parts SET donors = ?4, term = ?5, losses = ?6
         WHERE whole = ?1 AND number = ?2 AND part = ?3",
    )?
    .execute(params![whole.0 as i64, number, part.0 as i64, donors, term, losses])?;
    Ok(())
}

fn packed(donors: &[DonorId]) -> Vec<u8> {
    donors.iter().flat_map(|donor| donor.0.to_le_bytes()).collect()
}

/// A part, and what its safety was judged by.
#[derive(Debug)]
pub(crate) struct JudgedPart {
    /// The number of the part.
    pub number: u32,
    /// The version of the part.
    pub part: VersionId,
    /// The donors that the part relies on, and when that was judged; `None`: too few of its chunks' copies were
    /// there.
    pub relied: Option<Relied>,
}

/// Returns the parts of a whole from number `from` on, at most `most` of them, with what they were judged by.
pub(crate) fn judged(
    db: &Tx,
    whole: VersionId,
    from: u32,
    most: usize,
) -> Result<Vec<JudgedPart>, Error> {
    let mut select = db.prepare(
        "SELECT number, part, donors, term, losses FROM parts
         WHERE whole = ?1 AND number >= ?2 ORDER BY number LIMIT ?3",
    )?;
    let rows = select.query_map(params![whole.0 as i64, from, most as i64], |row| {
        let donors: Option<Vec<u8>> = row.get(2)?;
        let (term, losses): (i64, i64) = (row.get(3)?, row.get(4)?);
        let relied = donors.map(|donors| Relied {
            donors: unpacked(&donors),
            term: Epoch(term as u64),
            losses: losses as u64,
        });
        let part = VersionId(row.get::<i64>(1)? as u64);
        Ok(JudgedPart { number: row.get(0)?, part, relied })
    })?;
    rows.collect()
}

fn unpacked(donors: &[u8]) -> Vec<DonorId> {
    donors.as_chunks::<4>().0.iter().map(|donor| DonorId(u32::from_le_bytes(*donor))).collect()
}

/// Returns part `number` of a whole, if it is there.
pub(crate) fn at(db: &Tx, whole: VersionId, number: u32) -> Result<Option<VersionId>, Error> {
    db.prepare("SELECT part FROM parts WHERE whole = ?1 AND number = ?2")?
        .query_one(params![whole.0 as i64, number], |row| Ok(VersionId(row.get::<i64>(0)? as u64)))
}

/// Returns the number and the version of the first part of a whole from number `from` on.
pub(crate) fn next(
    db: &Tx,
    whole: VersionId,
    from: u32,
) -> Result<Option<(u32, VersionId)>, Error> {
    db.prepare(
        "SELECT number, part FROM parts WHERE whole = ?1 AND number >= ?2 ORDER BY number LIMIT 1",
    )?
    .query_one(params![whole.0 as i64, from], |row| {
        Ok((row.get(0)?, VersionId(row.get::<i64>(1)? as u64)))
    })
}

/// Returns the number and the version of the last part of a whole, if it has any.
pub(crate) fn last(db: &Tx, whole: VersionId) -> Result<Option<(u32, VersionId)>, Error> {
    db.prepare("SELECT number, part FROM parts WHERE whole = ?1 ORDER BY number DESC LIMIT 1")?
        .query_one(params![whole.0 as i64], |row| {
            Ok((row.get(0)?, VersionId(row.get::<i64>(1)? as u64)))
        })
}

/// Forgets that a whole has a part.
pub(crate) fn forget(db: &Tx, whole: VersionId, number: u32) -> Result<(), Error> {
    db.prepare("DELETE FROM parts WHERE whole = ?1 AND number = ?2")?
        .execute(params![whole.0 as i64, number])?;
    Ok(())
}

/// Returns the versions of a whole's parts, in order; for a version without parts, that version itself.
pub(crate) fn of(db: &Tx, version: VersionId) -> Result<Vec<VersionId>, Error> {
    let of = "SELECT part FROM parts WHERE whole = ?1 ORDER BY number";
    let parts = ids(db, of, params![version.0 as i64])?;
    Ok(if parts.is_empty() { vec![version] } else { parts })
}

/// Returns the parts of a whole, in order.
pub(crate) fn stored(db: &Tx, whole: VersionId) -> Result<Vec<StoredPart>, Error> {
    let mut select = db.prepare(
        "SELECT p.number, v.digest FROM parts p JOIN versions v ON v.id = p.part
         WHERE p.whole = ?1 ORDER BY p.number",
    )?;
    let parts = select.query_map(params![whole.0 as i64], |row| {
        Ok(StoredPart { number: row.get(0)?, digest: Digest(row.get(1)?) })
    })?;
    parts.collect()
}

/// Returns the whole that a version is a part of, if it is one.
pub(crate) fn whole_of(db: &Tx, part: VersionId) -> Result<Option<VersionId>, Error> {
    db.prepare("SELECT whole FROM parts WHERE part = ?1")?
        .query_one(params![part.0 as i64], |row| Ok(VersionId(row.get::<i64>(0)? as u64)))
}

/// Gives wholes the time since when all their parts are safe, or none, after some of these parts became safe or lack
/// redundancy again.
pub(crate) fn safety_changed(db: &Tx, parts: &[VersionId]) -> Result<(), Error> {
    let mut last = None;
    for part in parts {
        let Some(whole) = whole_of(db, *part)?.filter(|whole| last != Some(*whole)) else {
            continue;
        };
        last = Some(whole);
        db.prepare(
            "UPDATE versions SET safe_wall_ms =
                 (SELECT CASE WHEN count(v.safe_wall_ms) = count(*) THEN max(v.safe_wall_ms) END
                  FROM parts p JOIN versions v ON v.id = p.part WHERE p.whole = ?1)
             WHERE id = ?1",
        )?
        .execute(params![whole.0 as i64])?;
    }
    Ok(())
}

/// Notes that a part has the redundancy of its goal. Its whole has it, too, when no part has a goal any more.
pub(crate) fn arrived(db: &Tx, part: VersionId) -> Result<(), Error> {
    let Some(whole) = whole_of(db, part)? else { return Ok(()) };
    let on_their_way = db
        .prepare(
            "SELECT 1 FROM parts p JOIN versions v ON v.id = p.part
             WHERE p.whole = ?1 AND v.goal IS NOT NULL LIMIT 1",
        )?
        .exists(params![whole.0 as i64])?;
    if on_their_way {
        return Ok(());
    }
    db.prepare(
        "UPDATE versions SET goal = NULL,
             copies = (SELECT v.copies FROM versions v WHERE v.id = ?2),
             ec = (SELECT v.ec FROM versions v WHERE v.id = ?2)
         WHERE id = ?1",
    )?
    .execute(params![whole.0 as i64, part.0 as i64])?;
    Ok(())
}
