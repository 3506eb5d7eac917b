//! The disk usage of the store, and the promise that it never exceeds what the owner lends: each chunk reserves its
//! bytes here before it is written, and is refused if they do not fit. A donor that has more, because its owner lends
//! less than before or others fill the disk, is over quota. The excess is computed here and told by heartbeats, and the
//! pool moves that many bytes to other donors.

use crate::disk::DiskSpace;
use potluck_core::chunk_file::disk_bytes;
use potluck_core::owner_limits::{DiskState, Limits, disk_lacks, excess, room};
use std::sync::{Mutex, MutexGuard};

/// The faults of a disk, from bad to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskTrouble {
    /// A write failed as writes to a broken disk do. Only the owner knows when that is over, and starts the donor
    /// again. (A worse fault that ends clears this one, too.)
    Writing,
    /// The disk is mounted read-only, until it is found writable again.
    ReadOnly,
    /// The lent directory is missing, until it is found again.
    Missing,
}

#[derive(Debug, Clone)]
struct Broken {
    fault: DiskTrouble,
    why: String,
}

/// The counts of the bytes that are stored, and of those that are promised to chunks on their way in.
#[derive(Debug)]
pub struct StoreUsage {
    counts: Mutex<Counts>,
}

#[derive(Debug)]
struct Counts {
    limits: Limits,
    /// The bytes that the store's files take.
    used: u64,
    /// The bytes that are promised to files which are being written.
    reserved: u64,
    total: u64,
    /// The bytes that the disk had left when it was asked last.
    available: u64,
    /// The bytes of promises that were open when the disk was asked last, or were made since. `available` may or may
    /// not include them, so they are subtracted from it.
    owed: u64,
    /// The bytes of all promised files that were completed since the process began.
    kept: u64,
    /// The bytes of files that are being removed.
    removing: u64,
    /// The bytes that were written or removed, or may have been, since the last [`StoreUsage::begin_recount`].
    churn: u64,
    /// The fault of the disk, while it has one: nothing more is stored then.
    broken: Option<Broken>,
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

    fn room(&self) -> u64 {
        if self.broken.is_some() { 0 } else { room(&self.limits, &self.state()) }
    }
}

/// The value of `Counts::kept` just before the disk is asked for its space. Files that were completed since then are
/// not surely in the disk's answer.
#[derive(Debug, Clone, Copy)]
pub struct Asking {
    kept: u64,
}

impl StoreUsage {
    /// Makes the counts of a store on a disk that has this `space`; no file is counted yet.
    pub fn new(limits: Limits, space: DiskSpace) -> Self {
        let counts = Counts {
            limits,
            used: 0,
            reserved: 0,
            total: 0,
            available: 0,
            owed: 0,
            kept: 0,
            removing: 0,
            churn: 0,
            broken: None,
        };
        let usage = Self { counts: Mutex::new(counts) };
        usage.sample(usage.asking(), space);
        usage
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().expect("no holder panics")
    }

    /// Promises room for a file of `len` bytes; returns `None` if there is not enough.
    #[cfg(test)]
    pub fn reserve(&self, len: u64) -> Option<PromisedBytes<'_>> {
        self.reserve_beside(len, 0)
    }

    /// Promises room for a file of `len` bytes; returns `None` if there is not enough, or if less than `left` bytes of
    /// room would be left.
    pub fn reserve_beside(&self, len: u64, left: u64) -> Option<PromisedBytes<'_>> {
        let bytes = disk_bytes(len);
        let mut counts = self.counts();
        if counts.room() < bytes.saturating_add(left) {
            return None;
        }
        counts.reserved += bytes;
        counts.owed += bytes;
        counts.churn += bytes;
        Some(PromisedBytes { usage: self, bytes })
    }

    /// Counts a file of `len` bytes that was found when the store was looked through.
    pub fn found(&self, len: u64) {
        self.counts().used += disk_bytes(len);
    }

    /// Notes that a file of `len` bytes is about to be removed, or moved to where a recount may have looked already: a
    /// recount may miss it from now on.
    pub fn removal(&self, len: u64) -> Removal<'_> {
        let bytes = disk_bytes(len);
        let mut counts = self.counts();
        counts.removing += bytes;
        counts.churn += bytes;
        Removal { usage: self, bytes }
    }

    /// Forgets all files, because the store is about to be looked through again.
    pub fn forget(&self) {
        self.counts().used = 0;
    }

    /// Notes that all files are about to be listed and counted.
    pub fn begin_recount(&self) {
        let mut counts = self.counts();
        counts.churn = counts.reserved + counts.removing;
    }

    /// Notes that all files were listed, and these bytes `found`; returns the number of bytes that were counted and are
    /// not there. Files that came or went meanwhile may have been seen or not and count as there, so that the cap
    /// holds; the next recount settles them.
    pub fn end_recount(&self, found: u64) -> u64 {
        let mut counts = self.counts();
        let vanished = counts.used.saturating_sub(found).saturating_sub(counts.churn);
        counts.used -= vanished;
        vanished
    }

    /// Returns whether no file is on its way in, or being removed.
    pub fn idle(&self) -> bool {
        let counts = self.counts();
        counts.reserved == 0 && counts.removing == 0
    }

    /// Notes that the disk is about to be asked for its space.
    pub fn asking(&self) -> Asking {
        Asking { kept: self.counts().kept }
    }

    /// Takes over the space that the disk reported when it was asked after `asking`. The report may include some bytes
    /// of the chunks on their way in and of those that were completed since, so all their bytes are subtracted from it.
    pub fn sample(&self, asking: Asking, space: DiskSpace) {
        let mut counts = self.counts();
        counts.total = space.total;
        counts.available = space.available;
        counts.owed = counts.reserved + (counts.kept - asking.kept);
    }

    /// Sets the owner's limits.
    pub fn limit(&self, limits: Limits) {
        self.counts().limits = limits;
    }

    /// Returns the limits that the owner set.
    pub fn limits(&self) -> Limits {
        self.counts().limits
    }

    /// Notes that the disk is full, which is believed until the next sample.
    pub fn full(&self) {
        self.counts().available = 0;
    }

    /// Notes a fault of the disk: nothing more is stored. Returns whether that is news; a lesser fault than the present
    /// one is not.
    pub fn broke(&self, fault: DiskTrouble, why: String) -> bool {
        let mut counts = self.counts();
        let news = counts.broken.as_ref().is_none_or(|broken| {
            // The reason why a missing disk does not come back may change; for other faults the first reason is kept.
            broken.fault < fault
                || (broken.fault == fault && fault == DiskTrouble::Missing && broken.why != why)
        });
        if news {
            counts.broken = Some(Broken { fault, why });
        }
        news
    }

    /// Notes that the disk has no fault any more.
    pub fn mended(&self) {
        self.counts().broken = None;
    }

    /// Returns the fault of the disk, if it has one, and what showed it.
    pub fn fault(&self) -> Option<(DiskTrouble, String)> {
        self.counts().broken.as_ref().map(|broken| (broken.fault, broken.why.clone()))
    }

    /// Returns the disk's space, and the number of bytes that Potluck may still write.
    pub fn report(&self) -> (DiskState, u64) {
        let counts = self.counts();
        (counts.state(), counts.room())
    }
}

impl StoreUsage {
    /// Returns the number of bytes that must go for the owner's limits to hold again; 0 while the disk has a fault.
    /// Promised bytes are not subtracted from the disk's free space here: they may be written already, and chunks on
    /// their way in must not drive out others.
    pub fn excess(&self) -> u64 {
        self.beyond(excess)
    }

    /// Returns the number of bytes that the disk has less free than its owner keeps free, at most what Potluck holds; 0
    /// while the disk has a fault.
    pub fn disk_lacks(&self) -> u64 {
        self.beyond(disk_lacks)
    }

    fn beyond(&self, limits: impl Fn(&Limits, &DiskState) -> u64) -> u64 {
        let counts = self.counts();
        if counts.broken.is_some() {
            return 0; // nothing can be removed either
        }
        limits(&counts.limits, &DiskState { available: counts.available, ..counts.state() })
    }
}

/// The room promised to one file; it is given back if this is dropped before [`PromisedBytes::keep`].
#[derive(Debug)]
pub struct PromisedBytes<'a> {
    usage: &'a StoreUsage,
    bytes: u64,
}

impl PromisedBytes<'_> {
    /// Notes that the file is there, so that its room stays taken.
    pub fn keep(mut self) {
        let mut counts = self.usage.counts();
        counts.reserved -= self.bytes;
        counts.used += self.bytes;
        counts.kept += self.bytes;
        self.bytes = 0;
    }
}

impl Drop for PromisedBytes<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mut counts = self.usage.counts();
            counts.reserved -= self.bytes;
            counts.owed -= self.bytes;
        }
    }
}

/// The removal of a file. If it is dropped before it is [`done`](Removal::done), the file stays counted.
#[derive(Debug)]
pub struct Removal<'a> {
    usage: &'a StoreUsage,
    bytes: u64,
}

impl Removal<'_> {
    /// Notes that the file is removed. The next [`StoreUsage::sample`] shows whether the disk has its blocks back.
    pub fn done(self) {
        let mut counts = self.usage.counts();
        counts.used = counts.used.saturating_sub(self.bytes);
    }
}

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        self.usage.counts().removing -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::owner_limits::KeepFree;

    const BLOCK: u64 = 4096;

    fn usage(max: u64, keep: u64, available: u64) -> StoreUsage {
        let limits = Limits { max, keep_free: KeepFree::Bytes(keep) };
        StoreUsage::new(limits, DiskSpace { total: 1 << 30, available, read_only: false })
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
        usage.removal(4 * BLOCK).done();
        assert_eq!(usage.report().1, 4 * BLOCK);
    }

    #[test]
    fn the_floor_counts_what_was_promised_since_the_disk_was_asked() {
        let usage = usage(1 << 29, 5 * BLOCK, 8 * BLOCK);
        let two = usage.reserve(2 * BLOCK).expect("above the floor");
        assert!(usage.reserve(2 * BLOCK).is_none());
        // The disk's report includes nothing of what was promised, which must not be promised twice.
        let says = |available| DiskSpace { total: 1 << 30, available, read_only: false };
        usage.sample(usage.asking(), says(8 * BLOCK));
        assert!(usage.reserve(2 * BLOCK).is_none());
        two.keep();
        usage.sample(usage.asking(), says(4 * BLOCK));
        assert_eq!(usage.report().1, 0, "the owner filled the disk");
    }

    #[test]
    fn keep_free_floor_counts_concurrent_arrivals_s2() {
        let usage = usage(1 << 29, 5 * BLOCK, 8 * BLOCK);
        let asking = usage.asking();
        let space = DiskSpace { total: 1 << 30, available: 8 * BLOCK, read_only: false };
        // The answer is from before these two were written, and comes late.
        usage.reserve(2 * BLOCK).expect("above the floor").keep();
        let _under_way = usage.reserve(BLOCK).expect("to the floor");
        usage.sample(asking, space);
        assert!(usage.reserve(1).is_none());
        usage.sample(usage.asking(), DiskSpace { available: 6 * BLOCK, ..space });
        assert_eq!(usage.report().1, 0, "the disk has seen what is kept, and the rest is promised");
    }

    #[test]
    fn a_broken_disk_has_no_room() {
        let usage = usage(1 << 20, 0, 1 << 20);
        assert!(usage.broke(DiskTrouble::Writing, "EIO".into()));
        assert!(!usage.broke(DiskTrouble::Writing, "EROFS".into()));
        assert!(usage.reserve(1).is_none());
        assert_eq!(
            (usage.report().1, usage.fault()),
            (0, Some((DiskTrouble::Writing, "EIO".into())))
        );
        assert!(usage.broke(DiskTrouble::Missing, "no marker".into()), "worse");
        assert!(!usage.broke(DiskTrouble::Writing, "ENOENT".into()));
        usage.mended();
        assert_eq!((usage.fault(), usage.reserve(1).is_some()), (None, true));
    }

    #[test]
    fn files_are_not_counted_anew_while_one_comes_or_goes() {
        let usage = usage(10 * BLOCK, 0, 1 << 29);
        usage.found(BLOCK);
        let arriving = usage.reserve(BLOCK).expect("room");
        assert!(!usage.idle());
        drop(arriving);
        let removal = usage.removal(BLOCK);
        // The file may be gone already: it would be missed by the count, and taken off it once more.
        assert!(!usage.idle());
        removal.done();
        assert!(usage.idle());
    }

    #[test]
    fn a_recount_finds_what_vanished_and_never_takes_off_too_much() {
        let usage = usage(100 * BLOCK, 0, 1 << 29);
        (0..10).for_each(|_| usage.found(BLOCK));
        usage.begin_recount();
        assert_eq!(usage.end_recount(7 * BLOCK), 3 * BLOCK);
        assert_eq!(usage.report().0.lent_used, 7 * BLOCK);
        // One chunk arrives and may be listed already; another is being removed and may not be.
        let arriving = usage.reserve(BLOCK).expect("room");
        usage.begin_recount();
        let removal = usage.removal(BLOCK);
        arriving.keep();
        assert_eq!(usage.end_recount(6 * BLOCK), 0);
        removal.done();
        assert_eq!(usage.report().0.lent_used, 7 * BLOCK);
        // A removal that began before the recount counts in the same way.
        let removal = usage.removal(BLOCK);
        usage.begin_recount();
        assert_eq!(usage.end_recount(6 * BLOCK), 0);
        removal.done();
        assert_eq!(usage.report().0.lent_used, 6 * BLOCK);
        // A chunk that could not be removed is still there.
        drop(usage.removal(BLOCK));
        usage.begin_recount();
        assert_eq!(usage.end_recount(5 * BLOCK), BLOCK, "and nothing is left of that");
    }
}
