//! Tests of what members and donors tell of traffic: who is believed, and what comes of it for plans.

use super::{ME, MIB, S1, at, heartbeat, pool, register};
use crate::{NewSession, Pool};
use potluck_core::ids::{DonorId, MemberId, SpaceId};
use potluck_core::placement::Plan;
use potluck_core::policy::{AskedPolicy, Policy};
use potluck_core::traffic::{BothWays, Traffic};
use potluck_wire::control::{DonorTraffic, Heartbeat};

/// Returns the traffic of a second in which so many mebibytes were written.
fn written(mib: u64) -> BothWays<Traffic> {
    let written = Traffic { bytes: mib * MIB, busy_us: 1_000_000, ..Traffic::default() };
    BothWays { written, ..BothWays::default() }
}

/// Makes a pool of four donors; members 1001 and 1002 measured that the first takes a third of what the others take.
fn measured() -> Pool {
    let mut pool = pool();
    for donor in 1..=4 {
        register(&mut pool, donor, 7, 0.0);
    }
    for member in [1001, 1002] {
        let tell = |donor| DonorTraffic {
            donor: DonorId(donor),
            traffic: written(if donor == 1 { 10 } else { 30 }),
        };
        pool.told_traffic(MemberId(member), &[1, 2, 3, 4].map(tell), at(1.0));
    }
    pool
}

fn plan(pool: &mut Pool) -> Plan {
    let policy = Policy { sealed: false, copies: 1, ..Policy::default() };
    let (asked, room) = (AskedPolicy::default(), None);
    let new = NewSession {
        id: S1,
        member: ME,
        space: SpaceId(1),
        policy,
        asked,
        room,
        peer: None,
        link: None,
    };
    pool.open_session(new, Some(400 * MIB), at(1.0)).expect("ample space").plan
}

/// Returns the percentage of a plan's bytes that the first donor is promised.
fn share_of_first(plan: &Plan) -> u64 {
    let promised = plan.promised();
    100 * promised.get(&DonorId(1)).copied().unwrap_or(0) / promised.values().sum::<u64>()
}

#[test]
fn a_plan_gives_each_donor_a_share_by_the_rate_that_members_measured() {
    let plan = plan(&mut measured());
    assert!((8..=12).contains(&share_of_first(&plan)), "{plan:?}");
    assert_eq!(plan.donors().len(), 4);
    let mut unknown = pool();
    for donor in 1..=4 {
        register(&mut unknown, donor, 7, 0.0);
    }
    assert_eq!(share_of_first(&self::plan(&mut unknown)), 25, "nobody measured anything");
}

#[test]
fn neither_one_liar_nor_any_donors_change_the_share_of_a_donor() {
    let mut pool = measured();
    let lie = DonorTraffic { donor: DonorId(1), traffic: written(1 << 20) };
    pool.told_traffic(MemberId(1003), &[lie], at(1.0));
    (1..=4).for_each(|donor| pool.told_traffic(MemberId(donor), &[lie], at(1.0)));
    assert!((8..=12).contains(&share_of_first(&plan(&mut pool))));
}

#[test]
fn no_number_of_members_makes_a_donor_faster_than_it_says_it_is() {
    let mut pool = measured();
    let told = Heartbeat { traffic: written(10), ..heartbeat(7, 0) };
    assert!(pool.heartbeat(DonorId(1), &told, at(1.0)));
    for member in 1003..1010 {
        let lie = DonorTraffic { donor: DonorId(1), traffic: written(1 << 20) };
        pool.told_traffic(MemberId(member), &[lie], at(1.0));
    }
    assert!((8..=15).contains(&share_of_first(&plan(&mut pool))));
}

#[test]
fn every_donors_traffic_is_saved_in_its_turn() {
    let mut pool = pool();
    for donor in 1..=150 {
        register(&mut pool, donor, 7, 0.0);
        assert!(pool.heartbeat(DonorId(donor), &heartbeat(7, 0), at(0.5)));
    }
    let mut saved = Vec::new();
    for _ in 0..3 {
        let turn = pool.traffic_to_save(at(1.0));
        assert!(turn.len() <= 64, "the cost of a save is bounded");
        saved.extend(turn.into_iter().map(|(donor, _)| donor.0));
    }
    saved.sort_unstable();
    saved.dedup();
    assert_eq!(saved, (1..=150).collect::<Vec<u32>>());
    let mut few = measured();
    (1..=4).for_each(|donor| assert!(few.heartbeat(DonorId(donor), &heartbeat(7, 0), at(1.0))));
    assert_eq!(few.traffic_to_save(at(1.0)).len(), 4, "each once");
    let saved = few.traffic_to_save(at(1.0));
    let mut later = self::pool();
    for (donor, traffic) in saved {
        register(&mut later, donor.0, 8, 0.0);
        later.recall_traffic(donor, traffic, at(0.0));
    }
    assert!((8..=12).contains(&share_of_first(&plan(&mut later))), "rates outlast a restart");
}
