//! Tests of reserved room in the log.

use super::{Target, base, changes_after};
use crate::fixture::{Fixture, new_space, path};
use crate::log::changes;
use crate::operations;
use crate::pool_records::{
    meta, notes,
    sessions::{self, StoredSession},
    spaces,
};
use crate::sql::Tx;
use potluck_core::ids::{DonorId, MemberId, SessionId};
use potluck_core::placement::{Plan, Section};
use potluck_core::policy::{AskedPolicy, Policy};
use potluck_core::reserved_room::ReservedRoom;

fn id(number: u8) -> SessionId {
    SessionId([number; 16])
}

fn plan(bytes: u64) -> Plan {
    let section = Section { donors: vec![DonorId(1), DonorId(2)], chunks: 1, bytes };
    Plan { sections: vec![section], copies: 2, chunk_size: 1 << 20 }
}

fn reserve(db: &Tx, number: u8, at: &str, bytes: u64) {
    let at = path(at);
    let session = StoredSession {
        id: id(number),
        member: MemberId(7),
        space: spaces::named(db, at.space()).expect("a space").id,
        policy: Policy { copies: 2, ..Policy::default() },
        asked: AskedPolicy::default(),
        plan: plan(bytes),
        bytes,
        ended: false,
        room: Some(ReservedRoom { path: at, bytes, until_ms: 99 }),
        draws_on: None,
        key: None,
        counted: 0,
    };
    sessions::insert(db, &session).expect("reserved");
}

/// Returns the reservations that hold, and the saved pool's time with its leaps, by which they end.
fn told(db: &Tx) -> Vec<String> {
    let mut told = Vec::new();
    for mut kept in sessions::all(db).expect("read") {
        let space = spaces::numbered(db, kept.space).expect("read");
        if let Some(space) = space.filter(|_| kept.room.is_some() && !kept.ended) {
            kept.space = Default::default();
            told.push(format!("{} {kept:?}", space.name));
        }
    }
    let leapt = notes::get(db, notes::TIME_LEAPT).expect("read");
    told.push(format!("{:?} {leapt:?}", meta::saved_pool_time(db).expect("read")));
    told
}

/// A member who reserved room for a job at night has it also if the manager is lost meanwhile. A reservation that has
/// ended does not come back.
#[test]
fn reserved_room_comes_back_as_it_was_and_what_has_ended_does_not_f4() {
    let steps: [fn(&Tx); 6] = [
        |db| {
            meta::save_pool_time(db, 77).expect("saved");
            notes::set(db, notes::TIME_LEAPT, "50").expect("noted");
            reserve(db, 11, "pot://lab/run", 4000);
            reserve(db, 12, "pot://lab", 5000);
        },
        |db| sessions::grow(db, &id(11), &plan(3000), 4000, 0).expect("kept"),
        |db| sessions::end(db, &id(12)).expect("ended"),
        |db| {
            let policy = Policy::default();
            operations::spaces::create(db, &new_space("other", policy, None), 0).expect("a space");
            reserve(db, 13, "pot://other/x", 1);
            operations::spaces::remove(db, "other", true).expect("removed");
        },
        |db| {
            meta::save_pool_time(db, 88).expect("saved");
            reserve(db, 14, "pot://lab/run", 1);
            sessions::grow(db, &id(11), &plan(2000), 4000, 0).expect("kept");
        },
        |db| while !sessions::account(db, &id(12), 0).expect("accounted for") {},
    ];
    for middle in 0..=steps.len() {
        let fixture = Fixture::new();
        let (mut by_step, mut late) = (Target::new(), Target::new());
        let mut seen = 0;
        for step in &steps[..middle] {
            step(&fixture.db);
            by_step.apply(&changes_after(&fixture.db, seen));
            seen = changes::last(&fixture.db).expect("read");
        }
        late.apply(&changes_after(&fixture.db, 0));
        let (records, last) = base(&fixture);
        let mut from_base = Target::new();
        from_base.apply(&records);
        assert_eq!(told(&from_base.db), told(&fixture.db), "a base after {middle} steps");
        steps[middle..].iter().for_each(|step| step(&fixture.db));
        for (target, from) in [(&mut from_base, last), (&mut by_step, seen), (&mut late, seen)] {
            target.apply(&changes_after(&fixture.db, from));
            assert_eq!(target.replay.left_out, 0, "after {middle} steps and the rest");
            assert_eq!(told(&target.db), told(&fixture.db), "after {middle} steps and the rest");
        }
    }
}

#[test]
fn removed_space_ends_its_reservations_despite_a_kill_f4() {
    let fixture = Fixture::new();
    let other = new_space("other", Policy::default(), None);
    operations::spaces::create(&fixture.db, &other, 0).expect("a space");
    reserve(&fixture.db, 13, "pot://other/x", 1);
    reserve(&fixture.db, 14, "pot://lab/run", 1);
    operations::spaces::remove(&fixture.db, "other", true).expect("removed");
    let is_open = |number| sessions::is_open(&fixture.db, &id(number)).expect("read");
    assert!(!is_open(13) && is_open(14));
}
