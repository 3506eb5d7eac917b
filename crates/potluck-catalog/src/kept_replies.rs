//! Replies to calls that make files visible, which are kept to be repeated when they were lost on the way.
//!
//! A client may choose the id of its command, and ids of write sessions are no secrets: they cross the network in plain
//! tickets. So a reply belongs to the member who made the call and to the kind of the call besides. Otherwise a member
//! could have another's call answered by a reply of their own choice, or be told what another's call was told.

use crate::Error;
use crate::sql::{Tx, params};
use potluck_core::ids::{MemberId, SessionId};

/// A kind of call whose replies are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepeatableCall {
    /// The commit of a write session; the id is that of the session.
    Commit,
    /// A copy inside the pool; the client drew the id.
    Copy,
}

impl RepeatableCall {
    fn number(self) -> i64 {
        match self {
            Self::Commit => 0,
            Self::Copy => 1,
        }
    }
}

/// A row of calls, whose replies are kept under their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepliesTo {
    /// The member who makes the calls.
    pub member: MemberId,
    /// The kind of the calls.
    pub call: RepeatableCall,
    /// The id that the calls name.
    pub id: SessionId,
}

/// The position of a commit among those of its session. A call for many files is committed in several steps, each in
/// a transaction of its own, so that none holds the catalog's writer for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitStep {
    /// The number of the call in its session, from 0.
    pub batch: u32,
    /// The number of the step in its call, from 0.
    pub step: u32,
}

impl CommitStep {
    fn row(self) -> i64 {
        i64::from(self.batch) << 32 | i64::from(self.step)
    }
}

impl From<u32> for CommitStep {
    /// Returns the position of the only step of a call.
    fn from(batch: u32) -> Self {
        Self { batch, step: 0 }
    }
}

impl RepliesTo {
    /// Returns the reply that was given to a step before.
    pub(crate) fn find(&self, db: &Tx, step: CommitStep) -> Result<Option<String>, Error> {
        db.prepare(
            "SELECT reply FROM kept_replies WHERE id = ?1 AND member = ?2 AND call = ?3 AND step = ?4",
        )?
        .query_one(params![self.id.0, self.member.0, self.call.number(), step.row()], |row| {
            row.get(0)
        })
    }

    /// Returns the replies to those steps of a call that were done before, in order.
    pub(crate) fn all_steps(&self, db: &Tx, batch: u32) -> Result<Vec<String>, Error> {
        let (first, last) = (CommitStep { batch, step: 0 }, CommitStep { batch, step: u32::MAX });
        db.prepare(
            "SELECT reply FROM kept_replies
             WHERE id = ?1 AND member = ?2 AND call = ?3 AND step BETWEEN ?4 AND ?5 ORDER BY step",
        )?
        .query_map(
            params![self.id.0, self.member.0, self.call.number(), first.row(), last.row()],
            |row| row.get(0),
        )?
        .collect()
    }

    /// Keeps the reply to a step that is done at `at_ms`.
    pub(crate) fn keep(
        &self,
        db: &Tx,
        step: CommitStep,
        at_ms: u64,
        reply: String,
    ) -> Result<(), Error> {
        db.prepare(
            "INSERT INTO kept_replies (id, member, call, step, at_ms, reply)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            self.id.0,
            self.member.0,
            self.call.number(),
            step.row(),
            at_ms as i64,
            reply
        ])?;
        Ok(())
    }
}

/// Forgets at most `limit` replies that were given before `before_ms`, for which no client asks any more. Returns
/// whether there may be more.
pub(crate) fn prune(db: &Tx, before_ms: u64, limit: usize) -> Result<bool, Error> {
    let forgotten = db.execute(
        "DELETE FROM kept_replies WHERE (id, member, call, step) IN (
             SELECT id, member, call, step FROM kept_replies WHERE at_ms < ?1 ORDER BY at_ms LIMIT ?2)",
        params![before_ms as i64, limit as i64],
    )?;
    Ok(forgotten == limit)
}
