//! The traffic of donors, as far as it is known: their rates, and what they moved in the last hours and days. It is no part of
//! the log, for a pool that lost it measures it again.

use crate::error::Error;
use crate::sql::{Tx, params};
use potluck_core::ids::DonorId;
use potluck_pool::SavedTraffic;

/// Remembers the traffic of donors, except for those that were removed since.
pub(crate) fn save(db: &Tx, traffic: &[(DonorId, SavedTraffic)]) -> Result<(), Error> {
    let mut upsert = db.prepare(
        "INSERT INTO donor_traffic (donor, traffic) SELECT ?1, ?2
         WHERE NOT EXISTS (SELECT 1 FROM members WHERE id = ?1 AND revoked <> 0)
         ON CONFLICT (donor) DO UPDATE SET traffic = excluded.traffic",
    )?;
    for (donor, traffic) in traffic {
        let text = serde_json::to_string(traffic).map_err(|why| Error::Bug(why.to_string()))?;
        upsert.execute(params![donor.0, text])?;
    }
    Ok(())
}

/// Returns the traffic of all donors of which some is known.
pub(crate) fn all(db: &Tx) -> Result<Vec<(DonorId, SavedTraffic)>, Error> {
    let mut rows = db.prepare("SELECT donor, traffic FROM donor_traffic ORDER BY donor")?;
    let rows =
        rows.query_map(params![], |row| Ok((DonorId(row.get(0)?), row.get::<String>(1)?)))?;
    let rows: Vec<(DonorId, String)> = rows.collect::<Result<_, _>>()?;
    // Text that does not parse is of another release, and is measured again.
    let parsed =
        rows.into_iter().map(|(donor, text)| Some((donor, serde_json::from_str(&text).ok()?)));
    Ok(parsed.flatten().collect())
}

/// Forgets the traffic of a donor that was removed.
pub(crate) fn forget(db: &Tx, donor: DonorId) -> Result<(), Error> {
    db.execute("DELETE FROM donor_traffic WHERE donor = ?1", params![donor.0])?;
    Ok(())
}
