//! Ranges of bytes, each of which has an owner and none of which overlap.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of disjoint byte ranges with their owners. Adjoining ranges of one owner are joined to one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByteRanges<K> {
    /// The end and the owner of each range, by where it begins.
    by_start: BTreeMap<u64, (u64, K)>,
}

impl<K> Default for ByteRanges<K> {
    fn default() -> Self {
        Self { by_start: BTreeMap::new() }
    }
}

impl<K: Copy + PartialEq> ByteRanges<K> {
    /// Returns the number of ranges.
    pub fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Returns whether there is no range.
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Returns the ranges in order, with their owners.
    pub fn iter(&self) -> impl Iterator<Item = (Range<u64>, K)> {
        self.by_start.iter().map(|(start, (end, owner))| (*start..*end, *owner))
    }

    /// Returns the ranges that have bytes in common with `range`, the last one first.
    fn in_common(&self, range: &Range<u64>) -> impl Iterator<Item = (Range<u64>, K)> {
        let from = range.start;
        // An empty range has no byte in common with any.
        let before = self.by_start.range(..range.end.max(from)).rev();
        before
            .map(|(start, (end, owner))| (*start..*end, *owner))
            .take_while(move |(found, _)| found.end > from)
            .filter(move |_| range.end > from)
    }

    /// Returns the first part of `range` that another owner than `owner` has, and that other owner.
    pub fn taken(&self, range: &Range<u64>, owner: K) -> Option<(Range<u64>, K)> {
        let other = self.in_common(range).filter(|(_, found)| *found != owner).last();
        other.map(|(found, other)| (found.start.max(range.start)..found.end.min(range.end), other))
    }

    /// Returns whether every byte of `range` belongs to some owner.
    pub fn covers(&self, range: &Range<u64>) -> bool {
        self.gaps(range).is_empty()
    }

    /// Returns the parts of `range` that belong to no owner, in order.
    pub fn gaps(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut end = range.end;
        for (found, _) in self.in_common(range) {
            if found.end < end {
                gaps.push(found.end..end);
            }
            end = found.start;
        }
        if range.start < end {
            gaps.push(range.start..end);
        }
        gaps.reverse();
        gaps
    }

    /// Gives a range to an owner. No other owner may have a part of it ([`ByteRanges::taken`]).
    pub fn add(&mut self, range: Range<u64>, owner: K) {
        if range.is_empty() {
            return;
        }
        let around = range.start.saturating_sub(1)..range.end.saturating_add(1);
        let own = self.in_common(&around).filter(|(_, found)| *found == owner);
        let own: Vec<Range<u64>> = own.map(|(found, _)| found).collect();
        let (mut start, mut end) = (range.start, range.end);
        for found in own {
            self.by_start.remove(&found.start);
            (start, end) = (start.min(found.start), end.max(found.end));
        }
        self.by_start.insert(start, (end, owner));
    }

    /// Removes all ranges of an owner.
    pub fn remove(&mut self, owner: K) {
        self.by_start.retain(|_, (_, found)| *found != owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_ranges_merge_per_owner() {
        let mut ranges = ByteRanges::default();
        ranges.add(10..20, 'a');
        ranges.add(30..40, 'a');
        ranges.add(20..25, 'b');
        assert_eq!(ranges.len(), 3);
        ranges.add(25..30, 'a');
        assert_eq!(
            ranges.iter().collect::<Vec<_>>(),
            [(10..20, 'a'), (20..25, 'b'), (25..40, 'a')]
        );
        ranges.remove('b');
        ranges.add(15..30, 'a');
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(10..40, 'a')]);
    }

    #[test]
    fn conflicting_ranges_are_clipped_to_the_request() {
        let mut ranges = ByteRanges::default();
        ranges.add(10..20, 'a');
        ranges.add(20..30, 'b');
        assert_eq!(ranges.taken(&(0..10), 'b'), None);
        assert_eq!(ranges.taken(&(5..12), 'b'), Some((10..12, 'a')));
        assert_eq!(ranges.taken(&(12..28), 'a'), Some((20..28, 'b')));
        assert_eq!(ranges.taken(&(15..15), 'b'), None, "nothing is in nobody's way");
        assert_eq!(ranges.gaps(&(0..35)), [0..10, 30..35]);
        assert!(ranges.covers(&(12..28)) && !ranges.covers(&(12..31)));
    }
}
