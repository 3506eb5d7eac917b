//! The capacity of the pool and the room that is left, as `df` shows them.

use super::FileSystem;
use crate::draft::Draft;
use crate::errno::errno;
use crate::known_capacities::{Capacity, KnownCapacities};
use potluck_core::path::PoolPath;
use potluck_core::quota::QuotaOf;
use potluck_wire::control::{QuotaList, Status};
use rustix::io::Errno;
use std::sync::MutexGuard;
use std::time::Duration;

/// The time that a program that writes waits at most for the manager to tell the quota, and as long for the room.
const MOST_ASKED: Duration = Duration::from_secs(1);

/// A quota in bytes of files, and the bytes of it that are used.
#[derive(Debug, Clone, Copy)]
struct BytesQuota {
    most: u64,
    used: u64,
}

impl Capacity {
    /// Returns this capacity as limited by a quota, too, in which what is `reserved` for other directories counts as if
    /// it were used.
    fn within(self, quota: Option<BytesQuota>, reserved: u64) -> Self {
        let Some(BytesQuota { most, used }) = quota else { return self };
        let used = used.saturating_add(reserved);
        let free = self.free.min(most.saturating_sub(used));
        Self { total: free.saturating_add(used), free }
    }
}

impl FileSystem {
    fn capacities(&self) -> MutexGuard<'_, KnownCapacities> {
        self.capacities.lock().expect("no holder panics")
    }

    /// Notes that this mount changed what the pool holds, or has room for.
    pub(super) fn capacities_changed(&self) {
        self.capacities().changed();
    }

    /// Returns the capacity and the room for files by the policy of a directory, or of the directory that an entry is
    /// in. Both may be a second old.
    pub async fn capacity(&self, inode: u64) -> Result<Capacity, Errno> {
        let dir = {
            let inodes = self.inodes();
            inodes.path(inodes.directory_of(inode))?
        };
        let asked = self.pool.now();
        let (known, changes) = {
            let mut capacities = self.capacities();
            (capacities.get(&dir, asked), capacities.changes())
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let capacity = self.capacity_of(&dir).await?;
        self.capacities().put(dir, capacity, asked, changes);
        Ok(capacity)
    }

    /// Asks the manager for the capacity and the room for files by a directory's policy, which a quota of the space limits
    /// further.
    async fn capacity_of(&self, dir: &PoolPath) -> Result<Capacity, Errno> {
        let (capacity, reserved) = self.capacity_of_donors(dir).await?;
        match dir.space() {
            "" => Ok(capacity),
            space => Ok(capacity.within(self.quota_of(space).await?, reserved)),
        }
    }

    /// Asks the manager for the capacity and the room for files by a directory's policy, whose room is what the manager
    /// would promise to writers. For the root of the pool the bytes of donors count as they are. Returns also the bytes
    /// of the space that are reserved for other directories.
    async fn capacity_of_donors(&self, dir: &PoolPath) -> Result<(Capacity, u64), Errno> {
        let status = self.pool.call(&Status {}).await.map_err(|failure| errno(&failure))?;
        let used: u64 = status.donors.iter().map(|donor| donor.used).sum();
        let rooms = status.donors.iter().map(|donor| donor.room.saturating_sub(donor.promised));
        let free = rooms.sum();
        if dir.space().is_empty() {
            return Ok((Capacity { total: free + used, free }, 0));
        }
        let stated = self.pool.stat_room(dir).await.map_err(|failure| errno(&failure))?;
        let (shards, data) = match stated.policy.ec {
            Some(ec) => (ec.width() as u64, ec.data() as u64),
            None => (stated.policy.copies.into(), 1),
        };
        let of_files = |stored: u64| stored / shards * data;
        let reserved = self.reserved_for(dir).await?;
        // The manager leaves out all promised bytes, so the bytes that are reserved for this directory are added. One of
        // an earlier version tells no room.
        let free = stated.free.unwrap_or_else(|| of_files(free)) + reserved.here;
        Ok((Capacity { total: free + of_files(used), free }, reserved.elsewhere))
    }

    /// Checks a draft that is to be at `path`, of which `spooled` bytes wait on this machine. If donors have room for
    /// less, these are stored now, so that the program hears now whether they fit: donors may have some of them already.
    ///
    /// Errors: [`Errno::DQUOT`]; those of [`Draft::sync`]; the error of the first write that failed.
    pub(super) async fn check_room(
        &self,
        path: &PoolPath,
        draft: &mut Draft,
        spooled: u64,
    ) -> Result<(), Errno> {
        if let Some(why) = draft.failure() {
            return Err(why);
        }
        let mut checked = self.check_quota(path, draft.size() - draft.holes()).await;
        if checked.is_ok() && self.is_room_short(path, spooled).await {
            checked = draft.sync(path).await;
        }
        if checked.is_err() {
            draft.is_refused();
        }
        checked
    }

    /// Returns whether donors have room for less than so many bytes of a file at `path`; false if that is not known
    /// within [`MOST_ASKED`].
    async fn is_room_short(&self, path: &PoolPath, bytes: u64) -> bool {
        let Some(dir) = path.parent() else { return false };
        let asked = tokio::time::timeout(MOST_ASKED, self.capacity_of_donors(&dir)).await;
        asked.is_ok_and(|found| found.is_ok_and(|(capacity, _)| capacity.free < bytes))
    }

    /// Refuses a file at `path` with `data` bytes that are in no hole if the manager would refuse to publish it because of the quota of the
    /// space. A file that becomes no larger is never refused. If the manager does not answer within [`MOST_ASKED`], or
    /// fails, the file is not refused here.
    ///
    /// Errors: [`Errno::DQUOT`].
    async fn check_quota(&self, path: &PoolPath, data: u64) -> Result<(), Errno> {
        let quota = tokio::time::timeout(MOST_ASKED, async {
            let quota = self.quota_of(path.space()).await.ok()??;
            let replaced = self.stat(path).await.map_or(0, |entry| entry.data());
            Some((quota, replaced))
        });
        match quota.await {
            Ok(Some((BytesQuota { most, used }, replaced))) => {
                let after = used.saturating_add(data).saturating_sub(replaced);
                match data > replaced && after > most {
                    true => Err(Errno::DQUOT),
                    false => Ok(()),
                }
            }
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Returns the quota of a space in bytes of files, if it has one.
    async fn quota_of(&self, space: &str) -> Result<Option<BytesQuota>, Errno> {
        let listed = self.pool.call(&QuotaList {}).await.map_err(|failure| errno(&failure))?;
        let of = QuotaOf::Space(space.to_owned());
        let found = listed.quotas.into_iter().find(|quota| quota.of == of);
        Ok(found.and_then(|it| Some(BytesQuota { most: it.quota.bytes?, used: it.bytes })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_leaves_at_most_what_donors_have_room_for() {
        let pool = Capacity { total: 1000, free: 600 };
        let within = |most, used| pool.within(Some(BytesQuota { most, used }), 0);
        assert_eq!(pool.within(None, 30), pool);
        assert_eq!(within(100, 30), Capacity { total: 100, free: 70 });
        assert_eq!(within(5000, 30), Capacity { total: 630, free: 600 }, "donors have less room");
        assert_eq!(within(100, 130), Capacity { total: 130, free: 0 }, "a quota that was lowered");
        let beside = pool.within(Some(BytesQuota { most: 100, used: 30 }), 60);
        assert_eq!(beside, Capacity { total: 100, free: 10 }, "what is reserved elsewhere counts");
    }
}
