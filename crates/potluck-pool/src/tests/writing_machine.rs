//! Tests of which donors are on the machine that writes, and of what they get.

use super::{ME, MIB, S1, at, heartbeat, pool, register};
use crate::{NewSession, Pool};
use potluck_core::ids::{DonorId, SpaceId};
use potluck_core::placement::near::Near;
use potluck_core::policy::{AskedPolicy, Policy};
use std::collections::BTreeSet;
use std::net::IpAddr;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Makes a pool of these donors, each heard from an address.
fn heard_from(donors: &[(u32, &str)]) -> Pool {
    let mut pool = pool();
    for (donor, peer) in donors {
        register(&mut pool, *donor, 7, 0.0);
        assert!(pool.heartbeat(DonorId(*donor), &heartbeat(7, 0), at(0.5)));
        pool.heard_over(DonorId(*donor), u64::from(*donor), ip(peer));
    }
    pool
}

/// Returns the donors of a file of 100 MiB that is written from `peer`.
fn written_from(pool: &mut Pool, peer: &str, copies: u32, near: Near) -> BTreeSet<u32> {
    let policy = Policy { sealed: false, copies, near, ..Policy::default() };
    let (asked, room, peer, link) = (AskedPolicy::default(), None, Some(ip(peer)), None);
    let new = NewSession { id: S1, member: ME, space: SpaceId(1), policy, asked, room, peer, link };
    let plan = pool.open_session(new, Some(100 * MIB), at(1.0)).expect("ample room").plan;
    pool.end_session(&S1);
    plan.promised().into_keys().map(|donor| donor.0).collect()
}

#[test]
fn donor_of_the_writing_machine_is_passed_over() {
    let donors = [(1, "10.0.0.1"), (2, "10.0.0.2"), (3, "10.0.0.3")];
    let mut pool = heard_from(&donors);
    for peer in ["10.0.0.1", "::ffff:10.0.0.1"] {
        assert_eq!(written_from(&mut pool, peer, 1, Near::Elsewhere), [2, 3].into());
    }
    assert_eq!(written_from(&mut pool, "10.0.0.9", 1, Near::Elsewhere), [1, 2, 3].into());
    assert_eq!(written_from(&mut pool, "10.0.0.1", 1, Near::Anywhere), [1, 2, 3].into());
    assert_eq!(written_from(&mut pool, "10.0.0.1", 1, Near::HereShare(100)), [1].into());
    assert_eq!(written_from(&mut pool, "10.0.0.1", 3, Near::Elsewhere), [1, 2, 3].into());
    // The writer and its donor call over the loopback, and the donor is known by where it is reached, too.
    pool.heard_over(DonorId(1), 1, ip("127.0.0.1"));
    for peer in ["127.0.0.1", "10.0.0.1"] {
        assert_eq!(written_from(&mut pool, peer, 1, Near::Elsewhere), [2, 3].into());
    }
}

#[test]
fn one_address_of_several_machines_tells_nothing() {
    let behind_a_router = [(1, "192.0.2.1"), (2, "192.0.2.1"), (3, "10.0.0.3")];
    let mut pool = heard_from(&behind_a_router);
    for near in [Near::Elsewhere, Near::Here] {
        assert_eq!(written_from(&mut pool, "192.0.2.1", 1, near), [1, 2, 3].into());
    }
    // Two directories that one machine lends are known to be its own.
    pool.add_donor(DonorId(2), "d2", Some(DonorId(1)));
    assert_eq!(written_from(&mut pool, "192.0.2.1", 1, Near::Elsewhere), [3].into());
    assert_eq!(pool.donors_at(ip("192.0.2.1")), [1, 2].map(DonorId).into());
}
