//! Tests of what counts as one machine.

use super::{MIB, at, heartbeat, pool, register, register_in};
use crate::Pool;
use potluck_core::ids::DonorId;
use potluck_core::owner_limits::DiskState;
use potluck_wire::control::Heartbeat;

/// Has a donor tell how much it holds, and how much more it takes.
fn tell(pool: &mut Pool, donor: u32, held: u64, room: u64) {
    let disk = DiskState { lent_used: held, ..DiskState::default() };
    let told = Heartbeat { disk, room, ..heartbeat(1, 0) };
    assert!(pool.heartbeat(DonorId(donor), &told, at(1.0)));
}

#[test]
fn machines_with_one_label_and_those_that_are_silent_are_no_second_machine() {
    let mut pool = pool();
    register_in(&mut pool, 1, 1, 0.0, Some("room-12"));
    register_in(&mut pool, 2, 1, 0.0, Some("room-12"));
    assert_eq!(pool.machines(at(1.0)), 1);
    register(&mut pool, 3, 1, 1.0);
    assert_eq!(pool.machines(at(1.0)), 2);
    assert_eq!(pool.machines(at(30.0)), 0, "all are silent");
}

#[test]
fn second_copies_need_room_beside_the_machine_that_has_the_first() {
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
