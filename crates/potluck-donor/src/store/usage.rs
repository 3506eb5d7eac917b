//! How much of the disk Potluck takes, and the promise that it never takes more (DESIGN §7 a, b).

use crate::disk::Space;
use potluck_core::budget::{DiskState, Limits, excess, room};
use std::sync::{Mutex, MutexGuard};

/// File systems give space in blocks. Counting whole blocks keeps the cap by any measure an owner
/// takes: sum of sizes, or `du`.
const BLOCK: u64 = 4096;

/// What a file of `len` bytes takes.
pub fn taken(len: u64) -> u64 {
    len.div_ceil(BLOCK).saturating_mul(BLOCK)
}

/// Counts what is stored, and what is promised to chunks on their way in.
#[derive(Debug)]
pub struct Usage {
    limits: Limits,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Taken by files that are there.
    used: u64,
    /// Promised to files that are being written.
    reserved: u64,
    total: u64,
    /// What the disk had left when last asked.
    available: u64,
    /// How much of that was promised then, or has been since, whether it was written or not.
    owed: u64,
    /// Taken in this life by files whose promise was kept.
    kept: u64,
    /// Why nothing more is taken, ever.
    broken: Option<String>,
}

impl Counts {
    fn state(&self) -> DiskState {
        let lent_used = self.used.saturating_add(self.reserved);
        DiskState {
            total: self.total,
            available: self.available.saturating_sub(self.owed),
            lent_used,
        }
    }

    fn room(&self, limits: &Limits) -> u64 {
        if self.broken.is_some() { 0 } else { room(limits, &self.state()) }
    }
}

/// A moment just before the disk is asked.
#[derive(Debug, Clone, Copy)]
pub struct Asking {
    kept: u64,
}

impl Usage {
    /// Nothing stored yet on a disk that has this `space`.
    pub fn new(limits: Limits, space: Space) -> Self {
        let usage = Self { limits, counts: Mutex::default() };
        usage.sample(usage.asking(), space);
        usage
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().expect("no holder panics")
    }

    /// Promises room for a file of `len` bytes; `None` when there is not enough.
    pub fn reserve(&self, len: u64) -> Option<Reservation<'_>> {
        let bytes = taken(len);
        let mut counts = self.counts();
        if counts.room(&self.limits) < bytes {
            return None;
        }
        counts.reserved += bytes;
        counts.owed += bytes;
        Some(Reservation { usage: self, bytes })
    }

    /// Counts a file of `len` bytes that was there at the start.
    pub fn found(&self, len: u64) {
        self.counts().used += taken(len);
    }

    /// A file of `len` bytes is gone. Whether the disk can use its blocks again is left to the next
    /// [`Usage::sample`].
    pub fn gone(&self, len: u64) {
        let mut counts = self.counts();
        counts.used = counts.used.saturating_sub(taken(len));
    }

    /// The disk is about to be asked.
    pub fn asking(&self) -> Asking {
        Asking { kept: self.counts().kept }
    }

    /// What the disk says, asked after `asking`. How much it has seen of the chunks on their way
    /// in, and of those that arrived since, is unknown, so they count whole.
    pub fn sample(&self, asking: Asking, space: Space) {
        let mut counts = self.counts();
        counts.total = space.total;
        counts.available = space.available;
        counts.owed = counts.reserved + (counts.kept - asking.kept);
    }

    /// Lends another amount.
    #[cfg(test)]
    pub fn lend(&mut self, max: u64) {
        self.limits.max = max;
    }

    /// Bytes that are lent at most.
    pub fn lent(&self) -> u64 {
        self.limits.max
    }

    /// The disk was found full; believed until the next sample.
    pub fn full(&self) {
        self.counts().available = 0;
    }

    /// The disk is broken or gone: nothing more is taken in this life. True when that is news.
    pub fn broke(&self, why: String) -> bool {
        let mut counts = self.counts();
        let news = counts.broken.is_none();
        counts.broken.get_or_insert(why);
        news
    }

    /// Why nothing more is taken, if so.
    pub fn broken(&self) -> Option<String> {
        self.counts().broken.clone()
    }

    /// The disk, and the bytes Potluck may still write.
    pub fn report(&self) -> (DiskState, u64) {
        let counts = self.counts();
        (counts.state(), counts.room(&self.limits))
    }
}

impl Usage {
    /// Bytes that must go for the owner's limits to hold again. What is promised does not count
    /// against the disk: it may be written already, and chunks on their way in must not drive out
    /// others.
    pub fn excess(&self) -> u64 {
        let counts = self.counts();
        if counts.broken.is_some() {
            return 0; // nothing can be removed either
        }
        excess(&self.limits, &DiskState { available: counts.available, ..counts.state() })
    }
}

/// Room promised to one file; given back when dropped before the file is there.
#[derive(Debug)]
pub struct Reservation<'a> {
    usage: &'a Usage,
    bytes: u64,
}

impl Reservation<'_> {
    /// The file is there.
    pub fn keep(mut self) {
        let mut counts = self.usage.counts();
        counts.reserved -= self.bytes;
        counts.used += self.bytes;
        counts.kept += self.bytes;
        self.bytes = 0;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mut counts = self.usage.counts();
            counts.reserved -= self.bytes;
            counts.owed -= self.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::budget::KeepFree;

    fn usage(max: u64, keep: u64, available: u64) -> Usage {
        let limits = Limits { max, keep_free: KeepFree::Bytes(keep) };
        Usage::new(limits, Space { total: 1 << 30, available, read_only: false })
    }

    #[test]
    fn promises_never_add_up_to_more_than_the_cap() {
        let usage = usage(10 * BLOCK, 0, 1 << 29);
        let held = usage.reserve(9 * BLOCK + 1).expect("rounds up to the whole cap");
        assert!(usage.reserve(1).is_none());
        drop(held);
        usage.reserve(4 * BLOCK).expect("given back").keep();
        assert!(usage.reserve(6 * BLOCK + 1).is_none());
        usage.reserve(6 * BLOCK).expect("to the last byte").keep();
        assert_eq!(usage.report().0.lent_used, 10 * BLOCK);
        usage.gone(4 * BLOCK);
        assert_eq!(usage.report().1, 4 * BLOCK);
    }

    #[test]
    fn the_floor_counts_what_was_promised_since_the_disk_was_asked() {
        let usage = usage(1 << 29, 5 * BLOCK, 8 * BLOCK);
        let two = usage.reserve(2 * BLOCK).expect("above the floor");
        assert!(usage.reserve(2 * BLOCK).is_none());
        // The disk has seen none of it: it must not be promised twice.
        let says = |available| Space { total: 1 << 30, available, read_only: false };
        usage.sample(usage.asking(), says(8 * BLOCK));
        assert!(usage.reserve(2 * BLOCK).is_none());
        two.keep();
        usage.sample(usage.asking(), says(4 * BLOCK));
        assert_eq!(usage.report().1, 0, "the owner filled the disk");
    }

    #[test]
    fn s2_the_floor_counts_what_arrived_between_the_question_and_its_answer() {
        let usage = usage(1 << 29, 5 * BLOCK, 8 * BLOCK);
        let asking = usage.asking();
        let space = Space { total: 1 << 30, available: 8 * BLOCK, read_only: false };
        // The answer is from before these were written, and comes late.
        usage.reserve(2 * BLOCK).expect("above the floor").keep();
        let _under_way = usage.reserve(BLOCK).expect("to the floor");
        usage.sample(asking, space);
        assert!(usage.reserve(1).is_none());
        usage.sample(usage.asking(), Space { available: 6 * BLOCK, ..space });
        assert_eq!(usage.report().1, 0, "the disk has seen what is kept, and the rest is promised");
    }

    #[test]
    fn a_broken_disk_has_no_room() {
        let usage = usage(1 << 20, 0, 1 << 20);
        assert!(usage.broke("EIO".into()));
        assert!(!usage.broke("EROFS".into()));
        assert!(usage.reserve(1).is_none());
        assert_eq!((usage.report().1, usage.broken().as_deref()), (0, Some("EIO")));
    }
}
