//! Access keys, by which gateways act on behalf of members.
//!
//! As with tokens, they are in no log, and a restore forgets them all: a copy of the catalog cannot know which of them
//! were removed since.

use crate::error::Error;
use crate::members::tokens::Moment;
use crate::sql::{Row, Tx, params};
use potluck_core::ids::{Epoch, MemberId};
use potluck_core::rights::Rights;
use std::collections::BTreeSet;

/// The most access keys that one member may have.
pub const MOST_KEYS: u64 = 100;

/// An access key as the pool keeps it.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessKey {
    /// The identifier of the key, which is no secret.
    pub id: String,
    /// The secret that requests are signed with.
    pub secret: String,
    /// The member on whose behalf gateways act by the key.
    pub member: MemberId,
    /// The names of the spaces in which the key can be used.
    pub spaces: BTreeSet<String>,
    /// The most that the key allows.
    pub rights: Rights,
    /// True if gateways may be given the keys of sealed spaces.
    pub unseals: bool,
    /// The text by which the member knows the key.
    pub label: String,
    /// The wall time at which the key was made, in milliseconds.
    pub made_wall_ms: i64,
    /// The end of the key's life.
    pub end: KeyEnd,
}

impl std::fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The end of an access key's life, on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyEnd {
    epoch: Epoch,
    pool_ms: u64,
    wall_ms: i64,
}

impl KeyEnd {
    /// Returns the end of a life of `ttl_ms` milliseconds that begins `now`.
    pub fn after(ttl_ms: u64, now: Moment) -> Self {
        Self {
            epoch: now.epoch,
            pool_ms: now.pool_ms.saturating_add(ttl_ms),
            wall_ms: now.wall_ms.saturating_add_unsigned(ttl_ms),
        }
    }

    /// Returns the milliseconds until the key can be used no more, judged as [`Token::left_ms`](crate::Token::left_ms)
    /// is.
    pub fn left_ms(&self, now: Moment) -> u64 {
        let left = self.pool_ms.saturating_sub(now.pool_ms);
        let by_wall = self.wall_ms.saturating_sub(now.wall_ms).max(0) as u64;
        if self.epoch == now.epoch { left } else { left.min(by_wall) }
    }
}

fn access_key(row: &Row<'_>) -> Result<AccessKey, Error> {
    let spaces: String = row.get(3)?;
    let damaged = |what: &str| Error::Damaged(format!("the {what} of an access key"));
    Ok(AccessKey {
        id: row.get(0)?,
        secret: row.get(1)?,
        member: MemberId(row.get(2)?),
        spaces: serde_json::from_str(&spaces).map_err(|_| damaged("spaces"))?,
        rights: Rights::from_number(row.get(4)?).ok_or_else(|| damaged("rights"))?,
        unseals: row.get(5)?,
        label: row.get(6)?,
        made_wall_ms: row.get(7)?,
        end: KeyEnd {
            epoch: Epoch(row.get::<i64>(8)? as u64),
            pool_ms: row.get::<i64>(9)? as u64,
            wall_ms: row.get(10)?,
        },
    })
}

/// Adds a key. The member's keys that have ended are forgotten.
///
/// Errors: [`Error::TooManyKeys`].
pub(crate) fn add(db: &Tx, key: &AccessKey, now: Moment) -> Result<(), Error> {
    let of_member = all(db)?.into_iter().filter(|it| it.member == key.member);
    let (live, ended): (Vec<_>, Vec<_>) = of_member.partition(|it| it.end.left_ms(now) > 0);
    for ended in ended {
        remove(db, &ended.id)?;
    }
    if live.len() as u64 >= MOST_KEYS {
        return Err(Error::TooManyKeys { most: MOST_KEYS });
    }
    let spaces = serde_json::to_string(&key.spaces).map_err(|why| Error::Bug(why.to_string()))?;
    db.prepare(
        "INSERT INTO access_keys (id, secret, member, spaces, rights, unseals, label, made_wall_ms,
             epoch, expires_ms, expires_wall_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?
    .execute(params![
        key.id,
        key.secret,
        key.member.0,
        spaces,
        key.rights.to_number(),
        key.unseals,
        key.label,
        key.made_wall_ms,
        key.end.epoch.0 as i64,
        key.end.pool_ms as i64,
        key.end.wall_ms,
    ])?;
    Ok(())
}

/// Returns all keys, the oldest first.
pub(crate) fn all(db: &Tx) -> Result<Vec<AccessKey>, Error> {
    let mut rows = db.prepare(
        "SELECT id, secret, member, spaces, rights, unseals, label, made_wall_ms, epoch, expires_ms, expires_wall_ms
         FROM access_keys ORDER BY made_wall_ms, id",
    )?;
    let keys = rows.query_map(params![], access_key)?.collect::<Result<_, _>>()?;
    Ok(keys)
}

/// Forgets a key, if it is there.
pub(crate) fn remove(db: &Tx, id: &str) -> Result<(), Error> {
    db.prepare("DELETE FROM access_keys WHERE id = ?1")?.execute(params![id])?;
    Ok(())
}

/// Forgets all keys of a member.
pub(crate) fn void_of(db: &Tx, member: MemberId) -> Result<(), Error> {
    db.prepare("DELETE FROM access_keys WHERE member = ?1")?.execute(params![member.0])?;
    Ok(())
}
