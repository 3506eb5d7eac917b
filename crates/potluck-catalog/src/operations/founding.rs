//! The catalog of a pool that is being made.

use crate::engine::{self, Database};
use crate::members::{self, authority};
use crate::operations::members::{NewMember, add};
use crate::pool_records::meta;
use crate::{Error, OpenError};
use potluck_core::chunk::Digest;
use potluck_core::ids::MemberId;
use potluck_wire::token::Role;
use std::path::{Path, PathBuf};

/// A catalog that no manager serves yet.
pub struct Founding {
    db: Database,
    path: PathBuf,
}

impl Founding {
    /// Makes an empty catalog at `path` for the pool called `pool`, or opens the one that is there, which must be
    /// sound.
    pub fn begin(path: &Path, pool: &str) -> Result<Self, OpenError> {
        meta::create(path, pool)?;
        Ok(Self { db: engine::open_existing(path)?, path: path.into() })
    }

    /// Returns whether the pool has its authority and its first member.
    pub fn is_founded(&self) -> Result<bool, OpenError> {
        Ok(!members::all(&self.db).map_err(|why| self.failed(why))?.is_empty())
    }

    /// Returns the name of the pool.
    pub fn pool_name(&self) -> Result<String, OpenError> {
        meta::pool_name(&self.db).map_err(|why| self.failed(why))
    }

    /// Notes the pool's authority and makes its first admin. `certify` makes the admin's certificate and returns its
    /// digest.
    pub fn found(
        &self,
        authority: &Digest,
        name: &str,
        joined_wall_ms: i64,
        certify: impl Fn(MemberId) -> Result<Digest, Error>,
    ) -> Result<(), OpenError> {
        let found = || {
            let tx = self.db.begin()?;
            authority::note(&tx, authority)?;
            let admin = NewMember { role: Role::Admin, name, joined_wall_ms, invited_by: None };
            add(&tx, admin, &certify)?;
            tx.commit()
        };
        found().map_err(|why| self.failed(why))
    }

    fn failed(&self, why: Error) -> OpenError {
        OpenError::of(&self.path, why)
    }
}
