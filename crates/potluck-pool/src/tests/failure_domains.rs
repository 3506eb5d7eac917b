//! Tests of which donors fail together, and of what counts as one machine.

use super::{ME, MIB, S1, at, heartbeat, pool, register, register_in};
use crate::{NewSession, Pool};
use potluck_core::ids::{DonorId, SpaceId};
use potluck_core::owner_limits::DiskState;
use potluck_core::policy::{AskedPolicy, Policy};
use potluck_wire::control::Heartbeat;

/// Has a donor tell how much it holds, and how much more it takes.
fn tell(pool: &mut Pool, donor: u32, held: u64, room: u64) {
    let disk = DiskState { lent_used: held, ..DiskState::default() };
    let told = Heartbeat { disk, room, ..heartbeat(1, 0) };
    assert!(pool.heartbeat(DonorId(donor), &told, at(1.0)));
}

#[test]
fn placement_judging_and_clients_agree_on_which_donors_fail_together() {
    let mut pool = pool();
    // The first two donors are one machine under two labels, and the others two machines under one label.
    for (donor, label) in [(1, "attic"), (2, "cellar"), (3, "room"), (4, "room")] {
        register_in(&mut pool, donor, 7, 0.0, Some(label));
    }
    pool.add_donor(DonorId(2), "further", Some(DonorId(1)));
    let donors = [1, 2, 3, 4].map(DonorId);
    let view = pool.view(at(0.0));
    let judged = donors.map(|donor| view.get(donor).expect("known").domain);
    let told = donors.map(|donor| pool.contact(donor, at(0.0)).expect("known").domain);
    assert_eq!((judged, told), ([1, 1, 3, 3], [1, 1, 3, 3]));
    let policy = Policy { sealed: false, copies: 2, ..Policy::default() };
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
    let plan = pool.open_session(new, Some(100 * MIB), at(0.0)).expect("ample space").plan;
    assert_eq!(plan.donors(), donors.into());
    for chunk in 0..plan.chunks() {
        let slot = plan.slot(chunk).expect("a planned chunk");
        assert_ne!(slot[0].0 <= 2, slot[1].0 <= 2, "{plan:?}");
    }
    // A label that its owner takes back, and a donor that goes, change that for all at once.
    register(&mut pool, 4, 7, 1.0);
    pool.remove_donor(DonorId(1));
    let told = [2, 3, 4].map(|donor| pool.contact(DonorId(donor), at(1.0)).expect("known").domain);
    assert_eq!(told, [1, 3, 4]);
}

#[test]
fn same_label_and_silent_machines_do_not_count_twice() {
    let mut pool = pool();
    register_in(&mut pool, 1, 1, 0.0, Some("room-12"));
    register_in(&mut pool, 2, 1, 0.0, Some("room-12"));
    assert_eq!(pool.machines(at(1.0)), 1);
    register(&mut pool, 3, 1, 1.0);
    assert_eq!(pool.machines(at(1.0)), 2);
    assert_eq!(pool.machines(at(30.0)), 0, "all are silent");
}

#[test]
fn second_copies_need_room_on_another_machine() {
    let mut pool = pool();
    register(&mut pool, 1, 1, 0.0);
    tell(&mut pool, 1, 400 * MIB, 1000 * MIB);
    assert!(!pool.has_room_for_second_copies(MIB, at(1.0)), "there is one machine");
    assert!(pool.has_room_for_second_copies(0, at(1.0)));
    register(&mut pool, 2, 1, 0.0);
    tell(&mut pool, 2, 0, 101 * MIB);
    assert!(pool.has_room_for_second_copies(100 * MIB, at(1.0)));
    assert!(!pool.has_room_for_second_copies(400 * MIB, at(1.0)), "1000 MiB are at the first");
    tell(&mut pool, 2, 400 * MIB, 201 * MIB);
    assert!(pool.has_room_for_second_copies(400 * MIB, at(1.0)), "half of the first are there");
}
