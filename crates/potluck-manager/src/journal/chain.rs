//! Which of the segments that donors have belong together, in which order, and what is missing.

use super::segment::{Header, Part, Position};
use potluck_core::chunk::ChunkName;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A segment that was seen and opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its name.
    pub name: ChunkName,
    /// What it says of itself.
    pub header: Header,
}

/// Segments to be replayed in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    /// The segments.
    pub segments: Vec<Seen>,
    /// What is known to be missing.
    pub gaps: Gaps,
    /// Whether all of the base is there.
    whole_base: bool,
}

/// What is missing of a journal, as far as what is there tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Gaps {
    /// Segments of which no donor that answered has a copy.
    pub missing: u64,
    /// Places where a segment follows another than the one it was written after, as when two
    /// managers ran on copies of one catalog.
    pub broken: u64,
    /// Whether the end of the generation's base is missing: nobody knows how much of it.
    pub base_cut: bool,
}

/// The newest generation whose base is whole, or as good as there is; `None` without any segment.
pub fn newest(seen: Vec<Seen>) -> Option<Chain> {
    let mut generations: BTreeMap<u64, Vec<Seen>> = BTreeMap::new();
    for segment in seen {
        generations.entry(segment.header.generation).or_default().push(segment);
    }
    let chains =
        generations.into_iter().map(|(generation, segments)| follow(generation, None, segments));
    chains.max_by_key(|chain| {
        let last = chain.segments.last();
        let at = last.map(|last| (last.header.epoch, last.header.sequence));
        (chain.whole_base, !chain.gaps.base_cut, at)
    })
}

/// What follows `position` in its generation, and whether there is a later generation.
pub fn after(position: &Position, seen: Vec<Seen>) -> (Chain, bool) {
    let later = seen.iter().any(|segment| segment.header.generation > position.generation);
    let rest = seen.into_iter().filter(|segment| {
        segment.header.generation == position.generation
            && segment.header.sequence > position.sequence
    });
    let mut chain = follow(position.sequence + 1, Some(position.last), rest.collect());
    chain.gaps.base_cut = false; // the checkpoint has it
    (chain, later)
}

/// Puts segments in order, from number `next` on, the first written after `before`.
fn follow(mut next: u64, mut before: Option<ChunkName>, segments: Vec<Seen>) -> Chain {
    let followed: BTreeSet<ChunkName> =
        segments.iter().filter_map(|segment| segment.header.before).collect();
    let mut by_number: BTreeMap<u64, Vec<Seen>> = BTreeMap::new();
    for segment in segments {
        by_number.entry(segment.header.sequence).or_default().push(segment);
    }
    let gaps = Gaps { base_cut: true, ..Gaps::default() };
    let mut chain = Chain { segments: Vec::new(), gaps, whole_base: false };
    for (number, rivals) in by_number {
        let missing = number.saturating_sub(next);
        chain.gaps.missing += missing;
        // A segment that was stored and not committed has a rival of its number with the same
        // changes and more. The one counts that goes on with what was replayed and that others go on
        // with; then the later one.
        let fits = |segment: &Seen| segment.header.before == before;
        let best = rivals.into_iter().max_by_key(|segment| {
            let Header { epoch, wall_ms, .. } = segment.header;
            (fits(segment), followed.contains(&segment.name), epoch, wall_ms)
        });
        let Some(segment) = best else { continue };
        chain.gaps.broken += u64::from(missing == 0 && !fits(&segment));
        if segment.header.part == Part::BaseEnd {
            chain.gaps.base_cut = false;
            chain.whole_base = (chain.gaps.missing, chain.gaps.broken) == (0, 0);
        }
        (next, before) = (number + 1, Some(segment.name));
        chain.segments.push(segment);
    }
    chain
}

#[cfg(test)]
mod tests {
    use super::*;
    use potluck_core::ids::Epoch;

    fn name(sequence: u64, epoch: u64) -> ChunkName {
        ChunkName::of(format!("{sequence}.{epoch}").as_bytes())
    }

    fn segment(sequence: u64, generation: u64, part: Part, epoch: u64) -> Seen {
        let before = (sequence > generation).then(|| name(sequence - 1, epoch));
        let epoch_of = Epoch(epoch);
        let header = Header { sequence, generation, part, before, epoch: epoch_of, wall_ms: 0 };
        Seen { name: name(sequence, epoch), header }
    }

    /// Generation 3 of two base segments and three of changes.
    fn third() -> Vec<Seen> {
        let parts = [Part::Base, Part::BaseEnd, Part::Log, Part::Log, Part::Log];
        (3..).zip(parts).map(|(n, part)| segment(n, 3, part, 1)).collect()
    }

    fn numbers(chain: &Chain) -> Vec<u64> {
        chain.segments.iter().map(|segment| segment.header.sequence).collect()
    }

    #[test]
    fn the_newest_whole_generation_is_taken_in_order_whatever_the_order_of_arrival() {
        let first = [segment(1, 1, Part::BaseEnd, 1), segment(2, 1, Part::Log, 1)];
        let mut seen = [&third()[..], &first].concat();
        seen.reverse();
        let chain = newest(seen.clone()).expect("a chain");
        assert_eq!((numbers(&chain), chain.gaps), (vec![3, 4, 5, 6, 7], Gaps::default()));

        // A base that was being written when the manager died replaces nothing.
        seen.push(segment(8, 8, Part::Base, 1));
        assert_eq!(numbers(&newest(seen).expect("a chain")), [3, 4, 5, 6, 7]);
        assert_eq!(newest(Vec::new()), None);
    }

    #[test]
    fn a_missing_segment_is_seen_and_the_rest_is_taken() {
        let mut seen = third();
        seen.remove(3);
        let chain = newest(seen).expect("a chain");
        assert_eq!(numbers(&chain), [3, 4, 5, 7]);
        assert_eq!(chain.gaps, Gaps { missing: 1, ..Gaps::default() });

        let chain = newest(third().split_off(2)).expect("a chain");
        assert_eq!(chain.gaps, Gaps { missing: 2, broken: 0, base_cut: true });
    }

    #[test]
    fn a_segment_that_follows_another_is_seen() {
        let mut seen = third();
        seen[4].header.before = Some(name(99, 1));
        assert_eq!(newest(seen).expect("a chain").gaps.broken, 1);
    }

    #[test]
    fn of_rivals_the_one_counts_that_was_committed() {
        // One from a copy of the catalog that went on elsewhere.
        let mut seen = third();
        seen.push(segment(6, 3, Part::Log, 2));
        let chain = newest(seen).expect("a chain");
        assert_eq!((chain.gaps, chain.segments[3].name), (Gaps::default(), name(6, 1)));
        // One that was stored and never committed: the next goes on with the other.
        for (at, taken) in [(3, name(6, 1)), (4, ChunkName::of(b"rival"))] {
            let mut seen = third();
            let mut rival = Seen { name: ChunkName::of(b"rival"), ..seen[at].clone() };
            rival.header.wall_ms = 1;
            seen.push(rival);
            let chain = newest(seen).expect("a chain");
            assert_eq!(chain.gaps, Gaps::default());
            assert_eq!(
                chain.segments[at].name, taken,
                "the last may be either; the later has more"
            );
        }
    }

    #[test]
    fn a_newer_generation_with_a_gap_after_its_base_is_better_than_an_older_one() {
        let mut seen = vec![segment(1, 1, Part::BaseEnd, 1), segment(2, 1, Part::Log, 1)];
        seen.extend(third());
        seen.remove(5);
        let chain = newest(seen).expect("a chain");
        assert_eq!((numbers(&chain), chain.gaps.missing), (vec![3, 4, 5, 7], 1));
    }

    #[test]
    fn a_checkpoint_is_gone_on_with_after_its_position() {
        let base = super::super::segment::Extent::default();
        let at = |sequence| Position {
            generation: 3,
            sequence,
            last: name(sequence, 1),
            base,
            log: base,
        };
        let (chain, later) = after(&at(5), third());
        assert_eq!((numbers(&chain), chain.gaps, later), (vec![6, 7], Gaps::default(), false));
        let (chain, _) = after(&at(7), third());
        assert_eq!((numbers(&chain), chain.gaps), (vec![], Gaps::default()));
        let mut seen = third();
        seen.remove(3);
        let (chain, _) = after(&at(5), seen);
        assert_eq!((numbers(&chain), chain.gaps.missing), (vec![7], 1));
        let (chain, later) = after(&at(7), vec![segment(8, 8, Part::BaseEnd, 1)]);
        assert!(chain.segments.is_empty() && later);
    }
}
