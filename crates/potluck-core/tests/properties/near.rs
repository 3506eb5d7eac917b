//! Plans for files of a machine that lends disk itself: nothing of them is on that machine, or the part asked for.

use potluck_core::ids::{Domain, DonorId};
use potluck_core::placement::near::Near;
use potluck_core::placement::{Candidate, PlacementRequest, Plan, plan};

const MIB: u64 = 1 << 20;

/// Makes a donor with ample room; the first one of a pool is on the writing machine.
fn candidate(id: u32, domain: Domain) -> Candidate {
    let (load, rate, read_rate) = Default::default();
    let (donor, free, is_here) = (DonorId(id), 1 << 40, id == 1);
    Candidate { donor, free, load, rate, read_rate, domain, is_here }
}

fn pool(donors: u32) -> Vec<Candidate> {
    (1..=donors).map(|id| candidate(id, id)).collect()
}

fn request(chunks: u64, width: u32, copies: u32, near: Near) -> PlacementRequest {
    let (bytes, chunk_size) = (chunks * MIB, MIB as u32);
    PlacementRequest {
        bytes,
        chunk_size,
        width,
        copies,
        least: copies,
        near,
        link: None,
        stripe_size: 1,
    }
}

/// Returns the chunks that have a copy on the writing machine.
fn chunks_here(plan: &Plan) -> Vec<u64> {
    let is_here = |chunk: &u64| plan.slot(*chunk).expect("planned").contains(&DonorId(1));
    (0..plan.chunks()).filter(is_here).collect()
}

#[test]
fn writing_machines_donor_gets_nothing_unless_asked() {
    for copies in 1..=3 {
        let pool = pool(8);
        let elsewhere = plan(&pool, &request(100, 8, copies, Near::Elsewhere)).expect("room");
        assert_eq!(elsewhere.donors().len(), 7, "all others");
        assert_eq!(chunks_here(&elsewhere), [0; 0]);
        let anywhere = plan(&pool, &request(100, 8, copies, Near::Anywhere)).expect("room");
        assert_eq!(anywhere.donors().len(), 8);
    }
}

#[test]
fn writing_machine_keeps_a_copy_that_no_other_can_keep_as_well() {
    let all_here = |pool: &[Candidate], copies| {
        let planned = plan(pool, &request(100, 8, copies, Near::Elsewhere)).expect("room");
        chunks_here(&planned).len()
    };
    assert_eq!(all_here(&pool(1), 1), 100, "it is the only donor");
    assert_eq!(all_here(&pool(3), 3), 100, "three copies need three donors");
    // The other two donors fail together.
    let domains = [candidate(1, 1), candidate(2, 2), candidate(3, 2)];
    assert_eq!(all_here(&domains, 2), 100);
    assert_eq!(all_here(&domains, 1), 0);
    let full = [candidate(1, 1), Candidate { free: 50 * MIB, ..candidate(2, 2) }];
    assert!(all_here(&full, 1) > 0, "the other has no room for all of it");
}

#[test]
fn share_here_is_spread_evenly_over_the_file() {
    for (copies, percent) in [(1, 40), (2, 40), (3, 60), (1, 27)] {
        let near = Near::HereShare(percent);
        let planned = plan(&pool(9), &request(200, 8, copies, near)).expect("room");
        assert_eq!(planned.donors().len(), 9, "eight others, and this one");
        for (at, hundred) in [0, 100].into_iter().enumerate() {
            let chunks = chunks_here(&planned).into_iter();
            let here = chunks.filter(|chunk| (hundred..hundred + 100).contains(chunk)).count();
            let wanted = i64::from(percent);
            assert!((here as i64 - wanted).abs() <= 7, "{copies} copies, half {at}: {here}");
        }
        let gaps = chunks_here(&planned);
        let widest = gaps.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(
            widest <= Some(2 * 100 / u64::from(percent) + u64::from(copies)),
            "{copies} copies: {widest:?}"
        );
    }
    let all = plan(&pool(9), &request(200, 8, 1, Near::HereShare(100))).expect("room");
    assert_eq!(chunks_here(&all).len(), 200);
}

#[test]
fn share_here_follows_measured_rates_and_ends_at_the_room() {
    let mut pool = pool(9);
    for candidate in &mut pool {
        candidate.read_rate = Some(if candidate.is_here { 60e6 } else { 11e6 });
    }
    let share = |pool: &[Candidate], near| {
        chunks_here(&plan(pool, &request(1000, 8, 1, near)).expect("room")).len()
    };
    let by_rates = share(&pool, Near::Here);
    assert!((380..=430).contains(&by_rates), "60 of 60 + 88: {by_rates}");
    for free in [0, 1, 50, 300] {
        pool[0].free = free * MIB;
        for near in [Near::Here, Near::HereShare(90), Near::HereShare(100)] {
            let here = share(&pool, near) as u64;
            assert!(here <= free && here >= free / 2, "{near}: {here} of {free}");
        }
    }
}
