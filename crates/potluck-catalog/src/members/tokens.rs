//! Join tokens: they are made here, and checked when they are used.
//!
//! Tokens are in no log, and a restore forgets them all: a copy of the catalog cannot know which of them were used or
//! removed since.

use crate::error::Error;
use crate::members;
use crate::members::stored_member::StoredMember;
use crate::sql::{Row, Tx, params};
use potluck_core::chunk::Digest;
use potluck_core::ids::{Epoch, MemberId};
use potluck_wire::token::Role;

/// The least time in milliseconds for which a token is remembered after it expired.
const REMEMBERED_MS: u64 = 24 * 3600 * 1000;

/// A token as the pool remembers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The number by which people name the token.
    pub id: u32,
    /// The role that the token gives.
    pub role: Role,
    /// The member who made the token.
    pub made_by: MemberId,
    /// The wall time at which the token was made, in milliseconds.
    pub made_wall_ms: i64,
    /// The member who joined with the token; `None` while nobody has.
    pub used_by: Option<MemberId>,
    /// The name that a donor gets who joins with the token, if the inviter fixed it.
    pub name: Option<String>,
    epoch: Epoch,
    expires_ms: u64,
    expires_wall_ms: i64,
}

/// A moment on both clocks that a token's expiry is judged by.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The term of the manager.
    pub epoch: Epoch,
    /// The pool's time in milliseconds.
    pub pool_ms: u64,
    /// The wall time in milliseconds.
    pub wall_ms: i64,
}

/// A token that is to be made.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// The role that the token is to give.
    pub role: Role,
    /// The member who makes the token.
    pub by: MemberId,
    /// The time in milliseconds for which the token can be used.
    pub ttl_ms: u64,
    /// The name that a donor gets who joins with the token, if the inviter fixes it.
    pub name: Option<String>,
}

/// The facts that a token gives about the member who joins with it.
#[derive(Debug, Clone)]
pub struct InvitedMember {
    /// The role that the new member gets.
    pub role: Role,
    /// The member who made the token.
    pub by: MemberId,
    /// The name that the new member gets, if the inviter fixed it.
    pub name: Option<String>,
}

/// A membership and the certificate that proves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certified {
    /// The member that the certificate is for.
    pub member: StoredMember,
    /// The certificate, in DER.
    pub certificate: Vec<u8>,
}

impl Token {
    /// Returns the milliseconds until the token can be used no more.
    ///
    /// The pool's time judges that. It stands still while no manager runs, so a token of an earlier term must also be
    /// good by the wall clock: a wrong clock can then make a token expire early after a restart, and do nothing else.
    pub fn left_ms(&self, now: Moment) -> u64 {
        let left = self.expires_ms.saturating_sub(now.pool_ms);
        let by_wall = self.expires_wall_ms.saturating_sub(now.wall_ms).max(0) as u64;
        if self.epoch == now.epoch { left } else { left.min(by_wall) }
    }
}

const SELECT: &str = "SELECT id, role, made_by, made_wall_ms, used_by, epoch, expires_ms, \
                      expires_wall_ms, name FROM tokens";

fn token(row: &Row<'_>) -> Result<Token, Error> {
    Ok(Token {
        id: row.get(0)?,
        role: members::role(&row.get::<String>(1)?)?,
        made_by: MemberId(row.get(2)?),
        made_wall_ms: row.get(3)?,
        used_by: row.get::<Option<u32>>(4)?.map(MemberId),
        epoch: Epoch(row.get::<i64>(5)? as u64),
        expires_ms: row.get::<i64>(6)? as u64,
        expires_wall_ms: row.get(7)?,
        name: row.get(8)?,
    })
}

/// Returns the hash under which a token is stored. The secret has 256 random bits, so a fast hash is safe.
fn hash(secret: &Digest) -> [u8; 32] {
    blake3::derive_key("potluck 2026-11 join token", &secret.0)
}

/// Adds a token and returns its number. Tokens that expired long ago are forgotten.
pub(crate) fn add(db: &Tx, secret: &Digest, new: NewToken, now: Moment) -> Result<u32, Error> {
    let forgotten = now.pool_ms.saturating_sub(REMEMBERED_MS) as i64;
    db.execute("DELETE FROM tokens WHERE expires_ms < ?1", params![forgotten])?;
    let mut insert = db.prepare(
        "INSERT INTO tokens (hash, role, made_by, made_wall_ms, epoch, expires_ms, expires_wall_ms, name)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    let number = insert.insert(params![
        hash(secret),
        new.role.to_string(),
        new.by.0,
        now.wall_ms,
        now.epoch.0 as i64,
        now.pool_ms.saturating_add(new.ttl_ms) as i64,
        now.wall_ms.saturating_add(new.ttl_ms as i64),
        new.name,
    ])?;
    Ok(number as u32)
}

/// Returns all tokens that are remembered, the oldest first.
pub(crate) fn all(db: &Tx) -> Result<Vec<Token>, Error> {
    let mut rows = db.prepare(&format!("{SELECT} ORDER BY id"))?;
    let tokens = rows.query_map(params![], token)?.collect::<Result<_, _>>()?;
    Ok(tokens)
}

/// Forgets an unused token, so that it cannot be used any more.
///
/// Errors: [`Error::NoToken`], or [`Error::TokenOfMember`] if it was used.
pub(crate) fn remove(db: &Tx, id: u32) -> Result<(), Error> {
    let find = db.prepare(&format!("{SELECT} WHERE id = ?1"))?.query_one(params![id], token);
    let found = find?.ok_or(Error::NoToken(id))?;
    if let Some(member) = found.used_by {
        return Err(Error::TokenOfMember { token: id, member: member.0 });
    }
    db.execute("DELETE FROM tokens WHERE id = ?1", params![id])?;
    Ok(())
}

/// Forgets the tokens that a member made and that nobody used.
pub(crate) fn void_of(db: &Tx, made_by: MemberId) -> Result<(), Error> {
    db.execute("DELETE FROM tokens WHERE made_by = ?1 AND used_by IS NULL", params![made_by.0])?;
    Ok(())
}

/// Returns whether there is a token with this secret, which may be used up or expired.
pub(crate) fn is_known(db: &Tx, secret: &Digest) -> Result<bool, Error> {
    db.prepare("SELECT 1 FROM tokens WHERE hash = ?1")?.exists(params![hash(secret)])
}

/// Uses a token up for the member that `join` makes, whose public key has the digest `key`. Nothing is used up when
/// `join` fails. A member that used the token with that key before, and whose membership has not ended, gets the same
/// answer again until the token expires.
pub(crate) fn use_up(
    db: &Tx,
    secret: &Digest,
    key: &Digest,
    now: Moment,
    join: impl FnOnce(InvitedMember) -> Result<Certified, Error>,
) -> Result<Certified, Error> {
    let hash = hash(secret);
    let find = db.prepare(&format!("{SELECT} WHERE hash = ?1"))?.query_one(params![hash], token);
    let found = find?.ok_or(Error::UnknownToken)?;
    let expired = found.left_ms(now) == 0;
    if let Some(member) = found.used_by {
        let again = if expired { None } else { again(db, member, &hash, key)? };
        return again.ok_or(Error::UsedToken);
    }
    if expired {
        return Err(Error::ExpiredToken);
    }
    let certified = join(InvitedMember { role: found.role, by: found.made_by, name: found.name })?;
    db.execute(
        "UPDATE tokens SET used_by = ?2, key = ?3, certificate = ?4 WHERE hash = ?1",
        params![hash, certified.member.id.0, key.0, certified.certificate],
    )?;
    Ok(certified)
}

fn again(
    db: &Tx,
    member: MemberId,
    hash: &[u8; 32],
    key: &Digest,
) -> Result<Option<Certified>, Error> {
    let certificate: Option<Vec<u8>> = db
        .prepare("SELECT certificate FROM tokens WHERE hash = ?1 AND key = ?2")?
        .query_one(params![hash, key.0], |row| row.get(0))?;
    let member = members::get(db, member)?.filter(|member| !member.revoked);
    Ok(member.zip(certificate).map(|(member, certificate)| Certified { member, certificate }))
}
