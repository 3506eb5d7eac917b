//! Conversions: versions that are being changed to another redundancy.
//!
//! Parity that donors computed for such a version is referenced from the moment at which the catalog knows it, so that
//! garbage collection leaves it alone, also after a restart. When the version is changed, it takes these references
//! over.

use crate::chunks::{
    placements, {self, ReferenceCounts, unpacked},
};
use crate::error::Error;
use crate::sql::{Tx, params};
use crate::versions;
use crate::versions::parts;
use potluck_core::chunk::ChunkName;
use potluck_core::erasure::Ec;
use potluck_core::ids::{DonorId, VersionId};
use potluck_core::policy::{AckLevel, Redundancy};
use potluck_pool::InUseAgain;
use std::collections::BTreeSet;

/// Returns the parity of a version that is known so far for a code, by group.
pub(crate) fn parity_of(
    db: &Tx,
    version: VersionId,
    ec: Ec,
) -> Result<Vec<(u32, Vec<ChunkName>)>, Error> {
    let mut rows = db.prepare(
        "SELECT part, parity FROM conversions WHERE version = ?1 AND ec = ?2 ORDER BY part",
    )?;
    let found = rows.query_map(params![version.0 as i64, ec.to_string()], |row| {
        Ok((row.get(0)?, unpacked(&row.get::<Vec<u8>>(1)?)))
    })?;
    found.collect()
}

/// The parity of one group of a version.
#[derive(Debug, Clone)]
pub struct Encoded {
    /// The version that the group belongs to.
    pub version: VersionId,
    /// The erasure code of the group.
    pub ec: Ec,
    /// The number of the group.
    pub group: u32,
    /// The names of the parity chunks, and their stored bytes.
    pub parity: Vec<(ChunkName, u32)>,
    /// The donors that have all of these parity chunks.
    pub holders: Vec<DonorId>,
}

/// Parity that donors computed, and whether it is believed.
#[derive(Debug, Clone)]
pub enum Computed {
    /// Two donors computed the same parity, or only one could be asked.
    Believed(Encoded),
    /// The parity of one donor alone, or of one of two donors whose results differ: no version takes it.
    Doubtful(Encoded),
}

impl Encoded {
    /// Returns, for each holder, how many of the parity chunks the catalog does not have it down for yet in any state.
    pub(crate) fn uncounted(&self, db: &Tx) -> Result<Vec<(DonorId, u64)>, Error> {
        let mut uncounted: Vec<_> = self.holders.iter().map(|donor| (*donor, 0)).collect();
        for (name, _) in &self.parity {
            let chunk = chunks::get(db, name)?;
            for (donor, count) in &mut uncounted {
                let known = match chunk {
                    Some(chunk) => placements::state_of(db, chunk.id, *donor)?.is_some(),
                    None => false,
                };
                *count += u64::from(!known);
            }
        }
        Ok(uncounted)
    }
}

/// Notes parity that lies on donors and that no version is to have, so that garbage collection finds it.
pub(crate) fn discard(db: &Tx, encoded: &Encoded, now_ms: u64) -> Result<(), Error> {
    let holders: Vec<_> = encoded.holders.iter().map(|donor| (*donor, AckLevel::Memory)).collect();
    let mut counts = ReferenceCounts::new(db, now_ms);
    for (name, len) in &encoded.parity {
        counts.hold(name, *len, &holders)?;
    }
    counts.close().map(drop)
}

/// Returns whether a donor can have computed these chunks: all of them are different, and none is known by another
/// length. Otherwise a donor that is believed alone could spoil what is known of other files' chunks.
fn could_be_parity(
    counts: &mut ReferenceCounts<'_>,
    parity: &[(ChunkName, u32)],
) -> Result<bool, Error> {
    let mut names = BTreeSet::new();
    for (name, len) in parity {
        if !names.insert(*name) || counts.differs(name, *len)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Notes that a group's parity is known, and returns the chunks that were condemned or gone and are in use again.
/// Parity is discarded where no version waits for it, where it is known already, or where it cannot be that of the
/// group.
pub(crate) fn learn(db: &Tx, encoded: &Encoded, now_ms: u64) -> Result<InUseAgain, Error> {
    let goal = serde_json::to_string(&Redundancy::Ec(encoded.ec))
        .map_err(|why| Error::Bug(why.to_string()))?;
    let wanted = db
        .prepare("SELECT 1 FROM versions WHERE id = ?1 AND goal = ?2")?
        .exists(params![encoded.version.0 as i64, goal])?;
    let blob: Vec<u8> = encoded.parity.iter().flat_map(|(name, _)| name.0).collect();
    let mut counts = ReferenceCounts::new(db, now_ms);
    let new = wanted
        && could_be_parity(&mut counts, &encoded.parity)?
        && db
            .prepare(
                "INSERT INTO conversions (version, ec, part, parity) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO NOTHING",
            )?
            .execute(params![
                encoded.version.0 as i64,
                encoded.ec.to_string(),
                encoded.group,
                blob
            ])?
            > 0;
    if !new {
        discard(db, encoded, now_ms)?;
        return Ok(InUseAgain::default());
    }
    let holders: Vec<_> = encoded.holders.iter().map(|donor| (*donor, AckLevel::Disk)).collect();
    for (name, len) in &encoded.parity {
        counts.add(encoded.version, name, *len, &holders)?;
    }
    counts.close()
}

/// Forgets the parity of a version's conversion, and returns its names, whose references the caller ends.
pub(crate) fn forget(db: &Tx, version: VersionId) -> Result<Vec<ChunkName>, Error> {
    let mut rows = db.prepare("SELECT parity FROM conversions WHERE version = ?1")?;
    let mut names = Vec::new();
    for blob in rows.query_map(params![version.0 as i64], |row| row.get::<Vec<u8>>(0))? {
        names.extend(unpacked(&blob?));
    }
    db.prepare("DELETE FROM conversions WHERE version = ?1")?.execute(params![version.0 as i64])?;
    Ok(names)
}

/// Forgets some of the parity of a deleted version's conversion, at least `names` chunks if there are so many. Returns
/// their names, whose references the caller ends.
pub(crate) fn forget_some(
    db: &Tx,
    version: VersionId,
    names: usize,
) -> Result<Vec<ChunkName>, Error> {
    let mut forgotten = Vec::new();
    let mut select = db.prepare(
        "SELECT ec, part, parity FROM conversions WHERE version = ?1 ORDER BY ec, part LIMIT 1",
    )?;
    while forgotten.len() < names {
        let next = select.query_one(params![version.0 as i64], |row| {
            Ok((row.get::<String>(0)?, row.get::<i64>(1)?, row.get::<Vec<u8>>(2)?))
        })?;
        let Some((ec, part, parity)) = next else { break };
        forgotten.extend(unpacked(&parity));
        db.execute(
            "DELETE FROM conversions WHERE version = ?1 AND ec = ?2 AND part = ?3",
            params![version.0 as i64, ec, part],
        )?;
    }
    Ok(forgotten)
}

/// Changes a version that has all that `goal` asks for to that redundancy. Returns `false`, and changes nothing, if
/// the version has another goal by now or the catalog does not know all of its parity.
pub(crate) fn arrive(db: &Tx, id: VersionId, goal: Redundancy, now_ms: u64) -> Result<bool, Error> {
    let there = db
        .prepare("SELECT 1 FROM versions WHERE id = ?1 AND goal IS NOT NULL")?
        .exists(params![id.0 as i64])?;
    if !there {
        return Ok(false);
    }
    let version = versions::get(db, id)?;
    if version.goal != Some(goal) {
        return Ok(false);
    }
    let earlier = versions::parity(db, &version)?;
    let mut counts = ReferenceCounts::new(db, now_ms);
    let (copies, ec, parity) = match goal {
        Redundancy::Copies(copies) => (copies, None, None),
        Redundancy::Ec(ec) => {
            let known: Vec<ChunkName> =
                parity_of(db, id, ec)?.into_iter().flat_map(|(_, parity)| parity).collect();
            if known.len() != ec.group_count(version.chunks as usize) * ec.parity() {
                return Ok(false); // asked for anew meanwhile
            }
            for name in &known {
                let len = chunks::get(db, name)?.map_or(0, |chunk| chunk.len);
                counts.add(id, name, len, &[])?;
            }
            let blob: Vec<u8> = known.iter().flat_map(|name| name.0).collect();
            (1, Some(ec.to_string()), Some(blob))
        }
    };
    counts.release(&forget(db, id)?)?;
    counts.release(&earlier)?;
    db.prepare("UPDATE versions SET copies = ?2, ec = ?3, parity = ?4, goal = NULL WHERE id = ?1")?
        .execute(params![id.0 as i64, copies, ec, parity])?;
    counts.close()?;
    parts::arrived(db, id)?;
    Ok(true)
}

/// Notes that all redundancy of these versions is there since `wall_ms`; an earlier time that is noted stays.
pub(crate) fn safe(db: &Tx, versions: &[VersionId], wall_ms: i64) -> Result<(), Error> {
    let mut update =
        db.prepare("UPDATE versions SET safe_wall_ms = ?2 WHERE id = ?1 AND safe_wall_ms IS NULL")?;
    for version in versions {
        update.execute(params![version.0 as i64, wall_ms])?;
    }
    parts::safety_changed(db, versions)
}

/// Notes that these versions lack some of their redundancy again, and forgets since when it was all there.
pub(crate) fn open(db: &Tx, versions: &[VersionId]) -> Result<(), Error> {
    let mut update = db.prepare("UPDATE versions SET safe_wall_ms = NULL WHERE id = ?1")?;
    for version in versions {
        update.execute(params![version.0 as i64])?;
    }
    parts::safety_changed(db, versions)
}

/// Returns whether one of these versions lacks some of its redundancy, or is to be changed.
pub(crate) fn any_open(
    db: &Tx,
    versions: impl IntoIterator<Item = VersionId>,
) -> Result<bool, Error> {
    let mut select = db.prepare(
        "SELECT 1 FROM versions WHERE id = ?1 AND (safe_wall_ms IS NULL OR goal IS NOT NULL)",
    )?;
    for version in versions {
        if select.exists(params![version.0 as i64])? {
            return Ok(true);
        }
    }
    Ok(false)
}
