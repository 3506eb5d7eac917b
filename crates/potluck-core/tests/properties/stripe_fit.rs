//! The greedy space fit: the paper's example, and how many datasets it stores where an optimum is known
//! (docs/papers.md, FreeLoader, 4.1.2).

use potluck_core::ids::DonorId;
use potluck_core::placement::near::Near;
use potluck_core::placement::{Candidate, PlacementRequest, Plan, plan};
use std::collections::BTreeSet;

/// Returns donors with room for so many chunks of one byte.
fn donors(free: &[u64]) -> Vec<Candidate> {
    let candidate = |(free, id): (&u64, u32)| {
        let (load, rate, read_rate, is_here) = Default::default();
        let (donor, domain, free) = (DonorId(id), id, *free);
        Candidate { donor, free, load, rate, read_rate, domain, is_here }
    };
    free.iter().zip(1..).map(candidate).collect()
}

fn place(pool: &[Candidate], chunks: u64, width: u32, copies: u32) -> Option<Plan> {
    let near = Near::Anywhere;
    let (bytes, chunk_size, least, link) = (chunks, 1, copies, None);
    plan(
        pool,
        &PlacementRequest { bytes, chunk_size, width, copies, least, near, link, stripe_size: 1 },
    )
    .ok()
}

#[test]
fn overflow_goes_to_the_donors_with_most_room_left() {
    let plan = place(&donors(&[5, 10, 20, 30]), 60, 2, 1).expect("it fits");
    let sections: Vec<(BTreeSet<u32>, u64)> = plan
        .sections
        .iter()
        .map(|section| (section.donors.iter().map(|donor| donor.0).collect(), section.chunks))
        .collect();
    assert_eq!(sections, [([4, 3].into(), 40), ([4, 2].into(), 20)]);
    // One donor that has room is not enough for the width, which shrinks.
    let plan = place(&donors(&[5, 10]), 15, 2, 1).expect("it fits");
    let sections: Vec<(usize, u64)> =
        plan.sections.iter().map(|it| (it.donors.len(), it.chunks)).collect();
    assert_eq!(sections, [(2, 10), (1, 5)]);
}

#[test]
fn stripe_size_is_the_number_of_chunks_in_a_row_on_one_donor() {
    for (copies, size) in [(1, 3), (2, 4), (3, 2)] {
        let near = Near::Anywhere;
        let (bytes, chunk_size, width, link) = (100, 1, 4, None);
        let (least, stripe_size) = (copies, size);
        let ask =
            PlacementRequest { bytes, chunk_size, width, copies, least, near, link, stripe_size };
        let plan = plan(&donors(&[1000; 4]), &ask).expect("it fits");
        let slots: Vec<Vec<DonorId>> =
            (0..100).map(|chunk| plan.slot(chunk).expect("planned")).collect();
        for (chunk, slot) in slots.iter().enumerate() {
            let first = chunk / size as usize * size as usize;
            assert_eq!(slot, &slots[first], "{copies} copies, chunk {chunk}");
            let next = slots.get(first + size as usize);
            assert!(next.is_none_or(|next| next[0] != slot[0]), "the next donor has its turn");
        }
        let held = |donor: &DonorId| slots.iter().filter(|slot| slot.contains(donor)).count();
        for (donor, bytes) in plan.promised() {
            assert_eq!(bytes, held(&donor) as u64, "{copies} copies");
        }
    }
}

/// Draws from 0 to `below`, by splitmix64.
struct Draw(u64);

impl Draw {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

/// What came of the datasets of some traces.
#[derive(Default)]
struct Outcome {
    stored: u64,
    /// The datasets that no placement could store more of: each copy of a chunk needs its own donor.
    most: u64,
    /// The donors of all stored datasets, and their widths, added up.
    spread: u64,
    widths: u64,
}

/// Stores random datasets of a trace until one is refused.
fn trace(draw: &mut Draw, copies: u32, outcome: &mut Outcome) {
    let count = 4 + draw.below(17);
    let frees: Vec<u64> = (0..count).map(|_| 50 + draw.below(950)).collect();
    let mut pool = donors(&frees);
    let fits = |chunks: u64| {
        frees.iter().map(|free| (*free).min(chunks)).sum::<u64>() >= u64::from(copies) * chunks
    };
    let (mut all, mut is_refused) = (0, false);
    loop {
        let chunks = 5 + draw.below(195);
        let width = 1 + draw.below(count.min(8)) as u32;
        all += chunks;
        if !fits(all) {
            return;
        }
        outcome.most += 1;
        let placed = if is_refused { None } else { place(&pool, chunks, width, copies) };
        let Some(plan) = placed else {
            is_refused = true;
            continue;
        };
        outcome.stored += 1;
        outcome.widths += u64::from(width.max(copies));
        outcome.spread += plan.promised().len() as u64;
        let promised = plan.promised();
        for candidate in &mut pool {
            candidate.free -= promised.get(&candidate.donor).copied().unwrap_or_default();
        }
    }
}

#[test]
fn greedy_fit_stores_nearly_as_many_datasets_as_any_placement() {
    for (copies, least, widest) in [(1, 1.0, 1.1), (2, 0.99, 1.1), (3, 0.99, 1.1)] {
        let (mut draw, mut outcome) = (Draw(37), Outcome::default());
        for _ in 0..200 {
            trace(&mut draw, copies, &mut outcome);
        }
        let Outcome { stored, most, spread, widths } = outcome;
        let (part, spread) = (stored as f64 / most as f64, spread as f64 / widths as f64);
        println!(
            "{copies} copies: {stored} of {most} datasets ({part:.4}), donors {spread:.3} of width"
        );
        assert!(part >= least, "{copies} copies: {stored} of {most} datasets");
        assert!(spread <= widest, "{copies} copies: datasets lie on {spread} times their width");
    }
}
