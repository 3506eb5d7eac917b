//! Reading: the pieces of a range, the choice of a source, and the steps by which a group is read.

use potluck_core::hedging::{ReadSource, pick};
use potluck_core::ids::DonorId;
use potluck_core::load::HOT;
use potluck_core::rate_estimate::RateEstimate;
use potluck_core::read_plan::{GroupStep, Piece, ShardState, chunks_of_range, next_of_group};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

const CHUNK: u32 = 1 << 20;

fn source(id: u32, live: bool, load: f32) -> ReadSource {
    ReadSource { donor: DonorId(id), live, load }
}

/// Returns the rate estimate of a donor that delivered a chunk in `millis` and owes `owed` chunks.
fn met(millis: u64, owed: u32) -> RateEstimate {
    let mut estimate = RateEstimate::new();
    estimate.sent(CHUNK, Duration::ZERO);
    estimate.acked(CHUNK, Duration::ZERO, Duration::from_millis(millis));
    (0..owed).for_each(|_| estimate.sent(CHUNK, Duration::from_millis(millis)));
    estimate
}

proptest! {
    #[test]
    fn the_pieces_of_a_range_are_its_bytes_in_order(
        lens in prop::collection::vec((0_u32..50, 0_u64..20), 0..20), from in 0_u64..900, to in 0_u64..900,
    ) {
        // Each chunk is followed by a hole, which may be empty.
        let file: Vec<Option<(usize, u32)>> = lens.iter().enumerate().flat_map(|(index, (len, hole))| {
            let chunk = (0..*len).map(move |at| Some((index, at)));
            chunk.chain((0..*hole).map(|_| None))
        }).collect();
        let clip = |at: u64| (at as usize).min(file.len());
        let wanted: Vec<(usize, u32)> =
            file.get(clip(from)..clip(to)).unwrap_or_default().iter().copied().flatten().collect();
        let spans: Vec<Range<u64>> = lens.iter().scan(0, |at, (len, hole)| {
            let start = *at;
            *at += u64::from(*len) + hole;
            Some(start..start + u64::from(*len))
        }).collect();
        let pieces = chunks_of_range(&spans, from..to);
        prop_assert!(pieces.iter().all(|piece| piece.take > 0));
        let got: Vec<(usize, u32)> = pieces.iter()
            .flat_map(|Piece { index, skip, take, .. }| (*skip..skip + take).map(move |at| (*index, at)))
            .collect();
        prop_assert_eq!(got, wanted);
    }

    #[test]
    fn sources_are_untried_live_donors_first(
        sources in prop::collection::vec((0_u32..9, any::<bool>(), 0.0..1.0_f32), 0..6),
        tried in prop::collection::vec((0_u32..9).prop_map(DonorId), 0..6),
        owed in prop::collection::vec(0_u32..4, 9),
    ) {
        let sources: Vec<ReadSource> =
            sources.into_iter().map(|(id, live, load)| source(id, live, load)).collect();
        let rates: BTreeMap<DonorId, RateEstimate> =
            (0..).map(DonorId).zip(owed.iter().map(|owed| met(20, *owed))).collect();
        let untried: Vec<&ReadSource> =
            sources.iter().filter(|source| !tried.contains(&source.donor)).collect();
        let live = untried.iter().any(|source| source.live);
        let candidates: Vec<DonorId> =
            untried.iter().filter(|s| s.live == live).map(|s| s.donor).collect();
        match pick(&sources, &rates, CHUNK, &tried) {
            Some(donor) => prop_assert!(candidates.contains(&donor)),
            None => {
                let hot = |id: &DonorId| untried.iter().all(|s| s.donor != *id || s.load > HOT);
                let full = |id: &DonorId| !rates[id].has_room(CHUNK);
                let all_hot = candidates.iter().all(hot);
                let waiting = candidates.iter().all(|id| full(id) || (!all_hot && hot(id)));
                prop_assert!(waiting, "somebody could have been asked");
            }
        }
    }
}

#[test]
fn the_earliest_finish_wins_then_the_less_loaded() {
    let rates: BTreeMap<DonorId, RateEstimate> =
        [(1, met(10, 1)), (2, met(15, 0)), (3, met(15, 0)), (4, met(1, 0))]
            .into_iter()
            .map(|(id, estimate)| (DonorId(id), estimate))
            .collect();
    let sources =
        [source(1, true, 0.0), source(2, true, 0.5), source(3, true, 0.1), source(4, false, 0.0)];
    let picked = |tried: &[u32]| {
        let tried: Vec<DonorId> = tried.iter().copied().map(DonorId).collect();
        pick(&sources, &rates, CHUNK, &tried).map(|donor| donor.0)
    };
    assert_eq!(picked(&[]), Some(3));
    assert_eq!(picked(&[3]), Some(2));
    assert_eq!(picked(&[3, 2]), Some(1));
    assert_eq!(picked(&[3, 2, 1]), Some(4), "the suspect comes last");
    assert_eq!(picked(&[1, 2, 3, 4]), None);
}

/// Plays a reader of a group against shards of which some never come, and returns what was asked for and the last
/// step.
fn play(
    mut shards: Vec<ShardState>,
    hangs: &[usize],
    needed: &[usize],
    data: usize,
    extra: usize,
) -> (Vec<usize>, GroupStep) {
    let mut asked = Vec::new();
    loop {
        match next_of_group(&shards, needed, data, extra) {
            GroupStep::Ask(of) => {
                let at = of[0];
                assert!(matches!(shards[at], ShardState::Open | ShardState::Suspect));
                shards[at] = ShardState::Asked { late: false };
                asked.push(at);
            }
            GroupStep::Wait => {
                // A chunk that was asked for arrives, unless it hangs: then it is late.
                let under_way = |shard: &ShardState| *shard == ShardState::Asked { late: false };
                let Some(at) = shards.iter().position(under_way) else {
                    return (asked, GroupStep::Wait);
                };
                let hangs = hangs.contains(&at);
                shards[at] = if hangs { ShardState::Asked { late: true } } else { ShardState::Had };
            }
            end => return (asked, end),
        }
    }
}

fn shards() -> impl Strategy<Value = Vec<ShardState>> {
    let one = prop_oneof![
        6 => Just(ShardState::Open), 1 => Just(ShardState::Suspect), 1 => Just(ShardState::Lost)
    ];
    prop::collection::vec(one, 6)
}

proptest! {
    #[test]
    fn a_group_is_read_whenever_enough_of_it_can_be_had(
        shards in shards(),
        hangs in prop::collection::vec(0..6_usize, 0..3),
        needed in prop::sample::subsequence(vec![0_usize, 1, 2, 3], 1..=4),
        extra in 0..3_usize,
    ) {
        let comes = |at: &usize| shards[*at] != ShardState::Lost && !hangs.contains(at);
        let enough = (0..6).filter(comes).count() >= 4;
        let direct = needed.iter().all(comes);
        let (asked, end) = play(shards.clone(), &hangs, &needed, 4, extra);
        if enough || direct {
            prop_assert!(matches!(end, GroupStep::Done | GroupStep::Rebuild), "{end:?}");
        } else {
            prop_assert!(matches!(end, GroupStep::TooFew | GroupStep::Wait), "{end:?}");
        }
        let mut once = asked.clone();
        once.sort_unstable();
        once.dedup();
        prop_assert_eq!(once.len(), asked.len(), "nothing is asked for twice");
        if needed.iter().all(|at| shards[*at] == ShardState::Open) && hangs.is_empty() {
            let most = if extra == 0 { needed.len() } else { 4 + extra };
            prop_assert!(asked.len() <= most);
            prop_assert!(asked.starts_with(&needed), "what is needed goes first");
        }
    }

    #[test]
    fn a_degraded_read_asks_for_no_more_chunks_than_the_code_needs(
        lost in prop::sample::subsequence(vec![0_usize, 1, 2, 3, 4, 5], 0..=2),
    ) {
        let mut shards = vec![ShardState::Open; 6];
        lost.iter().for_each(|at| shards[*at] = ShardState::Lost);
        let (asked, end) = play(shards, &[], &[0, 1, 2, 3], 4, 0);
        prop_assert_eq!(asked.len(), 4);
        let whole = lost.iter().all(|at| *at >= 4);
        prop_assert_eq!(end, if whole { GroupStep::Done } else { GroupStep::Rebuild });
    }
}
