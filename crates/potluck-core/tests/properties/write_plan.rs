//! Writing beside a donor that others use: our rule against the plan alone and against CEFT's, by clients and donors in
//! virtual time.

use super::rate_estimate::World;
use potluck_core::clock::Tick;
use potluck_core::hedging::Rates;
use potluck_core::ids::DonorId;
use potluck_core::rate_estimate::RateEstimate;
use potluck_core::write_plan::{sort_copies, taker};
use proptest::prelude::*;
use std::time::Duration;

const CHUNK: u32 = 4 << 20;
const DONORS: usize = 8;
const RATE: f64 = 100e6;
/// The donor of the stripe that others use.
const HOT: usize = 3;

/// The rule by which a chunk gets its donor.
#[derive(Clone, Copy)]
enum Rule {
    /// The planned donor while it keeps up, as before loads counted.
    Plan,
    /// CEFT's: one hot server is left out of the stripe.
    Skip,
    /// The rule of [`taker`].
    Ours,
}

/// Returns the seconds that a file of so many chunks takes where others use `load` of one donor of the stripe.
fn seconds(rule: Rule, chunks: usize, load: f32) -> f64 {
    let mut world = World::new(DONORS, CHUNK);
    for (donor, estimate) in &mut world.rates {
        let load = if donor.0 as usize == HOT { load } else { 0.0 };
        *estimate = RateEstimate::expecting(Some(RATE), load);
    }
    let rate = |donor, _| if donor == HOT { RATE * f64::from(1.0 - load) } else { RATE };
    world.run_by(chunks, rate, |world, chunk| {
        let planned = DonorId((chunk % DONORS) as u32);
        let with_room = Some(planned).filter(|donor| world.rates[donor].has_room(CHUNK));
        match rule {
            Rule::Plan => with_room.or_else(|| world.choose(None)),
            Rule::Skip => with_room
                .filter(|donor| donor.0 as usize != HOT)
                .or_else(|| world.choose(Some(HOT))),
            Rule::Ours => taker(with_room, world.choose(None), &world.rates),
        }
    })
}

/// The figures of docs/papers.md; a tail of one chunk at the hot donor is all that CEFT's rule saves beyond ours.
#[test]
fn small_files_gain_by_skipping_and_large_ones_lose_nothing() {
    for load in [0.6_f32, 0.7, 0.8, 0.9, 0.95] {
        let mut sums = (0.0, 0.0, 0.0);
        for chunks in [4, 8, 16, 32, 64, 128, 256, 512] {
            let by = |rule| seconds(rule, chunks, load);
            let (plan, skip, ours) = (by(Rule::Plan), by(Rule::Skip), by(Rule::Ours));
            println!("load {load} chunks {chunks}: plan {plan:.3} skip {skip:.3} ours {ours:.3}");
            assert!(ours <= 1.001 * plan, "no worse than the plan");
            assert!(ours <= 1.25 * skip, "at most one chunk at the hot donor more");
            if chunks <= DONORS {
                assert!(ours <= 1.001 * skip && 1.2 * ours < plan, "as good as skipping");
            }
            if chunks >= 128 {
                assert!(ours <= skip, "what is left of the hot donor is used");
            }
            sums = (sums.0 + plan, sums.1 + skip, sums.2 + ours);
        }
        assert!(sums.2 < sums.0 && sums.2 < sums.1, "load {load}: {sums:?}");
    }
}

fn met(load: f32, usual: f64, millis: Option<u64>) -> RateEstimate {
    let mut estimate = RateEstimate::expecting(Some(usual), load);
    if let Some(millis) = millis {
        estimate.sent(CHUNK, Tick::ZERO);
        estimate.acked(CHUNK, Tick::ZERO, Tick::from_millis(millis));
    }
    estimate
}

#[test]
fn what_a_donor_gives_counts_more_than_its_load() {
    let taken = |planned: RateEstimate, other: RateEstimate| {
        let rates = Rates::from([(DonorId(1), planned), (DonorId(2), other)]);
        taker(Some(DonorId(1)), Some(DonorId(2)), &rates).map(|donor| donor.0)
    };
    let (idle, hot) = (met(0.0, RATE, None), met(0.8, RATE, None));
    assert_eq!(taken(idle.clone(), idle.clone()), Some(1), "as planned");
    assert_eq!(taken(hot.clone(), idle.clone()), Some(2));
    assert_eq!(taken(hot.clone(), hot.clone()), Some(1), "the other is no better");
    assert_eq!(taken(met(0.8, RATE, Some(42)), idle.clone()), Some(1), "it is as fast as ever");
    assert_eq!(taken(met(0.0, RATE, Some(420)), idle.clone()), Some(2), "a tenth of its rate");
    let slow = met(0.0, RATE / 20.0, None);
    assert_eq!(taken(met(0.0, RATE, Some(420)), slow), Some(1), "the other is slower by nature");
    assert_eq!(taker(None, Some(DonorId(2)), &Rates::new()), Some(DonorId(2)));
    assert_eq!(taker(Some(DonorId(1)), None, &Rates::from([(DonorId(1), hot)])), Some(DonorId(1)));
}

proptest! {
    #[test]
    fn copies_are_sorted_by_finish_and_none_is_lost(
        known in prop::collection::vec((0.0..1.0_f32, 1.0..200.0_f64, 0_u32..4), 1..6),
        unknown in 0_u32..2,
    ) {
        let donors = 0..known.len() as u32 + unknown;
        let estimate = |(load, usual, owed): &(f32, f64, u32)| {
            let mut estimate = RateEstimate::expecting(Some(usual * 1e6), *load);
            (0..*owed).for_each(|_| estimate.sent(CHUNK, Tick::ZERO));
            estimate
        };
        let rates: Rates = (0..).map(DonorId).zip(known.iter().map(estimate)).collect();
        let mut sorted: Vec<DonorId> = donors.clone().map(DonorId).collect();
        sort_copies(&mut sorted, &rates, CHUNK);
        let finish = |donor: &DonorId| {
            rates.get(donor).map_or(Duration::MAX, |it| it.expected_finish(CHUNK))
        };
        prop_assert!(sorted.is_sorted_by_key(finish));
        sorted.sort();
        prop_assert!(sorted.into_iter().eq(donors.map(DonorId)));
    }

    /// Where no donor is slowed, the plan decides alone.
    #[test]
    fn the_plan_is_followed_while_no_donor_is_hot(
        loads in (0.0..=0.5_f32, 0.0..=1.0_f32), usual in (1.0..200.0_f64, 1.0..200.0_f64),
    ) {
        let of = |load, usual| RateEstimate::expecting(Some(usual * 1e6), load);
        let rates =
            Rates::from([(DonorId(1), of(loads.0, usual.0)), (DonorId(2), of(loads.1, usual.1))]);
        prop_assert_eq!(taker(Some(DonorId(1)), Some(DonorId(2)), &rates), Some(DonorId(1)));
    }
}
