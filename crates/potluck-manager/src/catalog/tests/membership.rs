use super::files::Fixture;
use crate::catalog::Error;
use crate::catalog::members::{self, Moment};
use potluck_core::chunk::Digest;
use potluck_core::ids::{Epoch, MemberId};
use potluck_wire::token::Role;

const DAY: u64 = 24 * 3600 * 1000;
const ISSUED: Moment = Moment { epoch: Epoch(1), pool_ms: 1000, wall_ms: 5_000_000 };

fn secret(n: u8) -> Digest {
    Digest([n; 32])
}

fn join(fixture: &Fixture, n: u8, now: Moment) -> Result<members::Member, Error> {
    members::use_token(&fixture.db, &secret(n), now, |role| {
        members::add(&fixture.db, role, "somebody", |id| Ok(Digest([id.0 as u8; 32])))
    })
}

fn with_token() -> Fixture {
    let fixture = Fixture::new();
    members::add_token(&fixture.db, &secret(1), Role::Donor, ISSUED, DAY).expect("issued");
    fixture
}

#[test]
fn x5_a_token_gives_its_role_once() {
    let fixture = with_token();
    let member = join(&fixture, 1, ISSUED).expect("joined");
    assert_eq!((member.role, member.revoked), (Role::Donor, false));
    assert_eq!(join(&fixture, 1, ISSUED), Err(Error::UsedToken));
    assert_eq!(join(&fixture, 2, ISSUED), Err(Error::UnknownToken));
    assert_eq!(members::all(&fixture.db).expect("read"), [member]);
}

#[test]
fn x5_a_join_that_fails_leaves_its_token_good() {
    let fixture = with_token();
    let tx = fixture.db.unchecked_transaction().expect("a transaction");
    let failed = members::use_token(&tx, &secret(1), ISSUED, |_| Err(Error::Bug("no".into())));
    assert!(failed.is_err());
    drop(tx);
    join(&fixture, 1, ISSUED).expect("still good");
}

#[test]
fn c1_a_token_expires_by_the_pools_time_and_not_by_a_clock_that_jumps() {
    let year = 365 * DAY as i64;
    let late = |pool_ms, wall_ms| Moment { pool_ms, wall_ms, ..ISSUED };
    let fixture = with_token();
    assert_eq!(join(&fixture, 1, late(1000 + DAY, 5_000_000)), Err(Error::ExpiredToken));
    join(&fixture, 1, late(1000 + DAY - 1, 5_000_000 + year)).expect("the wall clock jumped");
}

#[test]
fn x5_a_token_does_not_outlive_its_day_while_no_manager_runs() {
    let restarted = |wall_ms| Moment { epoch: Epoch(2), pool_ms: 2000, wall_ms };
    let fixture = with_token();
    let year = 365 * DAY as i64;
    assert_eq!(join(&fixture, 1, restarted(5_000_000 + year)), Err(Error::ExpiredToken));
    join(&fixture, 1, restarted(5_000_000 + 1000)).expect("an hour's restart ends nothing");
}

#[test]
fn the_last_admin_cannot_be_revoked() {
    let fixture = Fixture::new();
    let admin = |n: u8| {
        members::add(&fixture.db, Role::Admin, "admin", |_| Ok(Digest([n; 32]))).expect("added")
    };
    let first = admin(1);
    assert_eq!(members::revoke(&fixture.db, first.id), Err(Error::LastAdmin(first.id.0)));
    let second = admin(2);
    assert!(members::revoke(&fixture.db, first.id).expect("revoked").revoked);
    assert_eq!(members::revoke(&fixture.db, second.id), Err(Error::LastAdmin(second.id.0)));
    assert_eq!(members::revoke(&fixture.db, MemberId(99)), Err(Error::NoMember(99)));
}
