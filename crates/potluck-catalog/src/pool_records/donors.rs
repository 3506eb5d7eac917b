//! The facts about donors that a restart of the manager must not lose.

use crate::error::Error;
use crate::log::{
    changes::{self, ChangeOp},
    notes,
};
use crate::pool_records::stored_donor::{Goal, StoredDonor};
use crate::sql::{Tx, params};
use potluck_core::ids::{DonorId, VersionId};
use potluck_wire::addresses::Addresses;
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
    located(db, known.donor, &known.addresses)?;
    announce(db, known.donor, known.away_until_ms)?;
    give_back(db, known.donor, known.giving.as_ref())?;
    quarantine(db, known.donor, known.quarantined.as_deref())
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

/// Remembers the addresses at which a donor is reached.
pub(crate) fn located(db: &Tx, donor: DonorId, addresses: &Addresses) -> Result<(), Error> {
    let text = serde_json::to_string(addresses).map_err(|why| Error::Bug(why.to_string()))?;
    db.prepare(
        "INSERT INTO donors (id, addresses) VALUES (?1, ?2)
         ON CONFLICT (id) DO UPDATE SET addresses = excluded.addresses",
    )?
    .execute(params![donor.0, text])?;
    changes::append(db, &ChangeOp::Donor(donor))
}

/// Remembers until when a donor's absence is announced, or with `None` that none is.
pub(crate) fn announce(db: &Tx, donor: DonorId, until_ms: Option<u64>) -> Result<(), Error> {
    db.prepare(
        "INSERT INTO donors (id, away_until_ms) VALUES (?1, ?2)
         ON CONFLICT (id) DO UPDATE SET away_until_ms = excluded.away_until_ms",
    )?
    .execute(params![donor.0, until_ms.map(|ms| ms as i64)])?;
    changes::append(db, &ChangeOp::Donor(donor))
}

/// Remembers a donor's give-back and what may be lost for it, or with `None` that there is none.
pub(crate) fn give_back(db: &Tx, donor: DonorId, goal: Option<&Goal>) -> Result<(), Error> {
    let key = notes::may_lose(donor);
    match goal.map(|goal| &goal.lose).filter(|lose| !lose.is_empty()) {
        Some(lose) => {
            let text = serde_json::to_string(lose).map_err(|why| Error::Bug(why.to_string()))?;
            notes::set(db, &key, &text)?;
        }
        None => notes::clear(db, &key)?,
    }
    db.prepare(
        "INSERT INTO donors (id, start_bytes, at_once) VALUES (?1, ?2, ?3)
         ON CONFLICT (id) DO UPDATE SET
             start_bytes = excluded.start_bytes, at_once = excluded.at_once",
    )?
    .execute(params![
        donor.0,
        goal.map(|goal| goal.start as i64),
        goal.is_some_and(|goal| goal.at_once),
    ])?;
    changes::append(db, &ChangeOp::Donor(donor))
}

/// Remembers why a donor is quarantined, or with `None` that it is not.
pub(crate) fn quarantine(db: &Tx, donor: DonorId, why: Option<&str>) -> Result<(), Error> {
    db.prepare(
        "INSERT INTO donors (id, quarantined) VALUES (?1, ?2)
         ON CONFLICT (id) DO UPDATE SET quarantined = excluded.quarantined",
    )?
    .execute(params![donor.0, why])?;
    changes::append(db, &ChangeOp::Donor(donor))
}
