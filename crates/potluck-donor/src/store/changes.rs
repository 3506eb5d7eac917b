//! The changes of the store that the manager has not confirmed yet.

use potluck_core::chunk::ChunkName;
use potluck_wire::control::Arrived;
use potluck_wire::packed::Packed;
use std::collections::{BTreeMap, VecDeque};

/// The most changes that are remembered one by one; beyond it the whole inventory is sent instead.
const MOST: usize = 100_000;
/// The most changes in one heartbeat.
const BATCH: usize = 16_384;

/// One change to what is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldChange {
    /// The chunk was stored.
    Added(Arrived),
    /// The chunk was deleted, or found missing.
    Removed(ChunkName),
    /// The chunk was found spoiled and is quarantined.
    Spoiled(ChunkName),
    /// The chunk could not be read, and is quarantined until it can.
    Unreadable(ChunkName),
    /// The chunk was looked at and is sound.
    Sound(ChunkName),
}

impl HeldChange {
    /// Returns the place of the change in the order in which a manager applies the lists of one heartbeat.
    fn rank(&self) -> u8 {
        match self {
            Self::Removed(_) => 0,
            Self::Spoiled(_) | Self::Unreadable(_) => 1,
            Self::Added(_) => 2,
            Self::Sound(_) => 3,
        }
    }

    fn name(&self) -> ChunkName {
        match self {
            Self::Added(arrived) => arrived.holding.name,
            Self::Removed(name)
            | Self::Spoiled(name)
            | Self::Unreadable(name)
            | Self::Sound(name) => *name,
        }
    }
}

/// The changes in the order they happened, until a heartbeat that carried them is answered.
#[derive(Debug, Default)]
pub struct HeldChanges {
    waiting: VecDeque<HeldChange>,
    overflowed: bool,
    /// The number of batches that were confirmed or given up.
    over: u64,
    /// The number of changes, counted from the oldest, in the batch that is not confirmed; `None` without such a batch.
    sent: Option<usize>,
}

/// The changes that one heartbeat carries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangeBatch {
    /// The number of the batch, which it keeps until it is confirmed.
    pub number: u64,
    /// True if no other change waits.
    pub is_all: bool,
    /// The number of changes in this batch, which are the oldest.
    pub count: usize,
    /// Chunks that were stored.
    pub added: Packed<Arrived>,
    /// Chunks that were deleted, or found missing.
    pub removed: Packed<ChunkName>,
    /// Chunks that were found spoiled and are quarantined.
    pub spoiled: Packed<ChunkName>,
    /// Chunks that could not be read and are quarantined.
    pub unreadable: Packed<ChunkName>,
    /// Chunks that were looked at and are sound.
    pub sound: Packed<ChunkName>,
}

impl HeldChanges {
    /// Remembers a change until the manager has confirmed it. When there are too many, all are forgotten, and the
    /// manager needs the whole inventory.
    pub fn push(&mut self, change: HeldChange) {
        if self.waiting.len() >= MOST {
            self.forget();
        }
        if !self.overflowed {
            self.waiting.push_back(change);
        }
    }

    /// Returns the oldest changes. The manager applies a heartbeat's lists in a fixed order, so changes of one name
    /// against that order go in two heartbeats; a chunk that was deleted and stored again fits one, and is never
    /// missing to the manager. A batch keeps its changes until it is confirmed or given up, for the manager may have
    /// it.
    pub fn batch(&mut self) -> ChangeBatch {
        let mut batch = ChangeBatch { number: self.over + 1, ..ChangeBatch::default() };
        let mut seen = BTreeMap::new();
        for change in self.waiting.iter().take(self.sent.unwrap_or(BATCH)) {
            let last = seen.entry(change.name()).or_insert(change.rank());
            if change.rank() < *last {
                break;
            }
            *last = change.rank();
            batch.count += 1;
            match change {
                HeldChange::Added(arrived) => batch.added.0.push(*arrived),
                HeldChange::Removed(name) => batch.removed.0.push(*name),
                HeldChange::Spoiled(name) => batch.spoiled.0.push(*name),
                HeldChange::Unreadable(name) => batch.unreadable.0.push(*name),
                HeldChange::Sound(name) => batch.sound.0.push(*name),
            }
        }
        batch.is_all = batch.count == self.waiting.len();
        self.sent = (batch.count > 0).then_some(batch.count);
        batch
    }

    /// Notes that the manager has the batch of this number; a batch that was given up is ignored.
    pub fn confirm(&mut self, number: u64) {
        if number == self.over + 1
            && let Some(count) = self.sent.take()
        {
            self.waiting.drain(..count);
            self.over = number;
        }
    }

    /// Forgets all changes, which may not hold any more: the manager needs the whole inventory.
    pub fn forget(&mut self) {
        *self = Self { overflowed: true, over: self.over + 1, ..Self::default() };
    }

    /// Returns whether changes were forgotten, so that the manager needs the whole inventory.
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Forgets all changes, for an inventory is about to be sent.
    pub fn restart(&mut self) {
        *self = Self { over: self.over + 1, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_wire::control::Holding;

    fn name(number: u32) -> ChunkName {
        ChunkName::of(&number.to_le_bytes())
    }

    fn added(number: u32) -> HeldChange {
        HeldChange::Added(Holding { name: name(number), len: 1 }.into())
    }

    #[test]
    fn heartbeat_lists_are_consistent_in_any_order() {
        let mut changes = HeldChanges::default();
        for change in [added(1), added(2), HeldChange::Removed(name(1)), added(1)] {
            changes.push(change);
        }
        let first = changes.batch();
        assert_eq!((first.count, first.added.0.len(), first.removed.0.len()), (2, 2, 0));
        assert!(!first.is_all, "what was made by then may be among the others");
        assert_eq!(changes.batch(), first, "kept until confirmed");
        changes.confirm(first.number);
        let second = changes.batch();
        let removed = second.removed.0.as_slice();
        assert_eq!((second.count, removed, second.added.0.len()), (2, &[name(1)][..], 1));
        changes.confirm(second.number);
        let none = ChangeBatch { number: 3, is_all: true, ..ChangeBatch::default() };
        assert_eq!(changes.batch(), none);
    }

    #[test]
    fn resent_change_batch_is_identical_to_the_first() {
        let mut changes = HeldChanges::default();
        assert_eq!(changes.batch().number, 1);
        changes.push(added(1));
        let sent = changes.batch();
        assert_eq!((sent.number, sent.count, sent.is_all), (1, 1, true));
        changes.push(added(2));
        let again = changes.batch();
        assert_eq!((again.number, &again.added, again.is_all), (1, &sent.added, false));
        changes.confirm(1);
        let next = changes.batch();
        assert_eq!((next.number, next.count, next.is_all), (2, 1, true));
        assert_ne!(next.added, sent.added);
        // The answer to a batch that was given up meanwhile confirms nothing.
        changes.restart();
        changes.push(added(3));
        assert_eq!(changes.batch().number, 3);
        changes.confirm(2);
        assert_eq!(changes.batch().count, 1);
    }

    #[test]
    fn too_much_to_remember_asks_for_an_inventory() {
        let mut changes = HeldChanges::default();
        (0..MOST as u32).for_each(|number| changes.push(added(number)));
        assert!(!changes.overflowed());
        changes.push(added(0));
        assert!(changes.overflowed() && changes.batch().count == 0);
        changes.restart();
        changes.push(added(1));
        assert_eq!(changes.batch().count, 1);
    }
}
