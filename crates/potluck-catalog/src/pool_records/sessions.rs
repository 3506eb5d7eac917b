//! Write sessions, which outlive the manager's process.

use crate::chunks;
use crate::error::Error;
use crate::sql::{Row, Tx, params};
use crate::versions::parts;
use potluck_core::chunk::ChunkName;
use potluck_core::ids::{KeyNumber, MemberId, SessionId, SpaceId};
use potluck_core::placement::Plan;
use potluck_core::policy::{AskedPolicy, Policy};
use potluck_core::reserved_room::ReservedRoom;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The most names in one row of offers, which one step of accounting handles.
const OFFER_ROW: usize = 1024;

/// A write session as it is kept.
#[derive(Debug, Clone)]
pub struct StoredSession {
    /// The id of the session.
    pub id: SessionId,
    /// The member who opened the session.
    pub member: MemberId,
    /// The space in which the session writes.
    pub space: SpaceId,
    /// The policy of the session's files.
    pub policy: Policy,
    /// The requirements of the session's command, whatever directories say.
    pub asked: AskedPolicy,
    /// The donors that the session writes to.
    pub plan: Plan,
    /// The stored bytes that the session asked for, without redundancy.
    pub bytes: u64,
    /// True once the session has ended.
    pub ended: bool,
    /// The room that the session reserves, if it is a reservation.
    pub room: Option<ReservedRoom>,
    /// The reservation from which the session takes its room, if any.
    pub draws_on: Option<SessionId>,
    /// The bytes of the session's files that are not visible yet, which quotas count as if the files were there.
    pub counted: u64,
    /// The number of the key that seals the session's files, in a sealed space.
    pub key: Option<KeyNumber>,
}

/// The JSON in the column `policy` of a session's row.
#[derive(Serialize, Deserialize)]
struct Terms {
    #[serde(flatten)]
    policy: Policy,
    asked: AskedPolicy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    room: Option<ReservedRoom>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    draws_on: Option<SessionId>,
}

fn to_json<T: Serialize>(value: &T) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|why| Error::Bug(why.to_string()))
}

fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|why| Error::Damaged(format!("a session: {why}")))
}

/// Keeps a new session.
pub(crate) fn insert(db: &Tx, session: &StoredSession) -> Result<(), Error> {
    db.prepare(
        "INSERT INTO sessions (id, member, space, policy, plan, bytes, counted, key)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        session.id.0,
        session.member.0,
        session.space.0,
        to_json(&Terms {
            policy: session.policy.clone(),
            asked: session.asked,
            room: session.room.clone(),
            draws_on: session.draws_on,
        })?,
        to_json(&session.plan)?,
        session.bytes as i64,
        session.counted as i64,
        session.key.map(|key| key.0),
    ])?;
    Ok(())
}

/// Keeps a session's longer plan and the stored bytes asked for by now; `counted` more bytes count in quotas.
pub(crate) fn grow(
    db: &Tx,
    id: &SessionId,
    plan: &Plan,
    bytes: u64,
    counted: u64,
) -> Result<(), Error> {
    db.prepare("UPDATE sessions SET plan = ?2, bytes = ?3, counted = counted + ?4 WHERE id = ?1")?
        .execute(params![id.0, to_json(plan)?, bytes as i64, counted as i64])?;
    Ok(())
}

/// Notes that so many more bytes of a session's files are visible, which quotas count as those of files from now on.
pub(crate) fn visible(db: &Tx, id: &SessionId, bytes: u64) -> Result<(), Error> {
    if bytes == 0 {
        return Ok(());
    }
    db.prepare("UPDATE sessions SET counted = max(counted - ?2, 0) WHERE id = ?1")?
        .execute(params![id.0, i64::try_from(bytes).unwrap_or(i64::MAX)])?;
    Ok(())
}

const COLUMNS: &str = "SELECT id, member, space, policy, plan, bytes, ended, counted, key
     FROM sessions";

fn session(row: &Row<'_>) -> Result<StoredSession, Error> {
    let Terms { policy, asked, room, draws_on } = from_json(&row.get::<String>(3)?)?;
    Ok(StoredSession {
        id: SessionId(row.get(0)?),
        member: MemberId(row.get(1)?),
        space: SpaceId(row.get(2)?),
        policy,
        asked,
        plan: from_json(&row.get::<String>(4)?)?,
        bytes: row.get::<i64>(5)? as u64,
        ended: row.get(6)?,
        room,
        draws_on,
        counted: row.get::<i64>(7)? as u64,
        key: row.get::<Option<u32>>(8)?.map(KeyNumber),
    })
}

/// Reads all sessions, ended ones included.
pub(crate) fn all(db: &Tx) -> Result<Vec<StoredSession>, Error> {
    db.prepare(&format!("{COLUMNS} ORDER BY id"))?.query_map(params![], session)?.collect()
}

/// Returns the sessions of a space, also those that have ended.
pub(crate) fn in_space(db: &Tx, space: SpaceId) -> Result<Vec<StoredSession>, Error> {
    db.prepare(&format!("{COLUMNS} WHERE space = ?1"))?
        .query_map(params![space.0], session)?
        .collect()
}

/// Returns the session with this id, also if it has ended.
pub(crate) fn get(db: &Tx, id: &SessionId) -> Result<Option<StoredSession>, Error> {
    db.prepare(&format!("{COLUMNS} WHERE id = ?1"))?.query_one(params![id.0], session)
}

/// Returns whether a session can still commit.
pub(crate) fn is_open(db: &Tx, id: &SessionId) -> Result<bool, Error> {
    db.prepare("SELECT 1 FROM sessions WHERE id = ?1 AND ended = 0")?.exists(params![id.0])
}

/// Returns the number of the key that seals the files of a session; `None` in a plain space.
pub(crate) fn key_of(db: &Tx, id: &SessionId) -> Result<Option<KeyNumber>, Error> {
    let mut select = db.prepare("SELECT key FROM sessions WHERE id = ?1")?;
    let key = select.query_one(params![id.0], |row| row.get::<Option<u32>>(0))?;
    Ok(key.flatten().map(KeyNumber))
}

/// Ends a session: from now on it commits nothing, and the parts of files that are not visible belong to no file.
pub(crate) fn end(db: &Tx, id: &SessionId) -> Result<(), Error> {
    db.prepare("UPDATE sessions SET ended = 1 WHERE id = ?1")?.execute(params![id.0])?;
    parts::abandon(db, id)
}

/// Keeps the names that a session may write.
pub(crate) fn offer(db: &Tx, id: &SessionId, names: &[ChunkName]) -> Result<(), Error> {
    let mut insert = db.prepare("INSERT INTO offers (session, names) VALUES (?1, ?2)")?;
    for part in names.chunks(OFFER_ROW) {
        insert.execute(params![id.0, chunks::packed(part)])?;
    }
    Ok(())
}

/// The number of rows of offers in which [`withdraw`] looks for names that are in use now: chunks are committed in
/// about the order in which they were offered.
const LOOKED_THROUGH: usize = 64;

/// Forgets those of a session's first offers that are in use now.
pub(crate) fn withdraw(db: &Tx, id: &SessionId, in_use: &BTreeSet<ChunkName>) -> Result<(), Error> {
    let mut select =
        db.prepare("SELECT id, names FROM offers WHERE session = ?1 ORDER BY id LIMIT ?2")?;
    let rows = select.query_map(params![id.0, LOOKED_THROUGH as i64], |row| {
        Ok((row.get::<i64>(0)?, row.get::<Vec<u8>>(1)?))
    })?;
    for (row, names) in rows.collect::<Result<Vec<_>, _>>()? {
        let mut names = chunks::unpacked(&names);
        let before = names.len();
        names.retain(|name| !in_use.contains(name));
        if names.is_empty() {
            db.execute("DELETE FROM offers WHERE id = ?1", params![row])?;
        } else if names.len() < before {
            let left = chunks::packed(&names);
            db.execute("UPDATE offers SET names = ?2 WHERE id = ?1", params![row, left])?;
        }
    }
    Ok(())
}

/// Reads the names that a session offered and that were not withdrawn.
pub(crate) fn offered(db: &Tx, id: &SessionId) -> Result<Vec<ChunkName>, Error> {
    let mut rows = db.prepare("SELECT names FROM offers WHERE session = ?1 ORDER BY id")?;
    let mut names = Vec::new();
    for blob in rows.query_map(params![id.0], |row| row.get::<Vec<u8>>(0))? {
        names.extend(chunks::unpacked(&blob?));
    }
    Ok(names)
}

/// Accounts for some of the names that an ended session offered. Returns `true` when all are accounted for, and the
/// session is forgotten.
///
/// A name that the catalog does not know becomes a chunk without references, unused since `unused_since_ms`. No
/// placement is noted for it: donors tell what they hold, and rows for all donors to which the chunk may have been sent
/// would be as many as names times donors, hardly any of them true.
pub(crate) fn account(db: &Tx, id: &SessionId, unused_since_ms: u64) -> Result<bool, Error> {
    let next: Option<(i64, Vec<u8>)> = db
        .prepare("SELECT id, names FROM offers WHERE session = ?1 ORDER BY id LIMIT 1")?
        .query_one(params![id.0], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let Some((row, names)) = next else {
        db.prepare("DELETE FROM sessions WHERE id = ?1")?.execute(params![id.0])?;
        return Ok(true);
    };
    for name in chunks::unpacked(&names) {
        match chunks::get(db, &name)? {
            Some(found) if found.refs == 0 && found.state == chunks::ChunkState::Gone => {
                db.prepare("UPDATE chunks SET state = 1 WHERE id = ?1")?
                    .execute(params![found.id])?;
            }
            Some(_) => {}
            None => {
                chunks::insert_unused(db, &name, 0, unused_since_ms)?;
            }
        }
    }
    db.prepare("DELETE FROM offers WHERE id = ?1")?.execute(params![row])?;
    Ok(false)
}
