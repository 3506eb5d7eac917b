//! Tests of reserved room in the log.

use crate::Error;
use crate::fixture::{Fixture, new_space, path};
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

pub fn id(number: u8) -> SessionId {
    SessionId([number; 16])
}

pub fn plan(bytes: u64) -> Plan {
    let section = Section { donors: vec![DonorId(1), DonorId(2)], chunks: 1, bytes };
    Plan { stripe_size: 1, sections: vec![section], copies: 2, chunk_size: 1 << 20 }
}

pub fn reserve(db: &Tx, number: u8, at: &str, bytes: u64) -> Result<(), Error> {
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
    operations::sessions::session_changes::begin(db, &session)
}

/// Returns the reservations that hold, and the saved pool's time with its leaps, by which they end.
pub fn told(db: &Tx) -> Vec<String> {
    let mut told = Vec::new();
    for mut kept in sessions::all(db).expect("read") {
        let space = spaces::numbered(db, kept.space).expect("read");
        if let Some(space) = space.filter(|_| kept.room.is_some() && !kept.ended) {
            kept.space = Default::default();
            told.push(format!("{} {kept:?}", space.name));
        }
    }
    let leapt = notes::time_leapt_ms(db).expect("read");
    told.push(format!("{:?} {leapt:?}", meta::saved_pool_time(db).expect("read")));
    told
}

#[test]
fn removed_space_ends_its_reservations_despite_a_kill_f4() {
    let fixture = Fixture::new();
    let other = new_space("other", Policy::default(), None);
    operations::spaces::create(&fixture.db, &other, 0).expect("a space");
    reserve(&fixture.db, 13, "pot://other/x", 1).expect("reserved");
    reserve(&fixture.db, 14, "pot://lab/run", 1).expect("reserved");
    operations::spaces::remove(&fixture.db, "other", true).expect("removed");
    let is_open = |number| sessions::is_open(&fixture.db, &id(number)).expect("read");
    assert!(!is_open(13) && is_open(14));
}
