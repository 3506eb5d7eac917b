//! A catalog that is made anew from the records of a log.

pub(crate) mod replay;

use crate::engine::{self, Database};
use crate::log::{
    records::Record,
    restored::{self, RestoredContent},
};
use crate::members::{self, authority};
use crate::operations::{self, members::NewMember};
use crate::pool_records::{meta, notes};
use crate::rebuild::replay::Replay;
use crate::{Error, OpenError};
use potluck_core::chunk::Digest;
use potluck_core::ids::{Epoch, MemberId};
use potluck_wire::token::Role;
use std::path::{Path, PathBuf};

/// A catalog that is being rebuilt from records.
pub struct Rebuild {
    path: PathBuf,
    db: Database,
    replay: Replay,
}

/// The facts that turn a rebuilt catalog into that of a pool which can be served again.
pub struct Revival<'a> {
    /// The reason of the GC freeze that the catalog begins with.
    pub why: &'a str,
    /// True if another log may have changes that this one lacks: the log of the new catalog counts less than that one
    /// until an admin ends the freeze.
    pub may_lack: bool,
    /// The epoch that the rebuilt catalog's epoch is to be later than.
    pub above: Epoch,
    /// The fingerprint of the pool's authority.
    pub authority: Digest,
    /// The name of the new admin. The rights of admins of this name that earlier restores made end.
    pub admin: &'a str,
    /// The wall time at which the admin is made, in milliseconds.
    pub wall_ms: i64,
}

impl Rebuild {
    /// Begins an empty catalog of the pool called `pool` at `path`, where none is.
    pub fn begin(path: &Path, pool: &str) -> Result<Self, OpenError> {
        meta::create(path, pool)?;
        let db = engine::open_existing(path)?;
        // Nothing needs to be synced: a rebuild that a crash interrupts is begun anew, and the restore makes the file
        // durable before it makes a pool of it.
        db.never_sync().map_err(|why| OpenError::of(path, why))?;
        Ok(Self { path: path.into(), db, replay: Replay::default() })
    }

    /// Applies records, all or none. Those that do not fit are counted and left out.
    ///
    /// Errors: a record cannot be read, or the catalog cannot be written.
    pub fn apply<E: std::error::Error>(
        &mut self,
        records: impl Iterator<Item = Result<Record, E>>,
    ) -> Result<(), Error> {
        let tx = self.db.begin()?;
        for record in records {
            let record = record.map_err(|why| Error::Damaged(why.to_string()))?;
            self.replay.apply(&tx, record)?;
        }
        tx.commit()
    }

    /// Ends the rebuilding, and checks the whole catalog. `certify` makes the new admin's certificate and returns its
    /// fingerprint. Returns what the catalog holds, and how many records were left out.
    pub fn finish(
        self,
        revival: &Revival<'_>,
        certify: impl Fn(MemberId) -> Result<Digest, Error>,
    ) -> Result<(RestoredContent, u64), OpenError> {
        let Self { path, db, replay } = self;
        let bad = |why: Error| OpenError::of(&path, why);
        let left_out = replay.finish(&db).map_err(bad)?;
        db.close().map_err(bad)?;
        let db = engine::open_whole(&path)?;
        let content = revive(&db, revival, certify).map_err(bad)?;
        db.close().map_err(bad)?;
        Ok((content, left_out))
    }
}

fn revive(
    db: &Database,
    revival: &Revival<'_>,
    certify: impl Fn(MemberId) -> Result<Digest, Error>,
) -> Result<RestoredContent, Error> {
    let tx = db.begin()?;
    restored::settle(&tx, revival.why)?;
    if revival.may_lack {
        notes::set(&tx, notes::MAY_LACK, revival.why)?;
    }
    for member in members::all(&tx)? {
        let by_a_restore = member.invited_by.is_none() && member.name == revival.admin;
        if member.role == Role::Admin && by_a_restore && !member.revoked {
            operations::members::end(&tx, member)?;
        }
    }
    meta::raise_epoch(&tx, revival.above)?;
    authority::note(&tx, &revival.authority)?;
    let (name, joined_wall_ms) = (revival.admin, revival.wall_ms);
    let admin = NewMember { role: Role::Admin, name, joined_wall_ms, invited_by: None };
    operations::members::add(&tx, admin, certify)?;
    let content = restored::content(&tx)?;
    tx.commit()?;
    Ok(content)
}
