//! Operations on write sessions: admission, plans, offers and the end.

pub(crate) mod session_changes;

use crate::chunks::{
    self, UnusedChunk,
    seen_chunks::{self, ChunkAsker, KnownChunk},
};
use crate::members::quotas::QuotaLimits;
use crate::names::{
    dir_policies,
    entries::{self, EntryPlace},
};
use crate::operations::{
    checkpoints::staging, commits::visible::check_condition, history::keeping,
};
use crate::pool_records::{
    sessions::{self, StoredSession},
    spaces::{self, Space, Sums},
};
use crate::sql::Tx;
use crate::versions;
use crate::{Catalog, Durability, Error};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::SessionId;
use potluck_core::path::PoolPath;
use potluck_core::placement::Plan;
use potluck_core::policy::AckLevel;
use potluck_wire::control::{Condition, Held};
use std::sync::Arc;

impl Catalog {
    /// Returns the space that a file or tree at `path` would be written to, with the policy that holds at `path`, or
    /// the error with which the write is bound to fail. The policy at the root of a tree decides how all files of the
    /// session are written; the redundancy of each file follows from its own directory, at the commit.
    ///
    /// So many `bytes` must fit into the quotas, unless a directory is at the path: what a tree replaces in it is known
    /// only at the commit.
    pub async fn admit_write(
        &self,
        path: PoolPath,
        condition: Condition,
        bytes: u64,
    ) -> Result<AdmittedWrite, Error> {
        self.read(move |db| admit_write(db, &path, condition, bytes)).await
    }

    /// Writes a new session down, so that it survives the manager's process. A reservation is refused if its space was
    /// removed meanwhile, and a session if its key was dropped.
    pub async fn open_session(&self, session: StoredSession) -> Result<(), Error> {
        let open = move |db: &_| {
            if let Some(room) = &session.room
                && spaces::numbered(db, session.space)?.is_none()
            {
                return Err(Error::NoSpaceNamed(room.path.space().into()));
            }
            if let Some(key) = session.key {
                let space = spaces::numbered(db, session.space)?;
                let keys = space.and_then(|space| space.keys);
                if keys.is_none_or(|keys| keys.keys.get(key).is_none()) {
                    return Err(Error::KeyChanged);
                }
            }
            session_changes::begin(db, &session)
        };
        self.write(Durability::Process, open).await
    }

    /// Writes down a session's longer plan, for `bytes` in all; quotas count `counted` bytes more for the session.
    pub async fn grow_session(
        &self,
        id: SessionId,
        plan: Plan,
        bytes: u64,
        counted: u64,
    ) -> Result<(), Error> {
        let grow = move |db: &_| session_changes::grow(db, &id, &plan, bytes, counted);
        self.write(Durability::Process, grow).await
    }

    /// Ends a session, so that it commits nothing from now on.
    pub async fn end_session(&self, id: SessionId) -> Result<(), Error> {
        self.write(Durability::Process, move |db| session_changes::end(db, &id)).await
    }

    /// Keeps the names in `new`, which a session has not offered before, from being reclaimed. Then returns what is
    /// known of each of `names`, with the donors that have it at level `ack` or better. A chunk that is reported as
    /// used stays. Of a chunk that `asker` is not to know of, nothing is known.
    ///
    /// The names survive a power cut before any donor is sent one of these chunks: no session would ever claim a copy
    /// that a donor synced and that the catalog does not know.
    pub async fn offer(
        &self,
        id: SessionId,
        new: Vec<ChunkName>,
        names: Arc<Vec<ChunkName>>,
        ack: AckLevel,
        asker: ChunkAsker,
    ) -> Result<Vec<KnownChunk>, Error> {
        if !new.is_empty() {
            self.write(Durability::Disk, move |db| sessions::offer(db, &id, &new)).await?;
        }
        self.look_up_chunks(names, ack, asker).await
    }

    /// Returns what is known of each of `names`, as [`Self::offer`] does.
    pub async fn look_up_chunks(
        &self,
        names: Arc<Vec<ChunkName>>,
        ack: AckLevel,
        asker: ChunkAsker,
    ) -> Result<Vec<KnownChunk>, Error> {
        self.read(move |db| seen_chunks::look_up(db, &names, ack, &asker)).await
    }

    /// Keeps chunks that no file uses for a session, such as those of an interrupted upload, each with its index.
    /// Returns those that are not on their way out already.
    pub async fn keep_unused(
        &self,
        unused: Vec<(u32, UnusedChunk)>,
        now_ms: u64,
    ) -> Result<Vec<Held>, Error> {
        let keep = move |db: &_| {
            let mut held = Vec::with_capacity(unused.len());
            for (index, kept) in &unused {
                if chunks::keep(db, kept, now_ms)? {
                    let donors = kept.donors.clone();
                    held.push(Held { index: *index, donors, unused: true });
                }
            }
            Ok(held)
        };
        self.write(Durability::Process, keep).await
    }
}

/// The terms of a write that is not bound to fail.
#[derive(Debug, Clone)]
pub struct AdmittedWrite {
    /// The space, with the policy that holds at the path.
    pub space: Space,
    /// The quotas that the files come under.
    pub limits: QuotaLimits,
    /// The size of the file that is replaced, 0 if nothing is there or the version that is there is kept; `None` if a
    /// directory is at the path, in which the replaced files are known only at the commit.
    pub replaced: Option<u64>,
}

fn admit_write(
    db: &Tx,
    path: &PoolPath,
    condition: Condition,
    bytes: u64,
) -> Result<AdmittedWrite, Error> {
    if path.space().is_empty() {
        return Err(Error::OutsideSpaces(path.clone()));
    }
    staging::check_writable(db, path, None)?;
    let policy = dir_policies::effective(db, path)?;
    let retention = keeping::retention_of(&policy, path);
    let space = Space { policy, ..spaces::named(db, path.space())? };
    let limits = QuotaLimits::of(db, space.id)?;
    let there = match entries::resolve(db, path)?.map(|found| found.place) {
        // Each file below the directory is replaced on conditions of its own.
        Some(EntryPlace::Dir(_)) => return Ok(AdmittedWrite { space, limits, replaced: None }),
        Some(EntryPlace::File(version)) => Some(version),
        Some(EntryPlace::Link(target)) => {
            return Err(Error::IsALink { path: path.clone(), target });
        }
        None => None,
    };
    check_condition(db, path, condition, there)?;
    let mut change = Sums::default();
    change.add(i64::try_from(bytes).unwrap_or(i64::MAX));
    let mut replaced = 0;
    if let Some(version) = there {
        let dir = entries::existing_dir(db, &entries::split(path)?.0)?;
        if !keeping::stays_when_replaced(db, (dir, path), version, retention)? {
            replaced = versions::data_of(db, version)?;
            change.sub(replaced as i64);
        }
    }
    if change.files > 0 || change.bytes > 0 {
        limits.admit(|_| Sums::default(), change)?;
    }
    Ok(AdmittedWrite { space, limits, replaced: Some(replaced) })
}
