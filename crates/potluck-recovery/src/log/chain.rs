//! Finds which of the blocks that donors have belong together, in which order, and what is missing.

use super::block::{BlockPart, Header};
use potluck_core::chunk::ChunkName;
use potluck_core::ids::Epoch;
use serde::{Serialize, Serializer};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::str::FromStr;

/// A block that was fetched and opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenBlock {
    /// The name of the block.
    pub name: ChunkName,
    /// The header of the block.
    pub header: Header,
}

/// A chain of blocks to be replayed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    /// The blocks, in the order in which they are to be replayed.
    pub blocks: Vec<SeenBlock>,
    /// The gaps that are known.
    pub gaps: Gaps,
    /// True if all of the base is there.
    pub whole_base: bool,
}

/// The gaps of a log, as far as the blocks that are there tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Gaps {
    /// The number of blocks of which no donor that answered has a copy.
    pub missing: u64,
    /// The number of places where a block follows a block other than the one it was written after, as when two managers
    /// ran on copies of one catalog.
    pub broken: u64,
    /// True if the end of the generation's base is missing; how much is missing is unknown.
    pub base_cut: bool,
    /// True if the manager that wrote the base may itself have lacked changes, and no admin had accepted its catalog: it
    /// was restored from a log with gaps or from a file, or its catalog was older than one that ran before.
    pub inherited: bool,
}

/// The write to which a block belongs, by epoch and attempt: a later write wins.
type Write = (Epoch, u64);

fn write_of(block: &SeenBlock) -> Write {
    (block.header.epoch, block.header.attempt)
}

/// The name of a chain, by which people choose one: the number of its first block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChainId(u64);

/// The numbers of generations that begin in one epoch.
const EPOCH: u64 = 1 << 32;

impl fmt::Display for ChainId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / EPOCH, self.0 % EPOCH)
    }
}

impl FromStr for ChainId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (epoch, number) = text.split_once('.')?;
            let (epoch, number): (u32, u32) = (epoch.parse().ok()?, number.parse().ok()?);
            Some(Self(u64::from(epoch) * EPOCH + u64::from(number)))
        };
        parse().ok_or("a chain is named by two numbers, such as 3.1")
    }
}

impl Serialize for ChainId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A chain that was found, as people are told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FoundChain {
    /// The name of the chain.
    pub chain: ChainId,
    /// The time at which its base was written, in milliseconds since 1970.
    pub from_ms: i64,
    /// The time at which its last block was written, in milliseconds since 1970.
    pub until_ms: i64,
    /// The number of files that the catalog had then.
    pub files: u64,
    /// The gaps that are known.
    #[serde(flatten)]
    pub gaps: Gaps,
    /// True if this is the chain that was replayed.
    pub taken: bool,
}

impl Chain {
    /// Returns the name of the chain; `None` without any block.
    pub fn id(&self) -> Option<ChainId> {
        self.blocks.first().map(|first| ChainId(first.header.generation))
    }

    /// Returns whether nothing of it is known to be missing.
    pub fn is_whole(&self) -> bool {
        self.whole_base && self.gaps == Gaps::default()
    }

    /// Returns what is told of the chain, of which `taken` is the one that was replayed.
    pub fn found(&self, taken: &Self) -> Option<FoundChain> {
        let (first, last) = (&self.blocks.first()?.header, &self.blocks.last()?.header);
        let chain = ChainId(first.generation);
        let (from_ms, until_ms) = (first.wall_ms, last.wall_ms);
        let (files, gaps, taken) = (last.files, self.gaps, Some(chain) == taken.id());
        Some(FoundChain { chain, from_ms, until_ms, files, gaps, taken })
    }
}

/// Returns the chains that could be replayed, one for each generation, the best first. A generation whose base is whole
/// comes first, then one whose base is not cut off, then one that inherited no gap, and then the newest: what a manager
/// wrote that lacked changes takes the place of no log that has them.
pub fn chains(seen: Vec<SeenBlock>) -> Vec<Chain> {
    let mut generations: BTreeMap<u64, Vec<SeenBlock>> = BTreeMap::new();
    for block in without_branches_of_older_catalogs(seen) {
        generations.entry(block.header.generation).or_default().push(block);
    }
    let chains = generations
        .into_iter()
        .map(|(generation, blocks)| follow(generation, with_one_base(blocks)));
    let mut chains: Vec<Chain> = chains.filter(|chain| !chain.blocks.is_empty()).collect();
    chains.sort_by_key(|chain| {
        let last = chain.blocks.last();
        let at = last.map(|last| (last.header.epoch, last.header.sequence));
        Reverse((chain.whole_base, !chain.gaps.base_cut, !chain.gaps.inherited, at))
    });
    chains
}

/// Leaves out what a manager on an older catalog added to the log of the newer one before it heard of that. Its base,
/// which it wrote when it had heard, has these changes, and its start tells whose they are.
fn without_branches_of_older_catalogs(mut seen: Vec<SeenBlock>) -> Vec<SeenBlock> {
    let mut begun: HashMap<u64, u64> = HashMap::new();
    for Header { start, generation, .. } in
        seen.iter().map(|block| &block.header).filter(|header| header.may_lack)
    {
        let first = begun.entry(*start).or_insert(*generation);
        *first = (*generation).min(*first);
    }
    let is_branch = |header: &Header| {
        !header.may_lack && begun.get(&header.start).is_some_and(|first| header.generation < *first)
    };
    // What another manager went on from is no branch: the copy may have been taken of a catalog that was in use.
    seen.sort_by_key(|block| Reverse(block.header.sequence));
    let mut followed = BTreeSet::new();
    seen.retain(|SeenBlock { name, header }| {
        let counts = !is_branch(header) || followed.contains(name);
        if counts {
            followed.extend(header.before);
        }
        counts
    });
    seen
}

/// Returns the blocks of generations that inherited no gap.
pub fn accepted(seen: &[SeenBlock]) -> Vec<SeenBlock> {
    let lacking = seen.iter().map(|block| &block.header).filter(|header| header.may_lack);
    let lacking: BTreeSet<u64> = lacking.map(|header| header.generation).collect();
    seen.iter().filter(|block| !lacking.contains(&block.header.generation)).cloned().collect()
}

/// Returns how many blocks of changes there are in generations after `generation`, of `epoch` or later: these are not
/// replayed.
pub fn passed_over(generation: u64, epoch: Epoch, seen: &[SeenBlock]) -> u64 {
    let over = seen.iter().map(|block| &block.header).filter(|header| {
        header.part == BlockPart::Log && header.generation > generation && header.epoch >= epoch
    });
    over.count() as u64
}

/// Keeps only one of several attempts to write a generation's base: states of two moments do not make one state.
/// Where changes follow, the last attempt is kept; otherwise the last whole one, if there is any.
fn with_one_base(blocks: Vec<SeenBlock>) -> Vec<SeenBlock> {
    let mut bases: BTreeMap<(Epoch, u64), (BTreeSet<u64>, bool)> = BTreeMap::new();
    for base in blocks.iter().filter(|block| block.header.part != BlockPart::Log) {
        let (numbers, ended) = bases.entry(write_of(base)).or_default();
        numbers.insert(base.header.sequence);
        *ended |= base.header.part == BlockPart::BaseEnd;
    }
    let logged = blocks.iter().any(|block| block.header.part == BlockPart::Log);
    let whole = |generation: u64, (numbers, ended): &(BTreeSet<u64>, bool)| {
        *ended && numbers.iter().copied().eq((generation..).take(numbers.len()))
    };
    let generation = blocks.first().map_or(0, |block| block.header.generation);
    let best = bases
        .iter()
        .max_by_key(|(attempt, base)| (!logged && whole(generation, base), **attempt))
        .map(|(attempt, _)| *attempt);
    let mut blocks = blocks;
    blocks.retain(|block| block.header.part == BlockPart::Log || Some(write_of(block)) == best);
    blocks
}

/// Puts the blocks of a generation in order.
fn follow(generation: u64, blocks: Vec<SeenBlock>) -> Chain {
    let (mut next, mut before, mut write): (_, _, Write) = (generation, None, (Epoch(0), 0));
    let last_of = branches(&blocks);
    let mut by_number: BTreeMap<u64, Vec<SeenBlock>> = BTreeMap::new();
    for block in blocks {
        by_number.entry(block.header.sequence).or_default().push(block);
    }
    let gaps = Gaps { base_cut: true, ..Gaps::default() };
    let mut chain = Chain { gaps, ..Chain::default() };
    for (number, rivals) in by_number {
        // A block that was stored and not committed has a rival of its number with the same
        // changes and more. The rival counts that follows the last replayed block, and of several
        // the one whose branch was written last: a later attempt goes on from what was committed.
        let fits = |block: &SeenBlock| block.header.before == before;
        // A block of an earlier write than that of the block before was not committed, or is of another term,
        // on a catalog that was lost or given up.
        let best = rivals
            .into_iter()
            .filter(|block| write_of(block) >= write)
            .max_by_key(|block| (fits(block), last_of.get(&block.name).copied()));
        let Some(block) = best else { continue };
        let missing = number.saturating_sub(next);
        chain.gaps.missing += missing;
        if missing == 0 && !fits(&block) {
            chain.gaps.broken += 1;
        }
        chain.gaps.inherited |= block.header.may_lack;
        if block.header.part == BlockPart::BaseEnd {
            chain.gaps.base_cut = false;
            chain.whole_base = (chain.gaps.missing, chain.gaps.broken) == (0, 0);
        }
        (next, before, write) = (number + 1, Some(block.name), write_of(&block));
        chain.blocks.push(block);
    }
    chain
}

/// Returns for each block the last write among those that go on from it, itself included.
fn branches(blocks: &[SeenBlock]) -> HashMap<ChunkName, Write> {
    let mut order: Vec<&SeenBlock> = blocks.iter().collect();
    order.sort_by_key(|block| Reverse(block.header.sequence));
    let mut last_of: HashMap<ChunkName, Write> = HashMap::new();
    for block in order {
        let known = last_of.entry(block.name).or_default();
        *known = write_of(block).max(*known);
        let last = *known;
        if let Some(before) = block.header.before {
            let known = last_of.entry(before).or_default();
            *known = last.max(*known);
        }
    }
    last_of
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(sequence: u64, epoch: u64) -> ChunkName {
        ChunkName::of(format!("{sequence}.{epoch}").as_bytes())
    }

    fn block(sequence: u64, generation: u64, part: BlockPart, epoch: u64) -> SeenBlock {
        let before = (sequence > generation).then(|| name(sequence - 1, epoch));
        let (name, epoch) = (name(sequence, epoch), Epoch(epoch));
        let header = Header {
            sequence,
            generation,
            part,
            before,
            epoch,
            attempt: 1,
            wall_ms: 0,
            start: epoch.0,
            files: 0,
            may_lack: false,
        };
        SeenBlock { name, header }
    }

    /// Makes generation 3, of two base blocks and three of changes.
    fn third() -> Vec<SeenBlock> {
        let parts =
            [BlockPart::Base, BlockPart::BaseEnd, BlockPart::Log, BlockPart::Log, BlockPart::Log];
        (3..).zip(parts).map(|(n, part)| block(n, 3, part, 1)).collect()
    }

    fn newest(seen: Vec<SeenBlock>) -> Option<Chain> {
        chains(seen).into_iter().next()
    }

    fn numbers(chain: &Chain) -> Vec<u64> {
        chain.blocks.iter().map(|block| block.header.sequence).collect()
    }

    #[test]
    fn newest_whole_log_generation_wins_in_any_arrival_order() {
        let first = [block(1, 1, BlockPart::BaseEnd, 1), block(2, 1, BlockPart::Log, 1)];
        let mut seen = [&third()[..], &first].concat();
        seen.reverse();
        let chain = newest(seen.clone()).expect("a chain");
        assert_eq!((numbers(&chain), chain.gaps), (vec![3, 4, 5, 6, 7], Gaps::default()));

        // A base that was being written when the manager died replaces nothing.
        seen.push(block(8, 8, BlockPart::Base, 1));
        assert_eq!(numbers(&newest(seen).expect("a chain")), [3, 4, 5, 6, 7]);
        assert_eq!(newest(Vec::new()), None);
    }

    #[test]
    fn log_of_a_gapped_restore_does_not_supersede_a_whole_log() {
        let mut seen = third();
        let mut base = block(8, 8, BlockPart::BaseEnd, 2);
        base.header.may_lack = true;
        seen.extend([base.clone(), block(9, 8, BlockPart::Log, 2)]);
        assert_eq!(passed_over(3, Epoch(1), &seen), 1, "it says what it left");
        assert_eq!(passed_over(3, Epoch(1), &accepted(&seen)), 0);
        let inherited = Gaps { inherited: true, ..Gaps::default() };
        let found = chains(seen);
        let all: Vec<_> = found.iter().map(|chain| (numbers(chain), chain.gaps)).collect();
        assert_eq!(all, [(vec![3, 4, 5, 6, 7], Gaps::default()), (vec![8, 9], inherited)]);
        // This base is all there is, and it says that something is lacking.
        let chain = newest(vec![base]).expect("a chain");
        assert_eq!((numbers(&chain), chain.gaps), (vec![8], inherited));
    }

    #[test]
    fn stale_manager_log_does_not_supersede_the_newer_one() {
        // The newer catalog, of epoch 1, came to number 7. A copy from after number 5 was started as epoch 2, wrote 6
        // and 7 itself, heard of the newer one, and began a generation of its own.
        let mut seen = third();
        let mut own = [6, 7].map(|n| block(n, 3, BlockPart::Log, 2));
        own[0].header.before = Some(name(5, 1));
        seen.extend(own);
        assert_eq!(newest(seen.clone()).expect("a chain").blocks[3].name, name(6, 2));
        let mut base = block(20, 20, BlockPart::BaseEnd, 9);
        (base.header.start, base.header.may_lack) = (2, true);
        seen.push(base);
        let chain = newest(seen.clone()).expect("a chain");
        assert_eq!((numbers(&chain), chain.gaps), (vec![3, 4, 5, 6, 7], Gaps::default()));
        assert_eq!(chain.blocks[3].name, name(6, 1));
        // An admin says that the copy counts, and its manager begins anew.
        let mut base = block(30, 30, BlockPart::BaseEnd, 9);
        base.header.start = 2;
        seen.push(base);
        assert_eq!(numbers(&newest(seen).expect("a chain")), [30]);
    }

    #[test]
    fn copied_catalog_continues_the_original_log() {
        // A clone of the running manager of epoch 1 was started as epoch 2 after number 5, and wrote 6 and 7. The
        // original wrote its own 6 and 7, heard of the clone, and began a generation that may lack changes.
        let mut seen = third();
        let mut clones = [6, 7].map(|n| block(n, 3, BlockPart::Log, 2));
        clones[0].header.before = Some(name(5, 1));
        seen.extend(clones);
        let mut base = block(20, 20, BlockPart::BaseEnd, 1);
        base.header.may_lack = true;
        seen.push(base);
        let chain = newest(seen).expect("a chain");
        assert_eq!((numbers(&chain), chain.gaps), (vec![3, 4, 5, 6, 7], Gaps::default()));
        let names: Vec<_> = chain.blocks.iter().map(|block| block.name).collect();
        assert_eq!(names[2..], [name(5, 1), name(6, 2), name(7, 2)]);
    }

    #[test]
    fn a_chain_is_found_by_the_name_it_is_told_by() {
        let id = ChainId(3 * EPOCH + 1);
        assert_eq!((id.to_string(), "3.1".parse()), ("3.1".into(), Ok(id)));
        assert!(
            ["3", "", "3.x", "3.1.1", "9999999999.1"]
                .iter()
                .all(|text| text.parse::<ChainId>().is_err())
        );
    }

    #[test]
    fn a_missing_block_is_seen_and_the_rest_is_taken() {
        let mut seen = third();
        seen.remove(3);
        let chain = newest(seen).expect("a chain");
        assert_eq!(numbers(&chain), [3, 4, 5, 7]);
        assert_eq!(chain.gaps, Gaps { missing: 1, ..Gaps::default() });

        let chain = newest(third().split_off(2)).expect("a chain");
        assert_eq!(chain.gaps, Gaps { missing: 2, base_cut: true, ..Gaps::default() });
    }

    #[test]
    fn a_block_that_follows_another_is_seen() {
        let mut seen = third();
        seen[4].header.before = Some(name(99, 1));
        assert_eq!(newest(seen).expect("a chain").gaps.broken, 1);
    }

    #[test]
    fn committed_head_wins_over_rival_heads() {
        // One block is from a copy of the catalog that went on elsewhere.
        let mut seen = third();
        seen.push(block(6, 3, BlockPart::Log, 2));
        let chain = newest(seen).expect("a chain");
        assert_eq!((chain.gaps, chain.blocks[3].name), (Gaps::default(), name(6, 1)));
        // A rival was stored and never committed: the next block goes on with the other.
        for (at, taken) in [(3, name(6, 1)), (4, ChunkName::of(b"rival"))] {
            let mut seen = third();
            let mut rival = SeenBlock { name: ChunkName::of(b"rival"), ..seen[at].clone() };
            // The block that goes on from the other is a later write.
            (seen[4].header.attempt, rival.header.attempt) = (3, 2 * (at as u64 - 2));
            seen.push(rival);
            let chain = newest(seen).expect("a chain");
            assert_eq!(chain.gaps, Gaps::default());
            assert_eq!(chain.blocks[at].name, taken, "the last may be either; the later has more");
        }
    }

    #[test]
    fn gapped_newer_generation_wins_over_an_older_one() {
        let mut seen = vec![block(1, 1, BlockPart::BaseEnd, 1), block(2, 1, BlockPart::Log, 1)];
        seen.extend(third());
        seen.remove(5);
        let chain = newest(seen).expect("a chain");
        assert_eq!((numbers(&chain), chain.gaps.missing), (vec![3, 4, 5, 7], 1));
    }

    #[test]
    fn continued_log_wins_over_a_longer_lost_branch() {
        // The catalog that was lost, of epoch 1, came to number 9; the copy that went on, to 6 so far.
        let mut seen = third();
        seen.extend([8, 9].map(|n| block(n, 3, BlockPart::Log, 1)));
        let mut own = block(6, 3, BlockPart::Log, 2);
        own.header.before = Some(name(5, 1));
        seen.push(own);
        let chain = newest(seen).expect("a chain");
        assert_eq!((numbers(&chain), chain.gaps), (vec![3, 4, 5, 6], Gaps::default()));
        assert_eq!(chain.blocks[3].name, name(6, 2));
    }

    #[test]
    fn later_attempt_wins_over_a_longer_earlier_one() {
        // 6 and 7 were stored and not committed; the next attempt put all into one block.
        let mut seen = third();
        let mut again = block(6, 3, BlockPart::Log, 1);
        (again.name, again.header.attempt) = (ChunkName::of(b"again"), 2);
        seen.push(again.clone());
        let chain = newest(seen.clone()).expect("a chain");
        assert_eq!((numbers(&chain), chain.gaps), (vec![3, 4, 5, 6], Gaps::default()));
        assert_eq!(chain.blocks[3].name, again.name);
        // This holds also when the clock was put back.
        seen.last_mut().expect("the last").header.wall_ms = -1000;
        assert_eq!(newest(seen).expect("a chain").blocks[3].name, again.name);
    }

    #[test]
    fn two_attempts_at_a_base_are_not_mixed() {
        let of = |attempt: u64| {
            let mut base = third()[..2].to_vec();
            let named = |n: u64| ChunkName::of(format!("{n} of attempt {attempt}").as_bytes());
            for block in &mut base {
                block.name = named(block.header.sequence);
                block.header.attempt = attempt;
                block.header.before = block.header.before.map(|_| named(3));
            }
            base
        };
        let names = |chain: &Chain| chain.blocks.iter().map(|one| one.name).collect::<Vec<_>>();
        // Only the first block of the second attempt was stored: the first attempt is whole.
        let seen = [of(1), of(2)[..1].to_vec()].concat();
        let chain = newest(seen).expect("a chain");
        assert_eq!(
            (names(&chain), chain.gaps),
            (of(1).iter().map(|one| one.name).collect(), Gaps::default())
        );
        // The second attempt was committed, for there are changes since; one of its blocks is lost.
        let mut log = block(5, 3, BlockPart::Log, 1);
        (log.header.attempt, log.header.before) = (3, Some(of(2)[1].name));
        let seen = [of(1), of(2)[1..].to_vec(), vec![log.clone()]].concat();
        let chain = newest(seen).expect("a chain");
        assert_eq!(names(&chain), [of(2)[1].name, log.name]);
        assert_eq!(chain.gaps, Gaps { missing: 1, ..Gaps::default() });
    }

    #[test]
    fn changes_without_a_base_are_counted_as_skipped() {
        let fourth = [block(8, 8, BlockPart::BaseEnd, 1), block(9, 8, BlockPart::Log, 1)];
        let seen = [&third()[..], &fourth[1..]].concat();
        assert_eq!(numbers(&newest(seen.clone()).expect("a chain")), [3, 4, 5, 6, 7]);
        assert_eq!((passed_over(3, Epoch(1), &seen), passed_over(3, Epoch(2), &seen)), (1, 0));
        assert_eq!(passed_over(8, Epoch(1), &seen), 0);
    }
}
