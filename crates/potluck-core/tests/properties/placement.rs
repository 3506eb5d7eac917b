//! Plans for files: distinct donors and domains, room, width, and what is refused.

use potluck_core::ids::{Domain, DonorId};
use potluck_core::placement::near::Near;
use potluck_core::placement::{Candidate, PlacementRequest, Plan, Refusal, plan, room};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const MIB: u64 = 1 << 20;

/// The rates of donors by their loads in [`pool`]: unknown, alike and very different.
const RATES: [Option<f64>; 4] = [None, Some(1e8), Some(1.1e8), Some(3e6)];

fn candidate(id: u32, free: u64) -> Candidate {
    let (load, rate, read_rate, is_here) = Default::default();
    Candidate { donor: DonorId(id), free, load, rate, read_rate, domain: id, is_here }
}

fn frees(frees: &[u64]) -> Vec<Candidate> {
    frees.iter().zip(1..).map(|(free, id)| candidate(id, *free)).collect()
}

fn request(bytes: u64, chunk_size: u32, width: u32, copies: u32) -> PlacementRequest {
    PlacementRequest {
        bytes,
        chunk_size,
        width,
        copies,
        least: copies,
        near: Near::Elsewhere,
        link: None,
        stripe_size: 1,
    }
}

/// Adds up, chunk by chunk, what `Plan::promised` says in closed form.
fn tally(plan: &Plan, bytes: u64) -> BTreeMap<DonorId, u64> {
    let mut sums = BTreeMap::new();
    for chunk in 0..plan.chunks() {
        let size = u64::from(plan.chunk_size);
        let len = size.min(bytes - chunk * size);
        for donor in plan.slot(chunk).expect("a planned chunk") {
            *sums.entry(donor).or_default() += len;
        }
    }
    sums
}

/// Returns the failure domains of the donors of a chunk.
fn domains_of(plan: &Plan, pool: &[Candidate], chunk: u64) -> BTreeSet<Domain> {
    let slot = plan.slot(chunk).expect("a planned chunk");
    let of = |candidate: &&Candidate| slot.contains(&candidate.donor);
    pool.iter().filter(of).map(|candidate| candidate.domain).collect()
}

/// Returns whether `chunks` chunks fit, each on `copies` donors, by trying everything.
fn placeable(rooms: &mut Vec<u64>, chunks: u64, copies: usize) -> bool {
    if chunks == 0 {
        return true;
    }
    (0..1_u32 << rooms.len()).filter(|set| set.count_ones() as usize == copies).any(|set| {
        let chosen: Vec<usize> = (0..rooms.len()).filter(|at| set >> at & 1 == 1).collect();
        if chosen.iter().any(|at| rooms[*at] == 0) {
            return false;
        }
        chosen.iter().for_each(|at| rooms[*at] -= 1);
        let fits = placeable(rooms, chunks - 1, copies);
        chosen.iter().for_each(|at| rooms[*at] += 1);
        fits
    })
}

fn pool() -> impl Strategy<Value = Vec<Candidate>> {
    prop::collection::vec((0..60_u64, 0..4_u8, 0..8_u32), 0..12).prop_map(|donors| {
        let donors = donors.into_iter().zip(1..);
        donors
            .map(|((free, load, domain), id)| Candidate {
                donor: DonorId(id),
                free: free * 10 + u64::from(load),
                load: f32::from(load) / 4.0,
                rate: RATES[usize::from(load)],
                read_rate: RATES[usize::from(load)],
                domain,
                is_here: id % 4 == 1,
            })
            .collect()
    })
}

fn asked() -> impl Strategy<Value = PlacementRequest> {
    let near = prop::sample::select(vec![
        Near::Elsewhere,
        Near::Anywhere,
        Near::Here,
        Near::HereShare(40),
        Near::HereShare(100),
    ]);
    (0..3000_u64, 1..40_u32, 0..9_u32, 0..4_u32, near).prop_map(
        |(bytes, chunk, width, copies, near)| PlacementRequest {
            near,
            stripe_size: copies + 1,
            ..request(bytes, chunk, width, copies)
        },
    )
}

/// Returns how many bytes are stored in files of `file` bytes until the next one is refused.
fn stored_one_by_one(pool: &[Candidate], request: &PlacementRequest, file: u64) -> u64 {
    let mut left = pool.to_vec();
    let mut stored = 0;
    while let Ok(plan) = plan(&left, &PlacementRequest { bytes: file, ..*request }) {
        let promised = plan.promised();
        for candidate in &mut left {
            candidate.free -= promised.get(&candidate.donor).copied().unwrap_or_default();
        }
        stored += file;
    }
    stored
}

#[test]
fn reported_free_space_can_be_filled_with_all_copies() {
    const MIB: u64 = 1 << 20;
    let pool = frees(&[100 * MIB, 150 * MIB, 3072 * MIB]);
    let request = |copies| request(0, MIB as u32, 3, copies);
    let two = room(&pool, &request(2));
    let stored = stored_one_by_one(&pool, &request(2), 10 * MIB);
    assert_eq!((stored, two), (250 * MIB, 250 * MIB));
    assert_eq!(room(&pool, &request(1)), 3322 * MIB);
    assert_eq!(room(&pool, &request(3)), 100 * MIB);
    assert_eq!(room(&pool, &request(4)), 0, "there are three donors");
    assert_eq!(room(&frees(&[MIB - 1, MIB]), &request(2)), 0, "a chunk fits once only");
    assert_eq!(room(&[], &request(1)), 0);
}

proptest! {
    #[test]
    fn every_byte_has_its_copies_on_distinct_donors_with_room(
        pool in pool(), request in asked(),
    ) {
        let Ok(plan) = plan(&pool, &request) else { return Ok(()) };
        let chunks = request.bytes.div_ceil(u64::from(request.chunk_size));
        prop_assert_eq!(plan.chunks(), chunks);
        prop_assert_eq!(plan.sections.iter().map(|s| s.bytes).sum::<u64>(), request.bytes);
        prop_assert_eq!(plan.slot(chunks), None);
        let copies = request.copies.max(1) as usize;
        for chunk in 0..chunks {
            let slot = plan.slot(chunk).expect("a planned chunk");
            prop_assert_eq!(slot.len(), copies);
            prop_assert_eq!(slot.iter().collect::<BTreeSet<_>>().len(), copies);
        }
        let promised = plan.promised();
        prop_assert_eq!(&promised, &tally(&plan, request.bytes));
        for candidate in &pool {
            prop_assert!(promised.get(&candidate.donor).is_none_or(|b| *b <= candidate.free));
        }
    }

    #[test]
    fn no_section_is_wider_than_asked_or_narrower_than_the_copies(
        pool in pool(), request in asked(),
    ) {
        let Ok(plan) = plan(&pool, &request) else { return Ok(()) };
        let copies = request.copies.max(1);
        // The writing machine's donors are in addition to the width.
        let here = pool.iter().filter(|it| it.is_here && request.near.is_here()).count() as u32;
        for section in &plan.sections {
            let width = section.donors.iter().collect::<BTreeSet<_>>().len() as u32;
            prop_assert!(width <= (request.width + here).max(copies) && width >= copies);
        }
        // The writing machine's donors are dealt with apart, so that a section may end sooner for their sake.
        prop_assert!(plan.sections.len() <= 4 * pool.len());
    }

    #[test]
    fn every_slot_has_distinct_donors_and_a_short_plan_says_so(
        pool in pool(), request in asked(), fewer in 0..3_u32,
    ) {
        let request = PlacementRequest { least: request.copies.saturating_sub(fewer).max(1), ..request };
        let Ok(plan) = plan(&pool, &request) else { return Ok(()) };
        let copies = request.copies.max(1) as usize;
        let slot = |chunk| plan.slot(chunk).expect("a planned chunk");
        for chunk in 0..plan.chunks().min(300) {
            let distinct: BTreeSet<DonorId> = slot(chunk).into_iter().collect();
            prop_assert_eq!(distinct.len(), slot(chunk).len());
            prop_assert!(distinct.len() == copies || plan.is_short());
        }
    }

    #[test]
    fn a_file_as_large_as_the_room_finds_its_place(pool in pool(), request in asked()) {
        let bytes = room(&pool, &request);
        let fits = plan(&pool, &PlacementRequest { bytes, ..request });
        prop_assert!(bytes == 0 || fits.is_ok(), "{bytes}: {fits:?}");
    }

    #[test]
    fn reported_free_space_is_reachable_when_scarce(
        rooms in prop::collection::vec(0..2000_u64, 1..8), width in 1..9_u32, copies in 1..4_u32,
        file in 1..40_u64,
    ) {
        let (pool, request) = (frees(&rooms), request(0, 1, width, copies));
        let free = room(&pool, &request);
        let most: u64 = (0..=rooms.iter().sum())
            .rev()
            .find(|chunks| {
                rooms.iter().map(|room| room.min(chunks)).sum::<u64>() >= chunks * u64::from(copies)
            })
            .unwrap_or(0);
        let most = if rooms.len() < copies as usize { 0 } else { most };
        prop_assert!(free * 100 >= most * 97 && free <= most, "{free} of {most}");
        let file = file.max(free / 60);
        let stored = stored_one_by_one(&pool, &request, file);
        // A file may end in crumbs of room that no later one can use.
        prop_assert!((stored + file) * 100 >= free * 92, "{stored} of {free}");
    }

    #[test]
    fn the_order_of_candidates_changes_nothing(
        (pool, shuffled) in pool().prop_flat_map(|p| (Just(p.clone()), Just(p).prop_shuffle())),
        request in asked(),
    ) {
        prop_assert_eq!(plan(&pool, &request), plan(&shuffled, &request));
    }

    #[test]
    fn it_refuses_only_what_cannot_be_placed(
        rooms in prop::collection::vec(0..5_u64, 1..6), chunks in 1..8_u64,
        width in 1..6_u32, copies in 1..4_u32,
        loads in prop::collection::vec(0..3_u8, 6), domains in prop::collection::vec(0..4_u32, 6),
    ) {
        let mut pool = frees(&rooms);
        for (candidate, (load, domain)) in pool.iter_mut().zip(loads.iter().zip(&domains)) {
            candidate.load = f32::from(*load);
            candidate.domain = *domain;
        }
        let answer = plan(&pool, &request(chunks, 1, width, copies));
        let possible = placeable(&mut rooms.clone(), chunks, copies as usize);
        prop_assert_eq!(answer.is_ok(), possible, "{:?}", answer);
        if let Err(Refusal::NoSpace { ask, have }) = answer {
            prop_assert!(have < ask, "{} of {} fit", have, ask);
        }
    }

    #[test]
    fn groups_fill_unequal_donors_while_distinct(
        rooms in prop::collection::vec(1..40_u64, 3..9), spare in 0..3_usize, groups in 1..60_u64,
    ) {
        let width = rooms.len() - spare.min(rooms.len() - 2);
        let answer = plan(&frees(&rooms), &request(groups, 1, width as u32, width as u32));
        // Dealing around fills a donor at most once a group (the condition is also sufficient).
        let useful: u64 = rooms.iter().map(|room| (*room).min(groups)).sum();
        let fits = useful >= groups * width as u64;
        prop_assert_eq!(answer.is_ok(), fits, "{:?}", answer);
        let Ok(plan) = answer else { return Ok(()) };
        for group in 0..groups {
            let slot: BTreeSet<DonorId> = plan.slot(group).expect("planned").into_iter().collect();
            prop_assert_eq!(slot.len(), width);
        }
        for (donor, bytes) in plan.promised() {
            prop_assert!(bytes <= rooms[donor.0 as usize - 1]);
        }
    }

    #[test]
    fn enough_domains_keep_copies_apart(
        domains in 3..6_u32, each in 1..4_u32, copies in 1..4_u32, width in 1..9_u32,
        chunks in 0..50_u64,
    ) {
        let pool: Vec<Candidate> = (0..domains * each)
            .map(|id| Candidate { domain: id % domains, ..candidate(id, 1000) })
            .collect();
        let plan = plan(&pool, &request(chunks, 1, width, copies)).expect("ample space");
        for chunk in 0..plan.chunks() {
            prop_assert_eq!(domains_of(&plan, &pool, chunk).len(), copies as usize);
        }
    }

    #[test]
    fn copies_are_in_as_many_domains_as_there_are(
        domains in prop::collection::vec(0..6_u32, 1..10), copies in 1..6_u32, width in 1..9_u32, chunks in 1..50_u64,
    ) {
        let donors = domains.iter().zip(0..);
        let pool: Vec<Candidate> =
            donors.map(|(domain, id)| Candidate { domain: *domain, ..candidate(id, 1000) }).collect();
        let Ok(plan) = plan(&pool, &request(chunks, 1, width, copies)) else {
            prop_assert!(domains.len() < copies as usize);
            return Ok(());
        };
        let all: BTreeSet<Domain> = domains.into_iter().collect();
        for chunk in 0..chunks {
            let seen = domains_of(&plan, &pool, chunk);
            prop_assert_eq!(seen.len(), all.len().min(copies as usize), "{:?}", plan);
        }
    }

    #[test]
    fn an_extended_plan_goes_on_where_it_ended(first in 0..200_u64, second in 1..200_u64) {
        let pool = frees(&[5000; 6]);
        let ask = |bytes| plan(&pool, &request(bytes, 10, 4, 2)).expect("ample space");
        let (mut whole, tail) = (ask(first * 10), ask(second * 10));
        whole.extend(tail.clone());
        prop_assert_eq!(whole.chunks(), first + second);
        prop_assert_eq!(whole.slot(first), tail.slot(0));
        let total: u64 = whole.promised().values().sum();
        prop_assert_eq!(total, 2 * 10 * (first + second));
    }
}

#[test]
fn overflow_goes_to_the_next_donors_and_the_width_shrinks_last() {
    // This is the greedy space fit (docs/papers.md, FreeLoader): 40 chunks go to the two largest donors, as far as
    // the smaller allows, and the rest is sorted again.
    let plan = plan(&frees(&[30, 20, 10, 5]), &request(60, 1, 2, 1)).expect("65 are free");
    let shape: Vec<(usize, u64)> =
        plan.sections.iter().map(|section| (section.donors.len(), section.chunks)).collect();
    assert_eq!(shape, [(2, 40), (2, 20)]);
    let all = super::placement::plan(&frees(&[30, 5]), &request(35, 1, 2, 1)).expect("all of it");
    let widths: Vec<usize> = all.sections.iter().map(|section| section.donors.len()).collect();
    assert_eq!(widths, [2, 1]);
}

#[test]
fn four_copies_are_apart_in_unequal_domains() {
    let mut pool = frees(&[1000; 9]);
    for (candidate, domain) in pool.iter_mut().zip([1, 2, 1, 1, 3, 3, 4, 5, 6]) {
        candidate.domain = domain;
    }
    let plan = plan(&pool, &request(100, 1, 8, 4)).expect("ample space");
    assert!((0..100).all(|chunk| domains_of(&plan, &pool, chunk).len() == 4), "{plan:?}");
    assert_eq!(plan.donors().len(), 8, "as wide as was asked for");
}

#[test]
fn near_ties_in_space_go_to_the_less_loaded() {
    let mut pool = frees(&[1000 * MIB + 5, 1000 * MIB + 3, 1000 * MIB, 10 * MIB]);
    pool[0].load = 0.9;
    pool[3].load = 0.0;
    let plan = plan(&pool, &request(40 * MIB, 1 << 20, 2, 1)).expect("ample space");
    assert_eq!(plan.donors(), BTreeSet::from([DonorId(2), DonorId(3)]));
}

#[test]
fn an_unknown_size_gets_donors_and_no_chunks() {
    let plan = plan(&frees(&[MIB, 9 * MIB, 9 * MIB, 9 * MIB]), &request(0, 4 << 20, 4, 2));
    let plan = plan.expect("three have room");
    assert_eq!((plan.sections.len(), plan.chunks()), (1, 0));
    assert_eq!(plan.donors(), BTreeSet::from([2, 3, 4].map(DonorId)));
    assert!(plan.promised().is_empty());
}

#[test]
fn a_small_file_promises_its_bytes_and_not_a_chunk() {
    let plan = plan(&frees(&[5000, 5000]), &request(4500, 4 << 20, 4, 2)).expect("it fits");
    assert_eq!(plan.promised(), BTreeMap::from([1, 2].map(|id| (DonorId(id), 4500))));
}

#[test]
fn refusals_say_what_is_missing() {
    let ask = request(8 * MIB, 4 << 20, 4, 2);
    assert_eq!(plan(&[], &ask), Err(Refusal::NoDonors));
    let alone = plan(&frees(&[100 * MIB]), &ask).expect_err("one donor");
    assert_eq!(alone, Refusal::TooFewDonors { have: 1, need: 2 });
    let full = plan(&frees(&[100 * MIB, 5 * MIB]), &ask).expect_err("second copy");
    assert_eq!(full, Refusal::NoSpace { ask: 16 * MIB, have: 12 * MIB });
    assert!(full.to_string().contains("16.0 MiB are asked for"), "{full}");
}

#[test]
fn a_thousand_donors_and_ten_million_chunks_take_few_sections() {
    let free = |id: u64| (1 + id * 7919 % 1000) * (40 << 20);
    let mut pool: Vec<Candidate> = (0..1000).map(|id| candidate(id as u32, free(id))).collect();
    let room: u64 = pool.iter().map(|candidate| candidate.free).sum();
    for (copies, domains) in [(1, 1000), (3, 1000), (3, 2), (3, 40)] {
        for (id, candidate) in (0..).zip(&mut pool) {
            candidate.domain = id * 31 % domains;
        }
        // The request is for all that fits, in small chunks.
        let bytes = room / u64::from(copies) / 2048 * 2048 - 1000 * 2048;
        let plan = plan(&pool, &request(bytes, 2048, 256, copies)).expect("it just fits");
        assert!(plan.chunks() > 3_000_000 && plan.sections.len() < 2000);
    }
}

#[test]
fn shares_follow_rates_also_in_files_of_few_chunks_and_every_donor_stays_in_the_stripe() {
    let rates = [30e6, 90e6, 90e6, 90e6];
    let pool: Vec<Candidate> = (1..)
        .zip(rates)
        .map(|(id, rate)| Candidate { rate: Some(rate), ..candidate(id, 1 << 40) })
        .collect();
    for (chunks, copies) in [(20, 1), (100, 1), (1000, 1), (1000, 2)] {
        let plan = plan(&pool, &request(chunks * MIB, MIB as u32, 4, copies)).expect("room");
        assert_eq!(plan.donors().len(), 4);
        let promised = plan.promised();
        let of_slow = promised.get(&DonorId(1)).copied().unwrap_or(0) as f64 / MIB as f64;
        let share = of_slow / (chunks * u64::from(copies)) as f64;
        assert!((0.08..=0.12).contains(&share), "{chunks} chunks: {share}");
    }
    let alike: Vec<Candidate> =
        (1..=4).map(|id| Candidate { rate: RATES[1], ..candidate(id, 1 << 40) }).collect();
    let plan = plan(&alike, &request(8 * MIB, MIB as u32, 4, 1)).expect("room");
    assert_eq!(
        plan.sections[0].donors.len(),
        4,
        "measurements that differ by little are no reason"
    );
}

#[test]
fn a_plan_for_more_copies_than_donors_says_so_whatever_their_rates() {
    let rated = |id, rate| Candidate { rate: Some(rate), ..candidate(id, 1 << 40) };
    let ask = PlacementRequest { least: 1, ..request(100 * MIB, MIB as u32, 4, 3) };
    let plan = plan(&[rated(1, 10e6), rated(2, 90e6)], &ask).expect("room");
    assert!(plan.is_short(), "{plan:?}");
    for chunk in 0..100 {
        let donors: BTreeSet<DonorId> = plan.slot(chunk).expect("planned").into_iter().collect();
        assert_eq!(donors, BTreeSet::from([1, 2].map(DonorId)));
    }
}
