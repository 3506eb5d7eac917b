//! Write sessions, as far as they must outlive the manager's process.

use super::chunks;
use super::error::Error;
use super::placements;
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{DonorId, MemberId, SessionId, SpaceId};
use potluck_core::placement::Plan;
use potluck_core::policy::{Policy, Redundancy};
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};

/// Names in one row of offers: what one step of accounting handles.
const OFFER_ROW: usize = 4096;

/// A write session as it is kept.
#[derive(Debug, Clone)]
pub struct StoredSession {
    /// Its id.
    pub id: SessionId,
    /// Who opened it.
    pub member: MemberId,
    /// Where it writes.
    pub space: SpaceId,
    /// What holds for its files.
    pub policy: Policy,
    /// The redundancy that its command asked for, whatever directories say.
    pub asked: Option<Redundancy>,
    /// Where it writes to.
    pub plan: Plan,
    /// Stored bytes that it asked for, without redundancy.
    pub bytes: u64,
    /// Whether it has ended.
    pub ended: bool,
}

/// The column `policy`.
#[derive(Serialize, Deserialize)]
struct Terms {
    #[serde(flatten)]
    policy: Policy,
    /// Absent from sessions of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asked: Option<Redundancy>,
}

fn to_json<T: Serialize>(value: &T) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|why| Error::Bug(why.to_string()))
}

fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|why| Error::Damaged(format!("a session: {why}")))
}

/// Keeps a new session.
pub fn insert(db: &Connection, session: &StoredSession) -> Result<(), Error> {
    db.prepare_cached(
        "INSERT INTO sessions (id, member, space, policy, plan, bytes)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        session.id.0,
        session.member.0,
        session.space.0,
        to_json(&Terms { policy: session.policy.clone(), asked: session.asked })?,
        to_json(&session.plan)?,
        session.bytes as i64,
    ])?;
    Ok(())
}

/// Keeps a session's longer plan.
pub fn grow(db: &Connection, id: &SessionId, plan: &Plan, bytes: u64) -> Result<(), Error> {
    db.prepare_cached("UPDATE sessions SET plan = ?2, bytes = ?3 WHERE id = ?1")?
        .execute(params![id.0, to_json(plan)?, bytes as i64])?;
    Ok(())
}

/// All sessions, ended ones included.
pub fn all(db: &Connection) -> Result<Vec<StoredSession>, Error> {
    let mut rows = db.prepare(
        "SELECT id, member, space, policy, plan, bytes, ended FROM sessions ORDER BY id",
    )?;
    let found = rows.query_map([], |row| {
        let stored = (row.get(0)?, row.get(1)?, row.get(2)?, row.get::<_, i64>(5)?, row.get(6)?);
        Ok((stored, row.get::<_, String>(3)?, row.get::<_, String>(4)?))
    })?;
    found
        .map(|row| {
            let ((id, member, space, bytes, ended), terms, plan) = row?;
            let Terms { policy, asked } = from_json(&terms)?;
            Ok(StoredSession {
                id: SessionId(id),
                member: MemberId(member),
                space: SpaceId(space),
                policy,
                asked,
                plan: from_json(&plan)?,
                bytes: bytes as u64,
                ended,
            })
        })
        .collect()
}

/// Whether a session can still commit.
pub fn is_open(db: &Connection, id: &SessionId) -> Result<bool, Error> {
    Ok(db.prepare_cached("SELECT 1 FROM sessions WHERE id = ?1 AND NOT ended")?.exists([id.0])?)
}

/// Ends a session: from now on it commits nothing.
pub fn end(db: &Connection, id: &SessionId) -> Result<(), Error> {
    db.prepare_cached("UPDATE sessions SET ended = 1 WHERE id = ?1")?.execute([id.0])?;
    Ok(())
}

/// Keeps the names that a session may write.
pub fn offer(db: &Connection, id: &SessionId, names: &[ChunkName]) -> Result<(), Error> {
    let mut insert = db.prepare_cached("INSERT INTO offers (session, names) VALUES (?1, ?2)")?;
    for part in names.chunks(OFFER_ROW) {
        let blob: Vec<u8> = part.iter().flat_map(|name| name.0).collect();
        insert.execute(params![id.0, blob])?;
    }
    Ok(())
}

/// All names that a session offered.
pub fn offered(db: &Connection, id: &SessionId) -> Result<Vec<ChunkName>, Error> {
    let mut rows = db.prepare_cached("SELECT names FROM offers WHERE session = ?1 ORDER BY id")?;
    let mut names = Vec::new();
    for blob in rows.query_map([id.0], |row| row.get::<_, Vec<u8>>(0))? {
        names.extend(names_of(&blob?));
    }
    Ok(names)
}

fn names_of(blob: &[u8]) -> impl Iterator<Item = ChunkName> + '_ {
    blob.as_chunks::<32>().0.iter().map(|name| ChunkName(*name))
}

/// Accounts for some of what an ended session offered; `true` when all is accounted for and the
/// session is forgotten.
///
/// A name that no file uses becomes a chunk without references, assumed on each of the session's
/// donors, whoever really received it: garbage collection asks them all (promises D2, D5).
pub fn account(
    db: &Connection,
    id: &SessionId,
    donors: &[DonorId],
    now_ms: u64,
) -> Result<bool, Error> {
    let next: Option<(i64, Vec<u8>)> = db
        .prepare_cached("SELECT id, names FROM offers WHERE session = ?1 ORDER BY id LIMIT 1")?
        .query_row([id.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((row, names)) = next else {
        db.prepare_cached("DELETE FROM sessions WHERE id = ?1")?.execute([id.0])?;
        return Ok(true);
    };
    for name in names_of(&names) {
        let chunk = match chunks::get(db, &name)? {
            Some(found) if found.refs > 0 => continue,
            Some(found) => {
                if found.state == chunks::ChunkState::Gone {
                    db.prepare_cached("UPDATE chunks SET state = 1 WHERE id = ?1")?
                        .execute([found.id.0])?;
                }
                found.id
            }
            None => chunks::insert_unused(db, &name, 0, now_ms)?,
        };
        for donor in donors {
            placements::assume(db, chunk, *donor)?;
        }
    }
    db.prepare_cached("DELETE FROM offers WHERE id = ?1")?.execute([row])?;
    Ok(false)
}
