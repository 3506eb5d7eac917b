//! The facts about donors that a restart of the manager must not lose.

use crate::error::Error;
use crate::pool_records::{
    donor_traffic, notes,
    stored_donor::{Goal, StoredDonor},
};
use crate::sql::{Tx, params};
use potluck_core::ids::{DonorId, VersionId};
use std::ops::RangeInclusive;

/// Reads the facts kept about all donors, in the order of their ids.
pub(crate) fn all(db: &Tx) -> Result<Vec<StoredDonor>, Error> {
    select(db, DonorId(0)..=DonorId(u32::MAX))
}

/// Returns the facts kept about a donor, if there are any.
pub(crate) fn get(db: &Tx, donor: DonorId) -> Result<Option<StoredDonor>, Error> {
    Ok(select(db, donor..=donor)?.pop())
}

/// Remembers all facts about a donor, except when it was heard.
pub(crate) fn put(db: &Tx, known: &StoredDonor) -> Result<(), Error> {
    let StoredDonor { donor, away_until_ms, giving, quarantined, addresses, .. } = known;
    let bug = |why: serde_json::Error| Error::Bug(why.to_string());
    let key = notes::may_lose(*donor);
    match giving.as_ref().map(|goal| &goal.lose).filter(|lose| !lose.is_empty()) {
        Some(lose) => notes::set(db, &key, &serde_json::to_string(lose).map_err(bug)?)?,
        None => notes::clear(db, &key)?,
    }
    db.prepare(
        "INSERT INTO donors (id, away_until_ms, start_bytes, at_once, quarantined, addresses)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (id) DO UPDATE SET away_until_ms = excluded.away_until_ms,
             start_bytes = excluded.start_bytes, at_once = excluded.at_once,
             quarantined = excluded.quarantined, addresses = excluded.addresses",
    )?
    .execute(params![
        donor.0,
        away_until_ms.map(|ms| ms as i64),
        giving.as_ref().map(|goal| goal.start as i64),
        giving.as_ref().is_some_and(|goal| goal.at_once),
        quarantined,
        serde_json::to_string(addresses).map_err(bug)?,
    ])?;
    Ok(())
}

fn select(db: &Tx, ids: RangeInclusive<DonorId>) -> Result<Vec<StoredDonor>, Error> {
    let mut rows = db.prepare(
        "SELECT id, heard_ms, away_until_ms, start_bytes, at_once, quarantined, addresses
         FROM donors WHERE id BETWEEN ?1 AND ?2 ORDER BY id",
    )?;
    let ms = |value: Option<i64>| value.map(|ms| ms as u64);
    let known = rows.query_map(params![ids.start().0, ids.end().0], |row| {
        let at_once = row.get(4)?;
        Ok(StoredDonor {
            donor: DonorId(row.get(0)?),
            heard_ms: ms(row.get(1)?),
            away_until_ms: ms(row.get(2)?),
            giving: ms(row.get(3)?).map(|start| Goal { start, at_once, lose: Vec::new() }),
            quarantined: row.get(5)?,
            // Only this program writes the column, so text that does not parse is as good as no
            // addresses.
            addresses: row
                .get::<Option<String>>(6)?
                .and_then(|text| serde_json::from_str(&text).ok())
                .unwrap_or_default(),
        })
    })?;
    let mut all: Vec<StoredDonor> = known.collect::<Result<_, _>>()?;
    for known in &mut all {
        if let Some(giving) = &mut known.giving {
            giving.lose = agreed(db, known.donor)?;
        }
    }
    Ok(all)
}

/// Returns the versions that may be lost for a donor's give-back.
fn agreed(db: &Tx, donor: DonorId) -> Result<Vec<VersionId>, Error> {
    let Some(noted) = notes::get(db, &notes::may_lose(donor))? else { return Ok(Vec::new()) };
    serde_json::from_str(&noted).map_err(|why| Error::Damaged(format!("what may be lost: {why}")))
}

/// Forgets a donor that was removed from the pool.
pub(crate) fn forget(db: &Tx, donor: DonorId) -> Result<(), Error> {
    notes::clear(db, &notes::may_lose(donor))?;
    donor_traffic::forget(db, donor)?;
    db.execute("DELETE FROM donors WHERE id = ?1", params![donor.0])?;
    Ok(())
}

/// Remembers when donors were heard, except for those that were removed since.
pub(crate) fn heard(db: &Tx, heard: &[(DonorId, u64)]) -> Result<(), Error> {
    let mut upsert = db.prepare(
        "INSERT INTO donors (id, heard_ms) SELECT ?1, ?2
         WHERE NOT EXISTS (SELECT 1 FROM members WHERE id = ?1 AND revoked <> 0)
         ON CONFLICT (id) DO UPDATE SET heard_ms = excluded.heard_ms",
    )?;
    for (donor, ms) in heard {
        upsert.execute(params![donor.0, *ms as i64])?;
    }
    Ok(())
}
