//! How much the pool has and has left, as `df` shows it.

use super::FileSystem;
use crate::errno::errno;
use crate::inodes::ROOT;
use potluck_wire::control::Status;
use rustix::io::Errno;

/// Bytes that the pool has and has left, as its policy stores them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Bytes that could be stored if nothing were.
    pub total: u64,
    /// Bytes that can still be stored.
    pub free: u64,
}

impl FileSystem {
    /// What the pool has and has left for files of the directory's policy, a donor's room counted as if the rest of
    /// the donors had as much.
    pub async fn capacity(&self) -> Result<Capacity, Errno> {
        let status = self.pool.call(&Status {}).await.map_err(|failure| errno(&failure))?;
        let root = self.inodes().path(ROOT)?;
        let (shards, data) = match root.space().is_empty() {
            true => (1, 1),
            false => {
                let policy = self.pool.stat(&root).await.map_err(|failure| errno(&failure))?.policy;
                match policy.ec {
                    Some(ec) => (ec.width(), ec.data()),
                    None => (policy.copies as usize, 1),
                }
            }
        };
        let rooms: Vec<u64> =
            status.donors.iter().map(|donor| donor.room.saturating_sub(donor.promised)).collect();
        let used: u64 = status.donors.iter().map(|donor| donor.used).sum();
        let reserved: u64 = match root.space().is_empty() {
            true => 0,
            false => self.reservations_of(&root).await?.iter().map(|it| it.left).sum(),
        };
        // Rooms are without what was promised to anybody.
        let free = storable(&rooms, shards, data) + reserved;
        Ok(Capacity { total: free + used / shards as u64 * data as u64, free })
    }
}

/// Bytes that fit where each group has `shards` shards on donors of their own, `data` of them data.
fn storable(rooms: &[u64], shards: usize, data: usize) -> u64 {
    let (mut fits, mut too_much) = (0, rooms.iter().sum::<u64>() + 1);
    while too_much - fits > 1 {
        let shard = fits + (too_much - fits) / 2;
        let takes: u128 = rooms.iter().map(|room| u128::from(*room.min(&shard))).sum();
        match takes >= u128::from(shard) * shards as u128 {
            true => fits = shard,
            false => too_much = shard,
        }
    }
    fits.saturating_mul(data as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_bounded_by_the_donors_that_each_group_needs() {
        assert_eq!(storable(&[100, 100], 1, 1), 200);
        assert_eq!(storable(&[100, 100], 2, 1), 100);
        assert_eq!(storable(&[1000, 10], 2, 1), 10);
        assert_eq!(storable(&[30, 30, 30], 3, 2), 60);
        assert_eq!(storable(&[30, 30], 3, 2), 0);
        assert_eq!(storable(&[], 1, 1), 0);
    }
}
