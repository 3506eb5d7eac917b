//! The locks that programs of this machine have on one file, range by range.

use potluck_wire::control::LockLevel;

/// The number of ranges of one file at which no lock is added, and none is split by unlocking its middle, so that a
/// program that locks or unlocks single bytes does not fill the memory of the daemon.
const MOST_RANGES: usize = 16_384;

/// A lock that a program has or wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeLock {
    /// The owner of the lock as the kernel names it: a process, or for flock() an open file.
    pub owner: u64,
    /// The number of the process, which is told to programs that ask who has the lock.
    pub pid: u32,
    /// The first byte of the range.
    pub start: u64,
    /// The last byte of the range.
    pub end: u64,
    /// The level: shared for readers, or exclusive for a writer.
    pub level: LockLevel,
}

impl RangeLock {
    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.start <= end && start <= self.end
    }
}

/// The error for a lock, or for unlocking the middle of one, on a file that has too many ranges already.
#[derive(Debug, PartialEq, Eq)]
pub struct TooManyRanges;

/// All locks on one file. Those of one owner do not overlap.
#[derive(Debug, Default)]
pub struct RangeLocks(Vec<RangeLock>);

impl RangeLocks {
    /// Returns a lock of another owner that conflicts with a wanted one.
    pub fn conflict(&self, wanted: &RangeLock) -> Option<RangeLock> {
        let others = self.0.iter().filter(|lock| lock.owner != wanted.owner);
        let mut near = others.filter(|lock| lock.overlaps(wanted.start, wanted.end));
        near.find(|lock| !lock.level.goes_with(wanted.level)).copied()
    }

    /// Adds a lock that conflicts with no other, in the place of the locks that its owner had in its range.
    pub fn add(&mut self, lock: RangeLock) -> Result<(), TooManyRanges> {
        if self.0.len() >= MOST_RANGES {
            return Err(TooManyRanges);
        }
        self.remove(lock.owner, lock.start, lock.end)?;
        // Locks that adjoin become one, so that a program that goes through a file byte by byte has one lock.
        let mut lock = lock;
        self.0.retain(|other| {
            let is_like = other.owner == lock.owner && other.level == lock.level;
            let touches = other.end.checked_add(1) == Some(lock.start)
                || lock.end.checked_add(1) == Some(other.start);
            if is_like && touches {
                (lock.start, lock.end) = (lock.start.min(other.start), lock.end.max(other.end));
            }
            !(is_like && touches)
        });
        self.0.push(lock);
        Ok(())
    }

    /// Removes the locks of an owner in a range.
    pub fn remove(&mut self, owner: u64, start: u64, end: u64) -> Result<(), TooManyRanges> {
        let splits = |lock: &RangeLock| lock.owner == owner && lock.start < start && end < lock.end;
        if self.0.len() >= MOST_RANGES && self.0.iter().any(splits) {
            return Err(TooManyRanges);
        }
        let mut left = Vec::new();
        self.0.retain(|lock| {
            if lock.owner != owner || !lock.overlaps(start, end) {
                return true;
            }
            if lock.start < start {
                left.push(RangeLock { end: start - 1, ..*lock });
            }
            if lock.end > end {
                left.push(RangeLock { start: end + 1, ..*lock });
            }
            false
        });
        self.0.extend(left);
        Ok(())
    }

    /// Removes all locks of an owner; returns whether there were any.
    pub fn remove_owner(&mut self, owner: u64) -> bool {
        let before = self.0.len();
        self.0.retain(|lock| lock.owner != owner);
        self.0.len() < before
    }

    /// Removes all locks.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns all owners of locks, each once.
    pub fn owners(&self) -> Vec<u64> {
        let mut owners: Vec<u64> = self.0.iter().map(|lock| lock.owner).collect();
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// Returns whether an owner has a lock.
    pub fn has_owner(&self, owner: u64) -> bool {
        self.0.iter().any(|lock| lock.owner == owner)
    }

    /// Returns whether another owner has an exclusive lock.
    pub fn is_written_by_another(&self, owner: u64) -> bool {
        self.0.iter().any(|lock| lock.owner != owner && lock.level == LockLevel::Exclusive)
    }

    /// Returns the highest level of all locks; `None` if there is no lock.
    pub fn level(&self) -> Option<LockLevel> {
        self.0.iter().map(|lock| lock.level).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LockLevel::{Exclusive, Shared};

    fn lock(owner: u64, start: u64, end: u64, level: LockLevel) -> RangeLock {
        RangeLock { owner, pid: owner as u32, start, end, level }
    }

    #[test]
    fn lock_ranges_conflict_unless_shared_and_own_are_replaced() {
        let mut locks = RangeLocks::default();
        locks.add(lock(1, 0, 99, Shared)).expect("few");
        locks.add(lock(2, 50, 149, Shared)).expect("few");
        assert_eq!(locks.conflict(&lock(3, 0, 10, Shared)), None);
        assert_eq!(locks.conflict(&lock(3, 149, 149, Exclusive)), Some(lock(2, 50, 149, Shared)));
        assert_eq!(locks.conflict(&lock(3, 150, u64::MAX, Exclusive)), None);
        assert_eq!(locks.conflict(&lock(1, 0, 49, Exclusive)), None, "its own is no obstacle");
        locks.add(lock(1, 10, 19, Exclusive)).expect("few");
        assert_eq!(locks.conflict(&lock(3, 0, 9, Shared)), None, "what is left of it is shared");
        assert_eq!(locks.conflict(&lock(3, 19, 19, Shared)), Some(lock(1, 10, 19, Exclusive)));
        assert_eq!(locks.level(), Some(Exclusive));
        locks.remove(1, 15, 200).expect("few");
        assert_eq!(locks.conflict(&lock(3, 15, 49, Exclusive)), None);
        assert!(locks.conflict(&lock(3, 14, 14, Shared)).is_some());
        assert!(locks.remove_owner(1) && !locks.remove_owner(1));
        assert_eq!(locks.level(), Some(Shared));
    }

    #[test]
    fn adjacent_lock_ranges_merge_and_are_bounded() {
        let mut locks = RangeLocks::default();
        for at in 0..1000 {
            locks.add(lock(1, at, at, Exclusive)).expect("one");
        }
        assert_eq!(locks.0, [lock(1, 0, 999, Exclusive)]);
        for at in 0..MOST_RANGES as u64 - 1 {
            locks.add(lock(2, 10_000 + 2 * at, 10_000 + 2 * at, Shared)).expect("not too many");
        }
        assert_eq!(locks.add(lock(2, 0, 0, Shared)), Err(TooManyRanges));
        assert_eq!(locks.remove(1, 500, 500), Err(TooManyRanges), "it would split a range");
        assert!(locks.has_owner(1) && locks.0.len() == MOST_RANGES);
        locks.remove(1, 500, 2000).expect("the range becomes shorter");
        locks.remove(2, 10_000, 10_000).expect("a whole range");
        assert_eq!(locks.0.len(), MOST_RANGES - 1);
        locks.remove(1, 5, 5).expect("there is room for one more");
    }
}
